// SPDX-License-Identifier: Apache-2.0

//! Liveness of sources of points (OTLP resources, scrape targets, remote writers).
//!
//! A source of points has no connection that could end. It lives by its own [`Cadence`]. A target also reports itself:
//! `up` is 0 after a failed scrape, and `up` ends when the target leaves discovery. A source whose receiver sees it live and
//! die, such as a directory of cells, lives by the [`Lease`] of that receiver. It sends only changes, so its silence means
//! that nothing has changed.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::budget::{Budget, Reservation};
use crate::cadence::{Cadence, PUSH_NS, patience_ns};
use crate::chunks::lock;
use crate::{Attributes, Lease, UnixNanos};

/// The longest attributes that a source keeps as its name, in bytes.
const MAX_NAME_BYTES: usize = 4 << 10;

/// A series that this many pushes of its living source have omitted is stale.
const LEFT_OUT: u64 = 3;

/// The state that a source reports of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ReportedState {
    /// It lives by its cadence.
    Running,
    /// Its last scrape failed.
    Down,
    /// It has left discovery.
    Left,
}

/// A source of points.
#[derive(Debug)]
pub(super) struct PointSource {
    cadence: Mutex<Cadence>,
    /// Copies of the cadence's results, which are read without its lock.
    term: AtomicU64,
    interval: AtomicU64,
    began: AtomicU64,
    touched: AtomicU64,
    pushes: AtomicU64,
    standing: AtomicU8,
    /// The time at which its standing changed.
    changed: AtomicU64,
    /// The lease of the receiver that sent its latest points. `None`: it lives by its cadence.
    lease: Mutex<Option<Arc<Lease>>>,
    /// `None`: it has no attributes, they are too long, or the budget has no room for them.
    name: Option<SourceName>,
}

/// The attributes of a source, for explanations.
#[derive(Debug)]
struct SourceName {
    attributes: Attributes,
    /// For their text.
    _reservation: Reservation,
}

impl PointSource {
    /// `term`: a configured lease; without, it is learnt from the cadence.
    pub(super) fn new(term: Option<Duration>) -> Self {
        let cadence = Cadence::with_lease(term);
        Self {
            term: AtomicU64::new(cadence.lease_ns()),
            cadence: Mutex::new(cadence),
            interval: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            began: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            standing: AtomicU8::new(ReportedState::Running as u8),
            changed: AtomicU64::new(0),
            lease: Mutex::default(),
            name: None,
        }
    }

    /// Keeps the attributes of its resource, if the budget has room for them.
    pub(super) fn named(self, attributes: &Attributes, budget: &Arc<Budget>) -> Self {
        let bytes = attributes.bytes();
        let is_kept = bytes > 0 && bytes <= MAX_NAME_BYTES && !budget.is_too_long(bytes);
        let reservation = is_kept.then(|| Reservation::new(budget, bytes, 0)).flatten();
        let name = reservation.map(|reservation| SourceName {
            attributes: attributes.clone(),
            _reservation: reservation,
        });
        Self { name, ..self }
    }

    /// The attributes of its resource, if they are known.
    pub(super) fn attributes(&self) -> Option<&Attributes> {
        self.name.as_ref().map(|name| &name.attributes)
    }

    /// It was heard of. Gives the number of the push.
    pub(super) fn touch(&self, now: UnixNanos) -> u64 {
        let began = self.began.load(Relaxed);
        if began == 0 || now >= began.saturating_add(PUSH_NS) {
            self.begin_push(now);
        }
        self.touched.fetch_max(now, Relaxed);
        self.pushes.load(Relaxed)
    }

    #[cold]
    fn begin_push(&self, now: UnixNanos) {
        let mut cadence = lock(&self.cadence);
        let touched = self.touched.load(Relaxed);
        if touched != 0 {
            cadence.note(touched);
        }
        if cadence.note(now) {
            self.interval.store(cadence.longest_ns(), Relaxed);
            self.term.store(cadence.lease_ns(), Relaxed);
            self.pushes.fetch_add(1, Relaxed);
            self.began.store(cadence.began(), Relaxed);
        }
    }

    /// From now on it lives by this lease; `None`: by its cadence.
    pub(super) fn follow(&self, lease: Option<&Arc<Lease>>) {
        let mut known = lock(&self.lease);
        let is_known = match (known.as_ref(), lease) {
            (None, None) => true,
            (Some(known), Some(lease)) => Arc::ptr_eq(known, lease),
            _ => false,
        };
        if !is_known {
            *known = lease.cloned();
        }
    }

    /// What its receiver knows of it, if the receiver sees it live and die.
    fn by_lease<T>(&self, ask: impl FnOnce(&Lease) -> T) -> Option<T> {
        lock(&self.lease).as_deref().map(ask)
    }

    /// Notes that it sent a value, in any standing.
    pub(super) fn revive(&self, now: UnixNanos) {
        if self.reported_state() != ReportedState::Running {
            self.stand(ReportedState::Running, now);
        }
    }

    /// It said how it is, or its receiver did.
    pub(super) fn stand(&self, standing: ReportedState, now: UnixNanos) {
        if self.reported_state() != standing {
            self.standing.store(standing as u8, Relaxed);
            self.changed.store(now, Relaxed);
        }
    }

    pub(super) fn reported_state(&self) -> ReportedState {
        match self.standing.load(Relaxed) {
            1 => ReportedState::Down,
            2 => ReportedState::Left,
            _ => ReportedState::Running,
        }
    }

    /// When it last sent something.
    pub(super) fn touched(&self) -> UnixNanos {
        self.touched.load(Relaxed)
    }

    /// When it was last known to be alive.
    fn last_alive(&self) -> UnixNanos {
        self.by_lease(Lease::touched).unwrap_or_else(|| self.touched())
    }

    /// The number of pushes that have ended at `now`.
    fn whole_pushes(&self, now: UnixNanos) -> u64 {
        let began = self.began.load(Relaxed);
        let is_going_on = now < began.saturating_add(PUSH_NS);
        self.pushes.load(Relaxed).saturating_sub(u64::from(is_going_on))
    }

    /// Whether a series that was last seen then, in the push of this number, has been omitted from several since. Where
    /// one report comes in several pushes (remote write by shards), they count as one.
    fn has_omitted(&self, push: u64, seen: UnixNanos, now: UnixNanos) -> bool {
        let is_long = now.saturating_sub(seen) >= patience_ns(self.interval.load(Relaxed));
        let has_omitted = is_long && self.whole_pushes(now) >= push.saturating_add(LEFT_OUT);
        // With a lease, it sends only what has changed.
        has_omitted && self.by_lease(|_| ()).is_none()
    }

    fn is_alive(&self, now: UnixNanos) -> bool {
        let by_lease = self.by_lease(|lease| lease.is_alive(now));
        let is_due =
            by_lease.unwrap_or_else(|| now.saturating_sub(self.touched()) <= self.term.load(Relaxed));
        is_due && self.reported_state() == ReportedState::Running
    }
}

/// The handle by which a group reads the liveness of a source.
#[derive(Clone, Debug)]
pub(super) enum Liveness {
    /// A source of events, whose receiver sees it come and go.
    Events(Arc<Lease>),
    /// A series of this very process; it ends when it is dropped.
    Feed(Arc<Lease>),
    /// A source of points.
    Points(Arc<PointSource>),
}

impl Liveness {
    /// A number that is the same for the same source.
    pub(super) fn address(&self) -> usize {
        match self {
            Self::Events(lease) | Self::Feed(lease) => Arc::as_ptr(lease).addr(),
            Self::Points(source) => Arc::as_ptr(source).addr(),
        }
    }

    /// The lease of one report, in nanoseconds; `u64::MAX` where the receiver sees the source end.
    pub(super) fn lease_ns(&self) -> u64 {
        match self {
            Self::Events(_) | Self::Feed(_) => u64::MAX,
            Self::Points(source) => source.term.load(Relaxed),
        }
    }

    /// Whether it counts as alive.
    pub(super) fn is_alive(&self, now: UnixNanos) -> bool {
        match self {
            Self::Events(lease) | Self::Feed(lease) => lease.is_alive(now),
            Self::Points(source) => source.is_alive(now),
        }
    }

    /// Whether it has gone permanently, and is no longer expected.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Events(lease) | Self::Feed(lease) => lease.is_ended(),
            Self::Points(source) => {
                source.reported_state() == ReportedState::Left
                    || source.by_lease(Lease::is_ended) == Some(true)
            }
        }
    }

    /// Whether it is a target that has left discovery.
    pub(super) fn has_left(&self) -> bool {
        matches!(self, Self::Points(source) if source.reported_state() == ReportedState::Left)
    }

    /// Whether it is a target whose last scrape failed.
    pub(super) fn is_down(&self) -> bool {
        matches!(self, Self::Points(source) if source.reported_state() == ReportedState::Down)
    }

    /// The time of its last report; of a target that is down, that of its first failed scrape.
    pub(super) fn silent_since(&self) -> UnixNanos {
        match self {
            Self::Events(lease) | Self::Feed(lease) => lease.touched(),
            Self::Points(source) if self.is_down() => source.changed.load(Relaxed),
            Self::Points(source) => source.last_alive(),
        }
    }

    /// Whether its series that ended at `time` ended because a scrape failed, or because its processes died.
    pub(super) fn failed_at(&self, time: UnixNanos) -> bool {
        /// A target's markers and its `up` may come in two requests.
        const APART_NS: u64 = 10_000_000_000;
        let is_near = |at: UnixNanos| at.abs_diff(time) <= APART_NS;
        match self {
            Self::Events(_) | Self::Feed(_) => false,
            Self::Points(source) => {
                // The ends may come late, because pipelines have refused them.
                let is_since = |at: UnixNanos| time.saturating_add(APART_NS) >= at;
                let has_died = source.by_lease(|lease| lease.is_dead() && is_since(lease.touched()));
                let is_down = source.reported_state() == ReportedState::Down;
                has_died == Some(true) || (is_down && is_near(source.changed.load(Relaxed)))
            }
        }
    }

    /// Whether it has been silent for so long that it is no longer tracked.
    pub(super) fn is_forgotten(&self, now: UnixNanos, memory_ns: u64) -> bool {
        match self {
            Self::Events(lease) => now.saturating_sub(lease.touched()) > memory_ns,
            Self::Feed(_) => false,
            Self::Points(source) => now.saturating_sub(source.last_alive()) > memory_ns,
        }
    }

    /// When something it measured was last lost on the way; 0: never.
    pub(super) fn lost_at(&self) -> UnixNanos {
        match self {
            Self::Events(lease) | Self::Feed(lease) => lease.lost_at(),
            Self::Points(_) => 0,
        }
    }

    /// Whether a series that was last seen then, in the push of this number, has been omitted from several since.
    pub(super) fn has_omitted(&self, push: u64, seen: UnixNanos, now: UnixNanos) -> bool {
        match self {
            Self::Events(_) | Self::Feed(_) => false,
            Self::Points(source) => source.has_omitted(push, seen, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    #[test]
    fn the_lease_follows_the_cadence_once_three_pushes_were_seen() {
        let source = PointSource::new(None);
        let alive_for = |from: u64| {
            let liveness = Liveness::Points(Arc::new(PointSource::new(None)));
            assert!(!liveness.is_alive(from));
            let seconds = (0..1000).take_while(|after| source.is_alive(from + after * SECOND));
            seconds.count() as u64 - 1
        };
        source.touch(START);
        assert_eq!(alive_for(START), 90);
        source.touch(START + 60 * SECOND);
        assert_eq!(alive_for(START + 60 * SECOND), 90);
        source.touch(START + 120 * SECOND);
        assert_eq!(alive_for(START + 120 * SECOND), 150);
        // A source that returns starts a new cadence: the time of its absence does not count.
        let back = START + 1000 * SECOND;
        source.touch(back);
        assert_eq!(alive_for(back), 90);
        for second in 1..20 {
            source.touch(back + second * SECOND);
        }
        assert_eq!(alive_for(back + 19 * SECOND), 5, "at least");
        let fixed = PointSource::new(Some(Duration::from_secs(7)));
        for second in 0..20 {
            fixed.touch(START + second * SECOND);
        }
        let end = START + 19 * SECOND;
        assert!(fixed.is_alive(end + 7 * SECOND) && !fixed.is_alive(end + 8 * SECOND));
    }

    #[test]
    fn a_target_says_itself_how_it_is() {
        let source = Arc::new(PointSource::new(None));
        let liveness = Liveness::Points(source.clone());
        source.touch(START);
        assert!(liveness.is_alive(START));
        source.stand(ReportedState::Down, START + 1);
        assert!(!liveness.is_alive(START + 1) && !liveness.is_gone() && liveness.failed_at(START));
        source.touch(START + 2);
        assert!(
            !liveness.is_alive(START + 2),
            "a failed scrape does not show that its source is alive"
        );
        source.revive(START + 3);
        assert!(liveness.is_alive(START + 3));
        source.stand(ReportedState::Left, START + 4);
        assert!(liveness.is_gone() && liveness.has_left());
    }

    #[test]
    fn a_source_with_a_lease_lives_and_dies_as_its_receiver_says() {
        let source = Arc::new(PointSource::new(Some(Duration::from_secs(7))));
        let liveness = Liveness::Points(source.clone());
        let lease = Arc::new(Lease::new(Duration::from_secs(5), START));
        for second in 0..20 {
            source.touch(START + second * SECOND);
        }
        source.follow(Some(&lease));
        let later = START + 600 * SECOND;
        lease.touch(later);
        assert!(liveness.is_alive(later), "silence means that nothing has changed");
        assert!(!liveness.has_omitted(1, START, later));
        assert!(!liveness.is_forgotten(later, 300 * SECOND));
        assert!(
            !liveness.is_alive(later + 6 * SECOND),
            "the receiver does not look"
        );
        lease.suspend();
        assert!(!liveness.is_alive(later) && !liveness.is_gone());
        assert_eq!(liveness.silent_since(), later);
        assert!(liveness.is_forgotten(later + 301 * SECOND, 300 * SECOND));
        lease.touch(later + SECOND);
        assert!(liveness.is_alive(later + SECOND));
        lease.end();
        assert!(!liveness.is_alive(later + SECOND) && liveness.is_gone() && !liveness.has_left());
        // It reports by itself from now on.
        source.follow(None);
        source.touch(later + SECOND);
        assert!(liveness.is_alive(later + SECOND) && !liveness.is_gone());
    }

    proptest! {
        /// The rules, from the list of all requests.
        #[test]
        fn a_lease_matches_the_list_of_all_requests(
            gaps in prop::collection::vec(prop_oneof![1u64..1500, 900u64..80_000, 1u64..400_000], 1..60),
            later in 0u64..500_000,
        ) {
            let source = PointSource::new(None);
            let mut now = START;
            let mut pushes: Vec<u64> = Vec::new();
            let mut last = 0;
            let term = |pushes: &[u64]| match pushes.len() {
                0..3 => 90 * SECOND,
                _ => {
                    let gaps = pushes.windows(2).map(|pair| pair[1] - pair[0]);
                    let longest = gaps.rev().take(8).max().unwrap();
                    (longest / 2 * 5).max(5 * SECOND)
                }
            };
            for gap in gaps {
                now += gap * 1_000_000;
                if pushes.len() >= 3 && now - last > term(&pushes) {
                    pushes.clear();
                }
                if pushes.last().is_none_or(|began| now - began >= SECOND) {
                    pushes.push(now);
                }
                source.touch(now);
                last = now;
                let read = now + later * 1_000_000;
                prop_assert_eq!(source.is_alive(read), read - last <= term(&pushes));
            }
        }
    }
}
