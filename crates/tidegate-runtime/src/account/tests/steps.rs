// SPDX-License-Identifier: Apache-2.0

//! Reservations in any order: allocated bytes are counted, limits hold, and nothing is left at the end.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tokio::task::JoinHandle;

use super::*;

/// The size of the pieces, in bytes: senders count as large from some mebibytes on.
const PIECE: usize = 64 << 10;
const LIMIT: Limit = Limit {
    soft: 160 << 20,
    hard: 200 << 20,
};
/// A reservation of each kind, see [`reservation`].
const KINDS: usize = 6;
/// The one of which no part of the limit is kept.
const OURS: usize = 1;
/// Two of the same sender.
const OF_ONE_SENDER: [usize; 2] = [3, 4];

#[derive(Clone, Debug)]
enum Step {
    Grow(usize, usize),
    GrowQuietly(usize, usize),
    /// In a task of its own, which may have to wait.
    GrowInTime(usize, usize),
    Begin(usize, usize, usize),
    /// The waiting one hangs up.
    Abort(usize),
    Promise(usize, usize),
    Arrive(usize, usize),
    /// More arrives than was reserved.
    Overflow(usize, usize),
    Surprise(usize, usize),
    Shrink(usize, usize),
    Settle(usize, usize),
    HangUp(usize),
    /// A body begins to arrive, or none does any more.
    Arriving(bool),
    Measure,
    /// All that wait come to an end.
    Pass,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..KINDS;
    let bytes = || (0..400_usize).prop_map(|pieces| pieces * PIECE);
    let few = || (0..30_usize).prop_map(|pieces| pieces * PIECE);
    let with =
        |step: fn(usize, usize) -> Step| (0..KINDS, bytes()).prop_map(move |(who, bytes)| step(who, bytes));
    let with_few =
        |step: fn(usize, usize) -> Step| (0..KINDS, few()).prop_map(move |(who, bytes)| step(who, bytes));
    prop_oneof![
        4 => with(Step::Grow),
        1 => with(Step::GrowQuietly),
        2 => with(Step::GrowInTime),
        2 => (who.clone(), bytes(), few()).prop_map(|(who, all, first)| Step::Begin(who, all, first)),
        1 => who.clone().prop_map(Step::Abort),
        1 => with_few(Step::Promise),
        3 => with(Step::Arrive),
        1 => with_few(Step::Overflow),
        1 => with_few(Step::Surprise),
        2 => with(Step::Shrink),
        1 => with(Step::Settle),
        1 => who.prop_map(Step::HangUp),
        1 => any::<bool>().prop_map(Step::Arriving),
        1 => Just(Step::Measure),
        1 => Just(Step::Pass),
    ]
}

/// None yet, of this kind.
fn reservation(kind: usize, account: &Arc<Account>) -> Held {
    let account = account.clone();
    match kind {
        0 => Held::new(account),
        OURS => Held::ours(account),
        2 => Held::under(Ceiling::Hard, account),
        3 => Held::under(Ceiling::Hard, account).of(Some(SenderKey::of("greedy"))),
        4 => Held::new(account).of(Some(SenderKey::of("greedy"))),
        _ => Held::new(account).of(Some(SenderKey::of("modest"))),
    }
}

/// The owner of a reservation.
enum Owner {
    Here(Held),
    /// A task that waits. It returns the reservation, and whether the room that it got was within the limit.
    Away(JoinHandle<(Held, bool)>),
}

struct Model {
    account: Arc<Account>,
    places: Vec<Owner>,
    arriving: Vec<Arriving>,
    /// Other memory of the process, in bytes.
    own: usize,
}

impl Model {
    fn new(own: usize) -> Self {
        let account = Arc::new(Account::default());
        account.add_limit(LIMIT);
        account.note(own);
        let places = (0..KINDS).map(|kind| Owner::Here(reservation(kind, &account)));
        Self {
            places: places.collect(),
            account,
            arriving: Vec::new(),
            own,
        }
    }

    fn here(&self) -> impl Iterator<Item = (usize, &Held)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(kind, place)| match place {
            Owner::Here(held) => Some((kind, held)),
            Owner::Away(_) => None,
        })
    }

    fn held(&mut self, kind: usize) -> Option<&mut Held> {
        match self.places.get_mut(kind) {
            Some(Owner::Here(held)) => Some(held),
            _ => None,
        }
    }

    /// Moves a reservation to a task that waits for room.
    fn send<F: Future<Output = Held> + Send + 'static>(&mut self, kind: usize, wait: impl FnOnce(Held) -> F) {
        let Some(held) = self.held(kind) else {
            return;
        };
        let before = held.bytes();
        let waiting = wait(held.take());
        let account = self.account.clone();
        let task = tokio::spawn(async move {
            let held = waiting.await;
            let is_within = held.bytes() <= before || is_within(&account, &held);
            (held, is_within)
        });
        self.places[kind] = Owner::Away(task);
    }

    /// Brings back a reservation that waits, whether it has its room or not.
    async fn bring_back(&mut self, kind: usize) -> Result<(), TestCaseError> {
        if let Owner::Away(task) = &mut self.places[kind] {
            let (held, is_within) = task
                .await
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            self.places[kind] = Owner::Here(held);
            prop_assert!(is_within, "one who waited got too much");
        }
        Ok(())
    }

    /// Ends a task that waits, and gives back its memory.
    async fn abort(&mut self, kind: usize) {
        if let Owner::Away(task) = &mut self.places[kind] {
            task.abort();
            // It may have come to its end before.
            drop(task.await);
            self.places[kind] = Owner::Here(reservation(kind, &self.account));
        }
    }

    /// Reserves if there is room, and looks whether there was.
    fn grow(
        &mut self,
        kind: usize,
        bytes: usize,
        grow: fn(&mut Held, usize) -> Result<(), NoRoom>,
    ) -> Result<(), TestCaseError> {
        let before = self.account.reserved_bytes();
        let Some(held) = self.held(kind) else {
            return Ok(());
        };
        if grow(held, bytes).is_err() {
            prop_assert_eq!(self.account.reserved_bytes(), before);
            return Ok(());
        }
        prop_assert_eq!(self.account.reserved_bytes(), before + bytes);
        if bytes > 0 {
            let used = self.account.used_bytes();
            let most = self.most(kind);
            prop_assert!(used <= most, "{} is used of {}", used, most);
        }
        Ok(())
    }

    /// The most that may be used after this one got room.
    fn most(&self, kind: usize) -> usize {
        let is_of_sender =
            |of: usize| of == kind || OF_ONE_SENDER.contains(&of) && OF_ONE_SENDER.contains(&kind);
        let of_sender = self.here().filter(|(of, _)| is_of_sender(*of));
        let bytes: usize = of_sender.map(|(_, held)| held.reserved).sum();
        let ceiling = self
            .here()
            .find(|(of, _)| *of == kind)
            .map(|(_, held)| held.ceiling());
        let limit = self.account.limit_under(ceiling.unwrap_or_default());
        if kind != OURS && bytes > (limit / 16).max(LARGE) {
            // An eighth is left to those who have little.
            (limit - limit / 8).min(LIMIT.soft)
        } else {
            limit
        }
    }

    /// Makes a step. Gives the bytes that were reserved without a possible refusal.
    async fn make(&mut self, step: Step) -> Result<usize, TestCaseError> {
        let mut forced = 0;
        match step {
            Step::Grow(kind, bytes) => self.grow(kind, bytes, Held::try_grow)?,
            Step::GrowQuietly(kind, bytes) => self.grow(kind, bytes, Held::try_grow_quietly)?,
            Step::GrowInTime(kind, bytes) => self.send(kind, move |mut held| async move {
                let before = held.bytes();
                match held.grow_in_time(bytes).await {
                    Ok(()) => assert_eq!(held.bytes(), before.max(bytes)),
                    Err(NoRoom) => assert_eq!(held.bytes(), before),
                }
                held
            }),
            Step::Begin(kind, promised, first) => self.send(kind, move |mut held| async move {
                let before = held.bytes();
                match held.begin(promised, first).await {
                    Ok(()) => assert_eq!(held.bytes(), before.max(first)),
                    Err(NoRoom) => assert_eq!(held.bytes(), before),
                }
                held
            }),
            Step::Abort(kind) => self.abort(kind).await,
            Step::Arriving(true) => {
                let account = self.account.clone();
                self.arriving.push(Arriving::on(account, Ceiling::Soft));
            }
            Step::Arriving(false) => self.arriving.clear(),
            Step::Measure => self.account.note(self.own + self.account.filled_bytes()),
            Step::Pass => {
                for kind in 0..KINDS {
                    self.bring_back(kind).await?;
                }
            }
            Step::Promise(kind, bytes)
            | Step::Arrive(kind, bytes)
            | Step::Overflow(kind, bytes)
            | Step::Surprise(kind, bytes)
            | Step::Shrink(kind, bytes)
            | Step::Settle(kind, bytes) => {
                if let Some(held) = self.held(kind) {
                    forced = change(held, &step, bytes);
                }
            }
            Step::HangUp(kind) => {
                if let Some(held) = self.held(kind) {
                    drop(held.take());
                }
            }
        }
        Ok(forced)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let reserved: usize = self.here().map(|(_, held)| held.reserved).sum();
        let filled: usize = self.here().map(|(_, held)| held.filled).sum();
        let all = (self.account.reserved_bytes(), self.account.filled_bytes());
        match self.here().count() {
            KINDS => prop_assert_eq!(all, (reserved, filled)),
            _ => prop_assert!(all.0 >= reserved && all.1 >= filled),
        }
        prop_assert!(self.here().all(|(_, held)| held.filled <= held.reserved));
        prop_assert!(self.account.used_bytes() >= self.own + self.account.filled_bytes());
        Ok(())
    }
}

/// Whether no more is used than one of this kind may use.
fn is_within(account: &Account, held: &Held) -> bool {
    account.used_bytes() <= account.limit_under(held.ceiling())
}

/// Applies a step that needs no room. Gives the bytes that it reserved nevertheless.
fn change(held: &mut Held, step: &Step, bytes: usize) -> usize {
    let before = held.reserved;
    match step {
        Step::Promise(..) => held.promise(bytes),
        Step::Arrive(..) => held.fill_to((held.filled + bytes).min(held.reserved)),
        Step::Overflow(..) => held.fill_to(held.reserved + bytes),
        Step::Surprise(..) => held.grow(bytes),
        Step::Shrink(..) => held.shrink(bytes),
        _ => held.keep(bytes.min(held.reserved)),
    }
    held.reserved.saturating_sub(before)
}

async fn run(own: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::new(own);
    let account = model.account.clone();
    for step in steps {
        let before = account.reserved_bytes();
        let forced = model.make(step).await?;
        // Those who wait get what was given back.
        for _ in 0..2 * KINDS {
            tokio::task::yield_now().await;
        }
        model.check()?;
        let after = account.reserved_bytes();
        prop_assert!(
            own + after <= LIMIT.hard || after <= before + forced,
            "{} more than {} were reserved, {} of them unasked",
            after - before,
            before,
            forced
        );
    }
    model.make(Step::Pass).await?;
    drop(model);
    prop_assert!(is_at_rest(&account));
    prop_assert_eq!(account.wanted.load(Relaxed), 0);
    prop_assert!(account.used_bytes() <= own.max(account.counters.measured()));
    account.note(own);
    prop_assert_eq!(account.used_bytes(), own);
    Ok(())
}

proptest! {
    /// After any steps the process never uses more than the account says. The account gives room only within the limits;
    /// only reservations that it cannot refuse exceed them. At rest nothing is reserved.
    #[test]
    fn the_account_never_says_less_than_what_is_there(
        own in 0..LIMIT.soft,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(own, steps))?;
    }
}
