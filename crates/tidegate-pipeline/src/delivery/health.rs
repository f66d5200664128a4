// SPDX-License-Identifier: Apache-2.0

//! The standing of a destination, for the log, the health check and a gauge: the start and reason of its failure.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use crate::component::Shared;
use crate::component::graph_metrics::NO_VALUE;

/// The duration of a failure that deserves a warning. Tests of the driver can't wait a minute.
pub(super) const OUTAGE: Duration = if cfg!(test) {
    Duration::from_millis(50)
} else {
    Duration::from_mins(1)
};

/// The kind of failure of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The destination is unreachable or busy.
    Unavailable,
    /// The destination denies access: wrong or missing credentials.
    Denied,
}

impl Trouble {
    const ALL: [Self; 2] = [Self::Unavailable, Self::Denied];

    /// The `reason` label of the gauge.
    fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
        }
    }
}

/// The standing of one destination.
pub(super) struct DestinationHealth {
    component: Arc<str>,
    /// The address without secrets; empty if the exporter has none.
    pub(super) endpoint: String,
    shared: Arc<Shared>,
    /// The duration after which a failure is an outage.
    outage: Duration,
    /// Whether there is a failure to end, so that success takes no lock.
    is_failing: AtomicBool,
    /// Whether the destination is no longer shown. It changes under the lock of `failing`.
    has_left: AtomicBool,
    failing: Mutex<Option<Failing>>,
    gauges: OnceLock<[metrics::Gauge; 2]>,
}

struct Failing {
    trouble: Trouble,
    since: Instant,
    began: SystemTime,
    failures: u32,
    /// Whether the warning is logged.
    is_logged: bool,
    why: String,
}

/// An outage that deserves a warning, or the end of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) lasts: Duration,
    /// The outcome of the last attempt.
    pub(super) why: String,
}

impl DestinationHealth {
    pub(super) fn new(component: Arc<str>, endpoint: String, shared: Arc<Shared>, outage: Duration) -> Self {
        Self {
            component,
            endpoint,
            shared,
            outage,
            is_failing: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            failing: Mutex::default(),
            gauges: OnceLock::new(),
        }
    }

    /// Records a failed attempt that will be repeated or was denied. One failure proves little, so the health
    /// check names the destination from the second failure in a row.
    pub(super) fn failed(&self, now: Instant, trouble: Trouble, why: &str) {
        const SHOWN_FROM: u32 = 2;
        let mut failing = self.lock();
        let failing = failing.get_or_insert_with(|| Failing {
            trouble,
            since: now,
            began: SystemTime::now(),
            failures: 0,
            is_logged: false,
            why: String::new(),
        });
        self.is_failing.store(true, Relaxed);
        failing.trouble = failing.trouble.max(trouble);
        failing.failures = failing.failures.saturating_add(1);
        why.clone_into(&mut failing.why);
        if failing.failures >= SHOWN_FROM || failing.trouble == Trouble::Denied {
            self.show(Some(failing));
        }
    }

    /// Records a success. Returns the outage that it ends, if a warning was logged.
    pub(super) fn delivered(&self, now: Instant) -> Option<Outage> {
        self.end(now, Trouble::Denied)
    }

    /// Records an answer that refuses some data, which proves that the peer is reachable.
    pub(super) fn answered(&self, now: Instant) -> Option<Outage> {
        self.end(now, Trouble::Unavailable)
    }

    /// Ends a failure of kind `worst` or a milder kind.
    fn end(&self, now: Instant, worst: Trouble) -> Option<Outage> {
        if !self.is_failing.load(Relaxed) {
            return None;
        }
        let mut failing = self.lock();
        let ended = failing.take_if(|failing| failing.trouble <= worst)?;
        self.is_failing.store(false, Relaxed);
        self.show(None);
        ended.is_logged.then(|| ended.outage(now))
    }

    /// Returns an outage that deserves a warning now. A peer that denies access has its own log line.
    pub(super) fn overdue(&self, now: Instant) -> Option<Outage> {
        let mut failing = self.lock();
        let failing = failing.as_mut().filter(|failing| failing.may_be_outage())?;
        let due = now.saturating_duration_since(failing.since) >= self.outage;
        due.then(|| {
            failing.is_logged = true;
            failing.outage(now)
        })
    }

    /// The time of the next call of [`Self::overdue`].
    pub(super) fn due(&self) -> Option<Instant> {
        let failing = self.lock();
        let unlogged = failing.as_ref().filter(|failing| failing.may_be_outage())?;
        Some(unlogged.since + self.outage)
    }

    /// Whether the warning is logged. Later failures are not logged then.
    pub(super) fn is_logged(&self) -> bool {
        self.lock().as_ref().is_some_and(|failing| failing.is_logged)
    }

    fn describe(&self, failing: &Failing) -> String {
        let since = humantime::format_rfc3339_seconds(failing.began);
        let (endpoint, why) = (&self.endpoint, &failing.why);
        let to = if endpoint.is_empty() { "" } else { " to " };
        match failing.trouble {
            Trouble::Unavailable => format!("sending{to}{endpoint} fails since {since}: {why}"),
            Trouble::Denied => format!("access{to}{endpoint} is denied since {since}: {why}"),
        }
    }

    /// Ends the standing, although requests in progress continue. A new destination may have the name from now on,
    /// so nothing is shown under it later, not even at the drop.
    pub(super) fn leave(&self) {
        let failing = self.lock();
        if self.has_left.swap(true, Relaxed) {
            return;
        }
        if failing.is_some() {
            self.shared.health.trouble(&self.component, None);
        }
        if self.gauges.get().is_some() {
            self.set(|_| NO_VALUE);
        }
    }

    /// Shows a failure, or that there is none. The caller holds the lock of `failing`.
    fn show(&self, failing: Option<&Failing>) {
        if self.has_left.load(Relaxed) {
            return;
        }
        let shown = failing.map(|failing| self.describe(failing));
        self.shared.health.trouble(&self.component, shown);
        let trouble = failing.map(|failing| failing.trouble);
        self.set(|reason| f64::from(u8::from(Some(reason) == trouble)));
    }

    fn set(&self, value: impl Fn(Trouble) -> f64) {
        let make = |reason: Trouble| {
            let component = self.component.to_string();
            metrics::gauge!("tidegate_exporter_failing", "component" => component, "reason" => reason.name())
        };
        let gauges = self.gauges.get_or_init(|| Trouble::ALL.map(make));
        for (reason, gauge) in Trouble::ALL.into_iter().zip(gauges) {
            gauge.set(value(reason));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock()
    }
}

impl Failing {
    /// Whether it may become an outage without a warning so far.
    fn may_be_outage(&self) -> bool {
        self.trouble == Trouble::Unavailable && !self.is_logged
    }

    fn outage(&self, now: Instant) -> Outage {
        Outage {
            lasts: now.saturating_duration_since(self.since),
            why: self.why.clone(),
        }
    }
}

impl Drop for DestinationHealth {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shared: &Arc<Shared>) -> DestinationHealth {
        let (component, endpoint) = ("exporters::otlp".into(), "http://a:4317".into());
        DestinationHealth::new(component, endpoint, shared.clone(), Duration::from_mins(1))
    }

    fn health() -> (DestinationHealth, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (of(&shared), shared)
    }

    #[test]
    fn an_outage_of_a_minute_makes_one_warning_and_one_line_on_recovery() {
        let (standing, shared) = health();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!((standing.delivered(start), standing.due()), (None, None));
        standing.failed(start, Trouble::Unavailable, "refused");
        assert!(shared.health.troubles().is_empty(), "one failure proves little");
        standing.failed(at(5), Trouble::Unavailable, "refused again");
        let shown = shared.health.troubles()["exporters::otlp"].clone();
        assert!(
            shown.starts_with("sending to http://a:4317 fails since 2"),
            "{shown}"
        );
        assert!(shown.ends_with("Z: refused again"), "{shown}");
        assert_eq!((standing.overdue(at(59)), standing.due()), (None, Some(at(60))));
        let outage = |seconds: u64| Outage {
            lasts: Duration::from_secs(seconds),
            why: "refused again".to_owned(),
        };
        assert_eq!(standing.overdue(at(60)), Some(outage(60)));
        assert_eq!((standing.overdue(at(61)), standing.due()), (None, None));
        assert_eq!(standing.delivered(at(90)), Some(outage(90)));
        assert!(shared.health.troubles().is_empty());
        assert_eq!(standing.delivered(at(91)), None);
    }

    #[test]
    fn denied_access_is_shown_at_once_and_until_something_is_taken() {
        let (standing, shared) = health();
        let now = Instant::now();
        standing.failed(now, Trouble::Denied, "401");
        standing.failed(now, Trouble::Unavailable, "401");
        let later = now + Duration::from_hours(1);
        assert_eq!(
            (standing.due(), standing.overdue(later)),
            (None, None),
            "not down"
        );
        let shown = shared.health.troubles()["exporters::otlp"].clone();
        assert!(
            shown.starts_with("access to http://a:4317 is denied since"),
            "{shown}"
        );
        standing.answered(now);
        assert_eq!(shared.health.troubles().len(), 1, "a refusal proves nothing");
        standing.delivered(now);
        assert!(shared.health.troubles().is_empty());
        standing.failed(now, Trouble::Denied, "401");
        drop(standing);
        assert!(shared.health.troubles().is_empty());
    }

    #[test]
    fn a_destination_that_has_left_does_not_touch_what_its_successor_shows() {
        let (old, shared) = health();
        let now = Instant::now();
        old.failed(now, Trouble::Denied, "old");
        old.leave();
        assert!(shared.health.troubles().is_empty(), "gone at once");
        old.failed(now, Trouble::Denied, "old");
        assert!(shared.health.troubles().is_empty(), "and stays gone");
        let new = of(&shared);
        new.failed(now, Trouble::Denied, "new");
        old.delivered(now);
        drop(old);
        let troubles = shared.health.troubles();
        assert!(troubles["exporters::otlp"].ends_with("new"), "{troubles:?}");
    }
}
