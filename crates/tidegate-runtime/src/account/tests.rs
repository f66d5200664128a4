// SPDX-License-Identifier: Apache-2.0

use super::waiting::{LONGEST_WAIT, WAITING_BYTES};
use super::*;

mod steps;

fn account(limit: usize) -> Arc<Account> {
    let account = Arc::new(Account::default());
    account.add_limit(Limit::of(limit));
    account
}

fn is_at_rest(account: &Account) -> bool {
    account.reserved_bytes() == 0
        && account.filled_bytes() == 0
        && account.arriving.load(Relaxed) == 0
        && account.counters.waiting() == 0
}

#[test]
fn a_measurement_does_not_forgive_a_promise() {
    let account = account(1000);
    let mut promised = Held::new(account.clone());
    promised.try_grow(400).unwrap();
    assert_eq!(account.used_bytes(), 500);
    for _ in 0..3 {
        account.note(100);
        assert_eq!(account.used_bytes(), 600);
    }
    promised.fill_to(400);
    account.note(500);
    assert_eq!(account.used_bytes(), 500, "what is there was measured");
    let mut second = Held::new(account.clone());
    assert_eq!(second.try_grow(401), Err(NoRoom));
    second.try_grow(400).unwrap();
    drop(promised);
    assert_eq!(account.used_bytes(), 500, "the new promise has its place");
    drop(second);
    assert_eq!(account.used_bytes(), 100);
    assert!(is_at_rest(&account));
}

#[test]
fn bytes_that_queues_share_are_measured_once() {
    let account = account(1000);
    for _ in 0..3 {
        account.hold(200);
    }
    account.note(250);
    assert_eq!(account.used_bytes(), 250);
    account.release(200);
    account.release(200);
    assert_eq!(account.used_bytes(), 84);
    account.release(200);
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn the_smallest_limit_counts_as_long_as_its_limiter_runs() {
    let account = Account::default();
    account.note(500);
    assert!(!account.is_over(Ceiling::Hard) && account.has_room(usize::MAX / 2));
    account.add_limit(Limit::of(1000));
    account.add_limit(Limit::of(10));
    assert!(account.is_over(Ceiling::Hard));
    account.remove_limit(Limit::of(10));
    assert!(!account.is_over(Ceiling::Hard) && account.has_room(400) && !account.has_room(401));
    account.remove_limit(Limit::of(1000));
    assert_eq!(account.limit(), usize::MAX);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_room_that_another_gives_back() {
    let account = account(1000);
    let (mut first, mut second) = (Held::new(account.clone()), Held::new(account.clone()));
    first.try_grow(800).unwrap();
    let began = Instant::now();
    assert_eq!(second.grow_in_time(100).await, Err(NoRoom));
    assert_eq!(began.elapsed(), LONGEST_WAIT);
    assert!(!account.is_short(Ceiling::Soft) || began.elapsed() < LONGEST_WAIT + SHORT_FOR);
    let began = Instant::now();
    let waiting = tokio::spawn(async move { second.grow_in_time(100).await.map(|()| second) });
    tokio::time::sleep(LONGEST_WAIT / 2).await;
    first.shrink(200);
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), LONGEST_WAIT / 2);
    drop((first, second));
    assert!(is_at_rest(&account));
}

/// Bodies for tables keep their room while what stays in memory is refused.
#[test]
fn a_shortage_below_the_soft_limit_is_none_below_the_hard_one() {
    let account = Arc::new(Account::default());
    account.add_limit(Limit {
        soft: 500,
        hard: 1000,
    });
    account.note(600);
    let grow = |ceiling, bytes| Held::under(ceiling, account.clone()).try_grow(bytes);
    let is_short = || [Ceiling::Soft, Ceiling::Hard].map(|ceiling| account.is_short(ceiling));
    assert_eq!(grow(Ceiling::Hard, 10), Ok(()));
    assert_eq!(is_short(), [false, false]);
    assert_eq!(grow(Ceiling::Soft, 10), Err(NoRoom));
    assert_eq!(is_short(), [true, false]);
    assert_eq!(grow(Ceiling::Hard, 1000), Err(NoRoom));
    assert_eq!(is_short(), [true, true]);
}

#[test]
fn quiet_growth_does_not_make_memory_short() {
    let account = account(1000);
    let mut held = Held::new(account.clone());
    held.try_grow_quietly(800).unwrap();
    assert_eq!(held.try_grow_quietly(1), Err(NoRoom));
    assert!(!account.is_short(Ceiling::Soft));
    held.keep(400);
    assert_eq!((held.bytes(), account.reserved_bytes()), (400, 400));
    held.try_grow_quietly(400).unwrap();
    drop(held);
    assert!(is_at_rest(&account));
}

/// The account bounds what waits. A body of unknown length counts as one full window.
#[tokio::test(start_paused = true)]
async fn a_body_of_unknown_length_waits_for_as_much_as_a_window_holds() {
    let account = account(1000);
    account.note(1100);
    let _arriving = Arriving::on(account.clone(), Ceiling::Soft);
    let waiting = |promised, bytes| {
        let mut held = Held::new(account.clone());
        tokio::spawn(async move { held.begin(promised, bytes).await })
    };
    for (promised, wanted) in [(0, 256 << 10), (300, WAITING_BYTES), (1 << 20, 1 << 20)] {
        let body = waiting(promised, 0);
        tokio::task::yield_now().await;
        assert_eq!(account.wanted.load(Relaxed), wanted);
        body.abort();
        assert!(body.await.is_err());
    }
    assert_eq!(account.wanted.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_refused_at_once_if_no_other_could_lose_room() {
    let account = account(1000);
    account.note(900);
    let began = Instant::now();
    let mut held = Held::new(account.clone());
    assert_eq!(held.begin(200, 10).await, Err(NoRoom));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let arriving = Arriving::on(account.clone(), Ceiling::Soft);
    assert_eq!(held.begin(200, 10).await, Err(NoRoom));
    assert_eq!(began.elapsed(), LONGEST_WAIT);
    assert_eq!(held.begin(40, 10).await, Ok(()));
    drop((held, arriving));
    assert!(is_at_rest(&account));
}

/// Threads that promise, fill and hang up at once never get more than there is.
#[test]
fn threads_share_one_limit_and_leave_nothing_behind() {
    const LIMIT: usize = 100_000;
    let account = account(LIMIT);
    std::thread::scope(|scope| {
        for seed in 0..4_usize {
            let account = account.clone();
            scope.spawn(move || {
                let mut refused = 0;
                for round in 0..20_000_usize {
                    let bytes = (round * 7919 + seed * 104_729) % 40_000;
                    let mut held = Held::new(account.clone());
                    refused += usize::from(held.try_grow(bytes).is_err());
                    held.fill_to(held.bytes() / 2);
                    assert!(resident(account.reserved_bytes()) <= LIMIT);
                    if round % 3 == 0 {
                        held.keep(held.bytes() / 3);
                    }
                }
                assert!(refused < 20_000);
            });
        }
    });
    assert!(is_at_rest(&account));
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn memory_is_measured_for_large_buffers_and_before_a_refusal() {
    let ballast = vec![1_u8; 64 << 20];
    let resident = usize::try_from(measure::resident_bytes().unwrap()).unwrap();
    let limit = resident + (64 << 20);
    let account = account(limit);
    account.is_live.store(true, Relaxed);
    // The last measurement knows nothing of what is resident.
    account.note(0);
    let mut held = Held::new(account.clone());
    held.try_grow(LARGE - 1).unwrap();
    assert_eq!(account.counters.measured(), 0, "small ones don't look");
    assert!(account.has_room(60 << 20), "as far as the account says");
    assert_eq!(held.try_grow(60 << 20), Err(NoRoom));
    // The last measurement knows nothing of what has been given back since.
    account.note(limit + 1);
    std::thread::sleep(MEASURE_AFTER);
    held.try_grow(1).unwrap();
    account.note(limit + 1);
    std::thread::sleep(MEASURE_AFTER);
    assert!(!account.is_over(Ceiling::Hard));
    drop(ballast);
}

#[tokio::test(start_paused = true)]
async fn a_large_request_that_waits_keeps_no_room_from_a_small_one() {
    let account = account(1000);
    let mut rest = Held::new(account.clone());
    rest.try_grow(800).unwrap();
    let wait = |bytes: usize| {
        let mut held = Held::new(account.clone());
        tokio::spawn(async move { held.grow_in_time(bytes).await.map(|()| held) })
    };
    let large = wait(700);
    tokio::task::yield_now().await;
    // Together they want more than may wait, but for the room that is being given back.
    account.wanted.store(0, Relaxed);
    let small = wait(20);
    tokio::task::yield_now().await;
    account.wanted.store(720, Relaxed);
    let began = Instant::now();
    rest.shrink(100);
    let small = small.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "the wake-up was passed on");
    assert_eq!(large.await.unwrap().unwrap_err(), NoRoom);
    drop((rest, small));
    assert!(is_at_rest(&account));
}

#[tokio::test(start_paused = true)]
async fn few_wait_and_the_others_are_refused_at_once() {
    // However little they want, they count with what a stream may have on its way.
    let account = account(64 * WAITING_BYTES);
    account.note(account.limit_under(Ceiling::Soft));
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let mut held = Held::new(account.clone());
            tokio::spawn(async move {
                let began = Instant::now();
                (held.grow_in_time(250).await, began.elapsed())
            })
        })
        .collect();
    let mut waited = 0;
    for waiting in waiting {
        let (answer, time) = waiting.await.unwrap();
        assert_eq!(answer, Err(NoRoom));
        waited += usize::from(time > Duration::ZERO);
    }
    assert_eq!(waited, 4, "a sixteenth of the limit is waited for");
}

#[test]
fn a_large_sender_leaves_an_eighth_to_small_ones() {
    const MIB: usize = 1 << 20;
    let account = account(160 * MIB);
    let [heavy, light] = ["heavy", "light"].map(SenderKey::of);
    let request = |sender| Held::new(account.clone()).of(Some(sender));
    // All its requests count together: 112 MiB take 140 MiB, and an eighth must stay free.
    let mut all = Vec::new();
    let refused = loop {
        let mut held = request(heavy);
        match held.try_grow(MIB) {
            Ok(()) => all.push(held),
            Err(NoRoom) => break all.len(),
        }
    };
    assert_eq!(refused, 112);
    let mut honest = request(light);
    assert_eq!(
        honest.try_grow(2 * MIB),
        Ok(()),
        "the one with little is still let in"
    );
    let mut unknown = Held::new(account.clone());
    assert_eq!(unknown.try_grow(MIB), Ok(()));
    assert_eq!(
        unknown.try_grow(10 * MIB),
        Err(NoRoom),
        "a request of much by itself too"
    );
    drop((all, honest, unknown));
    assert!(is_at_rest(&account));
}

#[tokio::test(start_paused = true)]
async fn what_a_sender_was_given_is_forgotten_in_seconds() {
    const MIB: usize = 1 << 20;
    let account = account(160 * MIB);
    let sender = SenderKey::of("sender");
    let request = || Held::new(account.clone()).of(Some(sender));
    // Its requests have moved on into a queue.
    account.hold(100 * MIB);
    for _ in 0..50 {
        request().try_grow(MIB).unwrap();
    }
    account.hold(13 * MIB);
    assert_eq!(request().try_grow(MIB), Err(NoRoom), "it was given much recently");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(request().try_grow(MIB), Ok(()));
}

#[test]
fn tables_are_tight_above_the_soft_limit() {
    let account = Account::default();
    account.add_limit(Limit {
        soft: 1000,
        hard: 1200,
    });
    let mut tables = Held::under(Ceiling::Hard, Arc::new(Account::default()));
    assert!(tables.try_grow(1).is_ok());
    account.note(1000);
    assert!(!account.of_a_table.is_tight());
    account.note(1001);
    assert!(account.of_a_table.is_tight() && !account.is_over(Ceiling::Hard));
    account.note(900);
    assert!(!account.of_a_table.is_tight());
}

#[test]
fn what_tables_take_in_may_reach_the_hard_limit() {
    let account = Arc::new(Account::default());
    account.add_limit(Limit {
        soft: 1000,
        hard: 1200,
    });
    account.note(900);
    let mut queued = Held::new(account.clone());
    assert_eq!(queued.try_grow(81), Err(NoRoom));
    let mut absorbed = Held::under(Ceiling::Hard, account.clone());
    assert_eq!(absorbed.try_grow(240), Ok(()));
    assert_eq!(absorbed.try_grow(1), Err(NoRoom));
}

#[test]
fn one_sender_leaves_places_in_the_line_to_others() {
    const MOST: usize = 2;
    let account = Arc::<Account>::default();
    let wait = |sender: Option<&str>| {
        let held = Held::new(account.clone()).of(sender.map(SenderKey::of));
        held.wait_in_line(MOST)
    };
    let waiting = [(); MOST].map(|()| wait(Some("greedy")).unwrap());
    assert!(wait(Some("greedy")).is_none());
    assert!(wait(Some("modest")).is_some());
    let unknown = [(); MOST + 1].map(|()| wait(None).unwrap());
    drop((waiting, unknown));
    assert!(wait(Some("greedy")).is_some());
}
