// SPDX-License-Identifier: Apache-2.0

//! The resources that send series: their report intervals, whether they still report, and their order.
//!
//! Two resources may have the same name and labels, most often because one has replaced the other. Readers see the
//! one that is alive. So the catalogue watches a few series of every resource. The data path records nothing: a
//! thread looks once a second.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tidegate_engine::{
    Cadence, DEFAULT_LEASE_NS, Key, Lease, LookupResult, Reading, Resource, SlotId, Table, UnixNanos, Value,
    clock, patience_ns,
};

use super::KeyMap;
use super::contests::{LastLifetime, Lifetime, Rank};
use tidegate_pipeline::component::Shared;

/// Resources whose cadence is watched. Those beyond have the default lease of 90 s.
const MOST: usize = 16_384;

/// Series of a resource that are watched: some may end or be sent seldom.
const WATCHED: usize = 4;

/// Two ticks have at least this between them, however many threads call.
const TICK_NS: u64 = 900_000_000;

/// After a pause of this length between two ticks, the activity of resources is unknown. In nanoseconds.
const BLIND_NS: u64 = 5_000_000_000;

/// A resource that is unseen for this long is removed. In nanoseconds.
const FORGET_NS: u64 = 600_000_000_000;

/// Room is made so often at most: it takes a walk over all resources.
const TIDY_NS: u64 = 60_000_000_000;

/// The times of a series' latest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time of the value, by the sender's clock.
    pub time: UnixNanos,
    /// The time of the last report, by our clock.
    pub seen: UnixNanos,
}

impl Times {
    /// The times of a reading; `None`: the series has ended.
    pub fn of(reading: &Reading<'_>) -> Option<Self> {
        (!matches!(reading.value, Value::NoRecordedValue)).then_some(Self {
            time: reading.time,
            seen: reading.seen,
        })
    }
}

/// The last report of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// When it was; 0: unknown.
    pub seen: UnixNanos,
    /// The longest silence of a resource that counts as alive, in nanoseconds.
    pub lease: u64,
    /// Whether the receiver sees that it lives or that it is dead. `None`: it lives by its reports.
    pub sight: Option<Sight>,
}

/// The state of a resource that its receiver sees live and die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It was alive when it was last seen. Its silence means that nothing has changed.
    Alive,
    /// It is dead. What the receiver repeats of it does not show that it lives.
    Dead,
    /// It is dead, and its receiver does not expect it again.
    Left,
}

impl Sight {
    fn of(lease: &Lease) -> Self {
        if lease.is_ended() {
            Self::Left
        } else if lease.is_dead() {
            Self::Dead
        } else {
            Self::Alive
        }
    }
}

impl LastReport {
    /// Whether the resource is dead, as its receiver sees it.
    pub fn is_dead(&self) -> bool {
        matches!(self.sight, Some(Sight::Dead | Sight::Left))
    }
}

/// The resources of series that have arrived in a table, with a few places of each.
#[derive(Default)]
pub struct Newcomers {
    places: Vec<(Arc<Resource>, SlotId)>,
    /// The number of series of each resource, by its address.
    counts: HashMap<usize, usize, RandomState>,
}

impl Newcomers {
    /// Counts a series of a resource.
    pub fn note(&mut self, resource: &Arc<Resource>, place: SlotId) {
        let count = self.counts.entry(Arc::as_ptr(resource).addr()).or_default();
        if *count < WATCHED {
            *count += 1;
            self.places.push((resource.clone(), place));
        }
    }
}

/// The reports of all resources of one gateway. All tables and readers share it.
#[derive(Debug, Default)]
pub struct Senders(Mutex<SenderTable>);

#[derive(Debug, Default)]
struct SenderTable {
    ticked: UnixNanos,
    /// The time of the last removal.
    tidied: UnixNanos,
    senders: KeyMap<SenderState>,
    /// The last number given. A resource gets one when it appears, and a new one when it returns or is replaced.
    numbers: u64,
    /// Resources that get another number at the next tick, by the one they have.
    replaced: BTreeMap<u64, Key>,
    /// Tables in the order in which their first series were met, by their numbers.
    tables: Vec<(Weak<Table>, u64)>,
}

#[derive(Debug)]
struct SenderState {
    /// Some of its series.
    series: Vec<(Weak<Table>, SlotId)>,
    number: u64,
    seen: UnixNanos,
    /// When it was last known to be alive: with a lease, its reports don't say so.
    alive: UnixNanos,
    /// Whether one of its series had a value at the last tick.
    has_value: bool,
    /// Whether its watched series have changed since the last tick, so that its activity is unknown.
    is_rewatched: bool,
    cadence: Cadence,
}

impl Senders {
    /// The senders of this gateway.
    pub fn of(shared: &Shared) -> Arc<Self> {
        shared.parts.get(Self::default)
    }

    fn state(&self) -> MutexGuard<'_, SenderTable> {
        self.0.lock()
    }

    /// Records the resources of series that have arrived in `table`, in their order. Hold no lock of the
    /// table.
    pub fn record_all(&self, table: &Arc<Table>, newcomers: Newcomers, now: UnixNanos) {
        self.state().number(table);
        for (resource, place) in newcomers.places {
            self.record(&resource, table, place, now);
        }
    }

    fn record(&self, resource: &Resource, table: &Arc<Table>, place: SlotId, now: UnixNanos) {
        let key = Key::of_value(resource);
        let mut state = self.state();
        if state.senders.len() >= MOST && !state.senders.contains_key(&key) {
            state.make_room(now);
        }
        let SenderTable { senders, numbers, .. } = &mut *state;
        let is_full = senders.len() >= MOST;
        match senders.get_mut(&key) {
            Some(known) => {
                known.watch(table, place);
                if !known.has_value {
                    known.update(key, false, numbers);
                }
            }
            None if is_full => {}
            None => {
                *numbers += 1;
                let times = match table.series_reader().at(place) {
                    LookupResult::Shown(reading) => Times::of(&reading),
                    LookupResult::Hidden(_) | LookupResult::Gone => None,
                };
                let seen = times.map_or(now, |times| times.seen);
                let mut cadence = Cadence::default();
                cadence.note(seen);
                let sender = SenderState {
                    series: vec![(Arc::downgrade(table), place)],
                    number: *numbers,
                    seen,
                    alive: seen,
                    has_value: times.is_some(),
                    is_rewatched: false,
                    cadence,
                };
                senders.insert(key, sender);
            }
        }
    }

    /// Looks at every resource. Call it about once a second; more calls cost nothing.
    pub fn tick(&self, now: UnixNanos) {
        let mut state = self.state();
        let passed = now.saturating_sub(state.ticked);
        if passed < TICK_NS {
            return;
        }
        let is_blind = passed > BLIND_NS;
        state.ticked = now;
        let SenderTable {
            senders,
            numbers,
            replaced,
            ..
        } = &mut *state;
        for sender in std::mem::take(replaced).into_values() {
            if let Some(known) = senders.get_mut(&sender) {
                *numbers += 1;
                known.number = *numbers;
            }
        }
        for (key, sender) in senders {
            sender.update(*key, is_blind, numbers);
        }
    }

    /// The lease of the receiver of a resource; `None`: the resource lives by its reports. Hold no lock of a table.
    pub(super) fn lease_of(&self, resource: &Resource) -> Option<Arc<Lease>> {
        let key = Key::of_value(resource);
        let state = self.state();
        state.senders.get(&key)?.lease_of(key)
    }

    /// The last report of a resource. Hold no lock of a table.
    pub fn last_report(&self, resource: &Resource) -> LastReport {
        let key = Key::of_value(resource);
        let state = self.state();
        let Some(sender) = state.senders.get(&key) else {
            return LastReport {
                seen: 0,
                lease: DEFAULT_LEASE_NS,
                sight: None,
            };
        };
        match sender.lease_of(key) {
            Some(lease) => LastReport {
                seen: lease.touched(),
                lease: lease.term_ns(),
                sight: Some(Sight::of(&lease)),
            },
            None => LastReport {
                seen: sender.seen,
                lease: sender.lease_ns(),
                sight: None,
            },
        }
    }

    /// The lifetime of a resource as a whole; `None`: no series of it has a value. Hold no lock of a table.
    pub fn lifetime_of(&self, resource: &Resource) -> LastLifetime {
        let state = self.state();
        let key = Key::of_value(resource);
        // Asked now: a series may have ended since the last tick.
        let sender = state
            .senders
            .get(&key)
            .filter(|sender| sender.latest().is_some())?;
        let tables = sender.series.iter().filter_map(|(table, _)| table.upgrade());
        let began = tables.map(|table| table.began(resource)).find(|began| *began > 0);
        let lifetime = Lifetime {
            time: clock::wall(sender.seen),
            seen: sender.seen,
            lease: sender.lease_ns(),
            began: began.unwrap_or(0),
            rank: Rank {
                resource: sender.number,
                ..Rank::default()
            },
            sender: Some(key),
        };
        Some(lifetime.by_lease(sender.lease_of(key).as_deref()))
    }

    /// The lifetime of a series of `resource` at this place of `table`, with the times of its value. Hold no lock of
    /// the table.
    pub fn lifetime(&self, resource: &Resource, times: Times, table: &Arc<Table>, place: u64) -> Lifetime {
        let sender = Key::of_value(resource);
        let (resource_number, table_number, lease) = {
            let mut state = self.state();
            let table_number = state.number(table);
            match state.senders.get_mut(&sender) {
                Some(known) => {
                    if !known.has_value {
                        known.watch(table, SlotId::from_bits(place));
                        known.is_rewatched = true;
                    }
                    (known.number, table_number, known.lease_ns())
                }
                None => (u64::MAX, table_number, DEFAULT_LEASE_NS),
            }
        };
        let lifetime = Lifetime {
            time: times.time,
            seen: times.seen,
            lease,
            began: table.began(resource),
            rank: Rank {
                resource: resource_number,
                table: table_number,
                place,
            },
            sender: Some(sender),
        };
        lifetime.by_lease(table.lease_of_key(sender).as_deref())
    }

    /// Ranks a resource after all others from the next tick on, unless it has reported since the start of its
    /// successor. Until then every reader uses the same numbers.
    pub(super) fn rank_last(&self, sender: Key, successor_began: UnixNanos) {
        let mut state = self.state();
        let SenderTable {
            senders, replaced, ..
        } = &mut *state;
        let Some(known) = senders.get(&sender) else { return };
        if known.latest().is_some_and(|times| times.time < successor_began) {
            replaced.insert(known.number, sender);
        }
    }
}

impl Lifetime {
    /// The same of a resource whose receiver keeps this lease. While it lives, its silence means that its values are as before.
    /// What the receiver repeats of a dead one does not show that it lives.
    fn by_lease(self, lease: Option<&Lease>) -> Self {
        match lease {
            Some(lease) if lease.is_dead() => Self {
                time: self.time.min(clock::wall(lease.touched())),
                seen: self.seen.min(lease.touched()),
                lease: 0,
                ..self
            },
            Some(lease) => Self {
                time: self.time.max(clock::wall(lease.touched())),
                seen: self.seen.max(lease.touched()),
                lease: lease.term_ns(),
                ..self
            },
            None => self,
        }
    }

    /// The times of a composite's group, which exists now. A copy in a later `aggregate` table comes after it.
    pub fn of_composite(now: UnixNanos, place: u64) -> Self {
        Self {
            time: clock::wall(now),
            seen: now,
            lease: DEFAULT_LEASE_NS,
            began: 0,
            rank: Rank {
                place,
                ..Rank::default()
            },
            sender: None,
        }
    }
}

impl SenderTable {
    /// The number of a table.
    fn number(&mut self, table: &Arc<Table>) -> u64 {
        let is_it = |known: &Weak<Table>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(table));
        if let Some((_, number)) = self.tables.iter().find(|(known, _)| is_it(known)) {
            return *number;
        }
        let number = self.tables.last().map_or(0, |(_, number)| number + 1);
        self.tables.retain(|(known, _)| known.strong_count() > 0);
        self.tables.push((Arc::downgrade(table), number));
        number
    }

    /// Forgets the resources that were not seen for long.
    fn make_room(&mut self, now: UnixNanos) {
        if now.saturating_sub(self.tidied) < TIDY_NS {
            return;
        }
        self.tidied = now;
        self.senders
            .retain(|_, sender| now.saturating_sub(sender.seen) < FORGET_NS);
    }
}

impl SenderState {
    /// The longest silence of a source that counts as alive, in nanoseconds. Every sweep of a table confirms the
    /// series of event sources, whatever passes.
    fn lease_ns(&self) -> u64 {
        let tables = self.series.iter().filter_map(|(table, _)| table.upgrade());
        let swept = tables.map(|table| table.confirmed_every_ns()).max().unwrap_or(0);
        self.cadence.lease_ns().max(patience_ns(swept))
    }

    /// The lease of its receiver; `None`: it lives by its reports. `resource`: the key of its resource.
    fn lease_of(&self, resource: Key) -> Option<Arc<Lease>> {
        // Its series are often in one table, which is asked once.
        let mut all = self.series.iter().enumerate();
        all.find_map(|(at, (table, _))| {
            let mut before = self.series.iter().take(at);
            let is_asked = before.any(|(other, _)| other.ptr_eq(table));
            let table = table.upgrade().filter(|_| !is_asked)?;
            table.lease_of_key(resource)
        })
    }

    /// Watches this series too, if a watched one has gone or fewer than the limit are watched.
    fn watch(&mut self, table: &Arc<Table>, place: SlotId) {
        let is_it = |(known, at): &(Weak<Table>, SlotId)| {
            std::ptr::eq(known.as_ptr(), Arc::as_ptr(table)) && *at == place
        };
        if self.series.iter().any(is_it) {
            return;
        }
        let mut keep = |is_kept: fn(&LookupResult<'_>) -> bool| {
            if self.series.len() >= WATCHED {
                self.series.retain(|(table, place)| {
                    let table = table.upgrade();
                    table.is_some_and(|table| is_kept(&table.series_reader().at(*place)))
                });
            }
        };
        keep(|seen| !matches!(seen, LookupResult::Gone));
        keep(|seen| matches!(seen, LookupResult::Shown(_)));
        if self.series.len() < WATCHED {
            self.series.push((Arc::downgrade(table), place));
        }
    }

    /// The times of its latest values; `None`: no series has a value.
    fn latest(&self) -> Option<Times> {
        let times = self.series.iter().filter_map(|(table, place)| {
            let table = table.upgrade()?;
            match table.series_reader().at(*place) {
                LookupResult::Shown(reading) => Times::of(&reading),
                LookupResult::Hidden(_) | LookupResult::Gone => None,
            }
        });
        times.reduce(|one, other| Times {
            time: one.time.max(other.time),
            seen: one.seen.max(other.seen),
        })
    }

    /// Updates the times of its last report and of its last sign of life. `resource`: the key of its resource. `is_blind`: its
    /// activity since the last tick is unknown.
    fn update(&mut self, resource: Key, is_blind: bool, numbers: &mut u64) {
        let latest = self.latest();
        let is_blind = is_blind || std::mem::take(&mut self.is_rewatched);
        self.has_value = latest.is_some();
        let Some(Times { seen, .. }) = latest else { return };
        let lease = self.lease_of(resource);
        let alive = lease.as_ref().map_or(seen, |lease| lease.touched());
        if alive > self.alive {
            let term = lease.map_or_else(|| self.lease_ns(), |lease| lease.term_ns());
            if !is_blind && alive - self.alive > term {
                // It was away, so those that lived meanwhile come first.
                *numbers += 1;
                self.number = *numbers;
            }
            self.alive = alive;
        }
        if seen > self.seen {
            self.note_report(seen, is_blind);
        }
    }

    fn note_report(&mut self, seen: UnixNanos, is_blind: bool) {
        if is_blind {
            self.cadence = Cadence::default();
        }
        self.seen = seen;
        self.cadence.note(seen);
    }
}
