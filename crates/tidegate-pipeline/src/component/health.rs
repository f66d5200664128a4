// SPDX-License-Identifier: Apache-2.0

//! The health of the gateway: its phase, the troubles of components, and why readers must wait.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;

/// The interval between two looks of a read that lasts.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a read fails although all components may be read again.
const LAPSED: &str = "a component was not ready during the read: try again";

/// A component that other gateways have too, and whose values may be older than theirs.
#[async_trait]
pub trait Confirm: Debug + Send + Sync {
    /// Waits until its values are those of this moment or later. `false`: it can't tell in time.
    async fn confirm(&self) -> bool;
}

/// The health of the gateway.
#[derive(Debug, Default)]
pub struct Health {
    phase: AtomicU8,
    troubles: Mutex<BTreeMap<String, String>>,
    holds: Mutex<Holds>,
    /// The components of the configuration that do not run since a failed reload.
    lacking: Mutex<Option<String>>,
    /// The components whose values readers wait for.
    confirms: Mutex<BTreeMap<String, Arc<dyn Confirm>>>,
}

/// Why components must not be read.
#[derive(Debug, Default)]
struct Holds {
    /// By component: the time from which on it must not be read, and why.
    by_component: BTreeMap<String, (Instant, &'static str)>,
    /// The number of ended times in which some component must not be read.
    lapses: u64,
}

impl Holds {
    /// Sets or removes the hold of a component.
    fn set(&mut self, component: &str, hold: Option<(Instant, &'static str)>) {
        let before = match hold {
            Some(hold) => self.by_component.insert(component.to_owned(), hold),
            None => self.by_component.remove(component),
        };
        let has_lapsed = before.is_some_and(|(from, _)| from <= Instant::now());
        self.lapses += u64::from(has_lapsed);
    }

    fn unready(&self) -> Option<String> {
        let now = Instant::now();
        let mut holds = self.by_component.iter();
        let first = holds.find(|(_, (from, _))| *from <= now);
        first.map(|(component, (_, why))| format!("{component}: {why}"))
    }

    /// The time until which the values of this moment may be shown. `None`: they do not become too old.
    fn shown_until(&self) -> Option<Instant> {
        self.by_component.values().map(|(from, _)| *from).min()
    }
}

/// A read of values since its begin. A reader gives the values only if [`Health::check_read`] allows it after they are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadToken {
    lapses: u64,
    shown_until: Option<Instant>,
}

impl ReadToken {
    /// Whether the values of the begin of the read are too old now. Newer ones may be there.
    pub fn is_outdated(self) -> bool {
        self.shown_until.is_some_and(|until| until < Instant::now())
    }
}

/// A phase in the lifecycle of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The components start.
    Starting,
    /// All components run.
    Ready,
    /// The components stop.
    Stopping,
}

impl Health {
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Sets the problem of a component that can't work although the gateway runs. `None` clears it.
    pub fn trouble(&self, component: &str, what: Option<String>) {
        let mut troubles = self.troubles.lock();
        match what {
            Some(what) => drop(troubles.insert(component.to_owned(), what)),
            None => drop(troubles.remove(component)),
        }
    }

    /// The problems of components that can't work, by component.
    pub fn troubles(&self) -> BTreeMap<String, String> {
        self.troubles.lock().clone()
    }

    /// Sets why a component must not be read yet although the gateway runs. `None`: it may be read.
    pub fn hold(&self, component: &str, why: Option<&'static str>) {
        let hold = why.map(|why| (Instant::now(), why));
        self.holds.lock().set(component, hold);
    }

    /// The same from a time on, unless the component says something else before. So a process that was suspended is not
    /// read as if no time had passed.
    pub fn hold_from(&self, component: &str, why: &'static str, from: Instant) {
        self.holds.lock().set(component, Some((from, why)));
    }

    /// Sets the names of components that a failed reload has stopped, and that could not be started again. The gateway is not
    /// ready then, but its values may be read. `None`: there are none.
    pub fn lack(&self, components: Option<String>) {
        *self.lacking.lock() = components;
    }

    /// The names of components that do not run since a failed reload.
    pub fn lacking(&self) -> Option<String> {
        self.lacking.lock().clone()
    }

    /// What runs after a reload that was refused.
    pub fn after_refusal(&self) -> String {
        match self.lacking() {
            None => "the old one runs on".to_owned(),
            Some(components) => format!("the old one runs on without {components}"),
        }
    }

    /// Why the gateway is not ready although it runs: `receivers::partials: catching up`. `None`: all components run and may
    /// be read.
    pub fn unready(&self) -> Option<String> {
        let held = self.holds.lock().unready();
        held.or_else(|| Some(format!("{}: not restored after a failed reload", self.lacking()?)))
    }

    /// Makes readers wait until a component confirms its values. `None`: they need not wait.
    pub fn confirm_by(&self, component: &str, confirm: Option<Arc<dyn Confirm>>) {
        let mut confirms = self.confirms.lock();
        match confirm {
            Some(confirm) => drop(confirms.insert(component.to_owned(), confirm)),
            None => drop(confirms.remove(component)),
        }
    }

    /// Begins a read of the values of this moment.
    ///
    /// # Errors
    /// A component must not be read now ([`Self::hold`]).
    pub fn begin_read(&self) -> Result<ReadToken, String> {
        let holds = self.holds.lock();
        match holds.unready() {
            Some(why) => Err(why),
            None => Ok(ReadToken {
                lapses: holds.lapses,
                shown_until: holds.shown_until(),
            }),
        }
    }

    /// Begins a read of values that all components have confirmed. All of them are asked at once, so a reader waits for the
    /// slowest one.
    ///
    /// # Errors
    /// A component must not be read now ([`Self::hold`]), or does not confirm its values.
    pub async fn begin_confirmed_read(&self) -> Result<ReadToken, String> {
        let read = self.begin_read()?;
        let confirms = self.confirms.lock().clone();
        if confirms.is_empty() {
            return Ok(read);
        }
        if let Some(component) = first_unconfirmed(&confirms).await {
            return Err(format!("{component}: the store does not confirm the values"));
        }
        // The values are read after the wait.
        self.begin_read()
    }

    /// Checks that all components could be read at each moment since the begin of a read. Otherwise a value of the read may be
    /// of a moment at which a component was not ready, even if all are ready again.
    ///
    /// # Errors
    /// The values must not be given.
    pub fn check_read(&self, read: ReadToken) -> Result<(), String> {
        let holds = self.holds.lock();
        match holds.unready() {
            Some(why) => Err(why),
            None if holds.lapses != read.lapses => Err(LAPSED.to_owned()),
            None => Ok(()),
        }
    }

    /// Waits until [`Self::check_read`] fails.
    pub async fn until_lapse(&self, read: ReadToken) {
        while self.check_read(read).is_ok() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether all components run and may be read.
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready && self.unready().is_none()
    }

    /// Whether the gateway has started and its values may be read. Components that a failed reload has stopped do not matter.
    pub fn is_readable(&self) -> bool {
        self.phase() == Phase::Ready && self.begin_read().is_ok()
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }
}

/// Waits until a component can't confirm its values, and gives its name. `None`: all have confirmed them.
async fn first_unconfirmed(confirms: &BTreeMap<String, Arc<dyn Confirm>>) -> Option<&str> {
    let asked = confirms.iter();
    let mut waits: Vec<_> = asked
        .map(|(component, confirm)| (component.as_str(), confirm.confirm()))
        .collect();
    poll_fn(|cx| {
        let mut refused = None;
        waits.retain_mut(|(component, wait)| {
            let confirmed = wait.as_mut().poll(cx);
            if confirmed == Poll::Ready(false) {
                refused = refused.or(Some(*component));
            }
            confirmed.is_pending()
        });
        match refused {
            None if !waits.is_empty() => Poll::Pending,
            refused => Poll::Ready(refused),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;
    use tokio::time::timeout;

    use super::*;

    /// Confirms its values when all others are asked too.
    #[derive(Debug)]
    struct Together(Barrier);

    #[async_trait]
    impl Confirm for Together {
        async fn confirm(&self) -> bool {
            self.0.wait().await;
            true
        }
    }

    /// Never confirms its values: it says so at once, or waits forever.
    #[derive(Debug)]
    struct Unconfirmed {
        waits: bool,
    }

    #[async_trait]
    impl Confirm for Unconfirmed {
        async fn confirm(&self) -> bool {
            if self.waits {
                std::future::pending::<()>().await;
            }
            false
        }
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_all_components_at_the_same_time() {
        let (health, all) = (Health::default(), Arc::new(Together(Barrier::new(3))));
        for component in ["a", "b", "c"] {
            health.confirm_by(component, Some(all.clone()));
        }
        let read = timeout(PATIENCE, health.begin_confirmed_read()).await;
        assert!(read.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_refused_as_soon_as_one_component_does_not_confirm() {
        let health = Health::default();
        for (component, waits) in [("a", true), ("b", false), ("c", true)] {
            health.confirm_by(component, Some(Arc::new(Unconfirmed { waits })));
        }
        let read = timeout(PATIENCE, health.begin_confirmed_read()).await;
        let expected = "b: the store does not confirm the values";
        assert_eq!(read.unwrap().unwrap_err(), expected);
    }

    #[test]
    fn values_are_readable_while_a_component_lacks_and_not_while_one_holds() {
        let health = Health::default();
        health.lack(Some("receivers::otlp".to_owned()));
        assert!(!health.is_readable(), "the gateway starts");
        health.enter(Phase::Ready);
        assert!(health.is_readable() && !health.is_ready());
        health.hold("receivers::partials", Some("stale"));
        assert!(!health.is_readable());
        health.hold("receivers::partials", None);
        health.enter(Phase::Stopping);
        assert!(!health.is_readable());
    }

    #[test]
    fn a_component_that_reports_nothing_more_is_unready_from_then_on() {
        let (health, now) = (Health::default(), Instant::now());
        health.enter(Phase::Ready);
        let shown_until = || health.begin_read().unwrap().shown_until;
        assert_eq!(shown_until(), None);
        let later = now + Duration::from_secs(600);
        health.hold_from("a", "stale", later);
        assert!(health.is_ready() && health.unready().is_none());
        health.hold_from("b", "stale", later + Duration::from_secs(1));
        assert_eq!(shown_until(), Some(later));
        health.hold("b", None);
        health.hold_from("a", "stale", now);
        assert_eq!(health.unready().as_deref(), Some("a: stale"));
        assert!(!health.is_ready());
        health.hold("a", None);
        assert!(health.is_ready());
    }

    #[test]
    fn a_gateway_without_a_component_is_unready_and_may_be_read() {
        let health = Health::default();
        health.enter(Phase::Ready);
        health.lack(Some("receivers::a, receivers::b".to_owned()));
        let expected = "receivers::a, receivers::b: not restored after a failed reload";
        assert_eq!(health.unready().as_deref(), Some(expected));
        assert!(!health.is_ready() && health.begin_read().is_ok());
        let expected = "the old one runs on without receivers::a, receivers::b";
        assert_eq!(health.after_refusal(), expected);
        health.lack(None);
        assert!(health.is_ready());
        assert_eq!(health.after_refusal(), "the old one runs on");
    }

    #[test]
    fn a_read_fails_if_a_component_was_not_ready_at_any_moment_of_it() {
        let health = Health::default();
        let later = Instant::now() + Duration::from_secs(600);
        let read = health.begin_read().unwrap();
        // A component that is ready all the time.
        health.hold_from("a", "stale", later);
        health.hold_from("a", "stale", later + Duration::from_secs(1));
        health.hold("b", None);
        assert_eq!(health.check_read(read), Ok(()));
        health.hold("b", Some("catching up"));
        assert_eq!(health.check_read(read), Err("b: catching up".to_owned()));
        assert_eq!(health.begin_read().unwrap_err(), "b: catching up");
        health.hold("b", None);
        assert_eq!(health.check_read(read), Err(LAPSED.to_owned()));
        let read = health.begin_read().unwrap();
        assert_eq!(health.check_read(read), Ok(()), "it began after that");
        // A process that was suspended, and reports late.
        health.hold_from("a", "stale", Instant::now());
        health.hold_from("a", "stale", later);
        assert_eq!(health.check_read(read), Err(LAPSED.to_owned()));
    }

    #[test]
    fn values_of_the_begin_of_a_read_become_too_old() {
        let health = Health::default();
        assert!(!health.begin_read().unwrap().is_outdated());
        let later = Instant::now() + Duration::from_secs(600);
        health.hold_from("a", "stale", later);
        assert!(!health.begin_read().unwrap().is_outdated());
        let before = Instant::now().checked_sub(Duration::from_nanos(1));
        let read = ReadToken {
            lapses: 0,
            shown_until: before,
        };
        assert!(read.is_outdated());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_lasts_ends_when_a_component_is_not_ready_for_a_moment() {
        let health = Health::default();
        let read = health.begin_read().unwrap();
        let mut lapse = Box::pin(health.until_lapse(read));
        assert!(timeout(PATIENCE, &mut lapse).await.is_err());
        health.hold("a", Some("stale"));
        health.hold("a", None);
        timeout(PATIENCE, lapse).await.unwrap();
    }
}
