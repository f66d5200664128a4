//! Who sends series: how often each resource reports, and whether it still does.
//!
//! Two resources may come to the same name and labels, most often because one has replaced the other. Which of the two a
//! reader sees depends on which of them lives, so the catalogue watches every resource by one of its series. Nothing is
//! noted where data passes: a thread looks once a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_engine::{
    Cadence, DEFAULT_LEASE_NS, Key, Place, Reading, Resource, Seen, Table, UnixNanos, Value, patience_ns,
};

use super::KeyMap;
use crate::component::Shared;

/// Resources whose cadence is watched. Those beyond have the default lease of 90 s.
const MOST: usize = 16_384;

/// Two ticks have at least this between them, however many threads call.
const TICK_NS: u64 = 900_000_000;

/// A resource that was not seen for so long is forgotten.
const FORGET_NS: u64 = 600_000_000_000;

/// When a series had its latest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When it was true, by the sender's clock.
    pub time: UnixNanos,
    /// When the series was last heard of, by our clock.
    pub seen: UnixNanos,
}

impl Times {
    /// Those of a reading; `None`: the series has said that it ended.
    pub fn of(reading: &Reading<'_>) -> Option<Self> {
        (!matches!(reading.value, Value::NoRecordedValue)).then_some(Self {
            time: reading.time,
            seen: reading.seen,
        })
    }
}

/// What a series says of its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When its latest value was true, by the sender's clock.
    pub time: UnixNanos,
    /// When it was last heard of, by our clock.
    pub seen: UnixNanos,
    /// How long it may be silent and still lives, in nanoseconds.
    pub lease: u64,
    /// Since when its sender counts; 0: not known.
    pub began: UnixNanos,
}

impl Life {
    /// Whether it still reports.
    pub fn is_alive(&self, now: UnixNanos) -> bool {
        now.saturating_sub(self.seen) <= self.lease
    }

    /// Whether it reports beside `owner`, which has its name and labels. What reported last before the owner's sender
    /// started is its predecessor, and hides nothing.
    pub fn collides_with(&self, owner: &Self, now: UnixNanos) -> bool {
        self.is_alive(now) && owner.is_alive(now) && owner.began <= self.time
    }

    /// Whether it gives its place to `other`, which has the same name and labels: it has gone quiet, or the other's sender
    /// started after its last value.
    pub fn gives_way_to(&self, other: &Self, now: UnixNanos) -> bool {
        other.is_alive(now) && (!self.is_alive(now) || other.began > self.time)
    }
}

/// How the resources of one gateway report. All tables and all readers share it.
#[derive(Debug, Default)]
pub struct Senders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ticked: UnixNanos,
    senders: KeyMap<Sender>,
}

#[derive(Debug)]
struct Sender {
    table: Weak<Table>,
    /// A series of it.
    place: Place,
    seen: UnixNanos,
    cadence: Cadence,
}

impl Senders {
    /// Those of this gateway.
    pub fn of(shared: &Shared) -> Arc<Self> {
        shared.parts.get(Self::default)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `resource` has a series at this place of a table.
    pub fn meet(&self, resource: &Arc<Resource>, table: &Arc<Table>, place: Place, now: UnixNanos) {
        let key = Key::of_value(resource);
        let mut state = self.state();
        let is_full = state.senders.len() >= MOST;
        match state.senders.get_mut(&key) {
            Some(known) if known.has_series() => {}
            Some(known) => (known.table, known.place) = (Arc::downgrade(table), place),
            None if is_full => {}
            None => {
                let mut cadence = Cadence::default();
                cadence.note(now);
                let sender = Sender {
                    table: Arc::downgrade(table),
                    place,
                    seen: now,
                    cadence,
                };
                state.senders.insert(key, sender);
            }
        }
    }

    /// Looks at every resource. Call it about once a second; more calls cost nothing.
    pub fn tick(&self, now: UnixNanos) {
        let mut state = self.state();
        if now.saturating_sub(state.ticked) < TICK_NS {
            return;
        }
        state.ticked = now;
        state.senders.retain(|_, sender| {
            sender.look();
            now.saturating_sub(sender.seen) < FORGET_NS
        });
    }

    /// How long a resource may be silent and still counts as alive, in nanoseconds.
    pub fn lease(&self, resource: &Resource) -> u64 {
        let state = self.state();
        let sender = state.senders.get(&Key::of_value(resource));
        sender.map_or(DEFAULT_LEASE_NS, Sender::lease_ns)
    }

    /// When a resource was last heard of (0: it is not known), and how long it may be silent, in nanoseconds.
    pub fn heard(&self, resource: &Resource) -> (UnixNanos, u64) {
        let state = self.state();
        let sender = state.senders.get(&Key::of_value(resource));
        sender.map_or((0, DEFAULT_LEASE_NS), |sender| (sender.seen, sender.lease_ns()))
    }

    /// Whether a resource gives its place to another one, by what is known of both. Neither is locked by the caller.
    pub fn gives_way(&self, owner: &Resource, other: &Resource, now: UnixNanos) -> bool {
        let state = self.state();
        let life = |resource: &Resource| {
            let sender = state.senders.get(&Key::of_value(resource))?;
            let table = sender.table.upgrade();
            Some(Life {
                time: sender.seen,
                seen: sender.seen,
                lease: sender.lease_ns(),
                began: table.map_or(0, |table| table.began(resource)),
            })
        };
        let lives = life(owner).zip(life(other));
        lives.is_some_and(|(owner, other)| owner.gives_way_to(&other, now))
    }

    /// The life of a series of `resource` that showed these times. Hold no lock of `table`.
    pub fn life(&self, resource: &Resource, times: Times, table: Option<&Table>) -> Life {
        Life {
            time: times.time,
            seen: times.seen,
            lease: self.lease(resource),
            began: table.map_or(0, |table| table.began(resource)),
        }
    }
}

impl Sender {
    /// How long it may be silent and still counts as alive, in nanoseconds. Series of sources of events are confirmed at
    /// every sweep of their table, whatever passes.
    fn lease_ns(&self) -> u64 {
        let table = self.table.upgrade();
        let swept = table.map_or(0, |table| table.confirmed_every_ns());
        self.cadence.lease_ns().max(patience_ns(swept))
    }

    fn has_series(&self) -> bool {
        self.table
            .upgrade()
            .is_some_and(|table| !matches!(table.looker().at(self.place), Seen::Gone))
    }

    fn look(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        if let Seen::Shown(reading) = table.looker().at(self.place)
            && reading.seen > self.seen
        {
            self.seen = reading.seen;
            self.cadence.note(reading.seen);
        }
    }
}
