// SPDX-License-Identifier: Apache-2.0

//! The health of the gateway: its phase, the troubles of components, and why readers must wait.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::Poll;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;

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
    /// Why components must not be read, and from when on.
    unready: Mutex<BTreeMap<String, (Instant, &'static str)>>,
    /// The components whose values readers wait for.
    confirms: Mutex<BTreeMap<String, Arc<dyn Confirm>>>,
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
        match why {
            Some(why) => self.hold_from(component, why, Instant::now()),
            None => drop(self.unready.lock().remove(component)),
        }
    }

    /// The same from a time on, unless the component says something else before. So a process that was suspended is not
    /// read as if no time had passed.
    pub fn hold_from(&self, component: &str, why: &'static str, from: Instant) {
        self.unready.lock().insert(component.to_owned(), (from, why));
    }

    /// Why some component must not be read yet: `receivers::partials: catching up`. `None`: all may be read.
    pub fn unready(&self) -> Option<String> {
        let (unready, now) = (self.unready.lock(), Instant::now());
        let first = unready.iter().find(|(_, (from, _))| *from <= now);
        first.map(|(component, (_, why))| format!("{component}: {why}"))
    }

    /// Makes readers wait until a component confirms its values. `None`: they need not wait.
    pub fn confirm_by(&self, component: &str, confirm: Option<Arc<dyn Confirm>>) {
        let mut confirms = self.confirms.lock();
        match confirm {
            Some(confirm) => drop(confirms.insert(component.to_owned(), confirm)),
            None => drop(confirms.remove(component)),
        }
    }

    /// Why a reader gets no values now: a component is not ready ([`Self::unready`]) or does not confirm them. `None`: it
    /// gets those of this moment or later. All components are asked at once, so a reader waits for the slowest one.
    pub async fn refusal(&self) -> Option<String> {
        if let Some(why) = self.unready() {
            return Some(why);
        }
        let confirms = self.confirms.lock().clone();
        if confirms.is_empty() {
            return None;
        }
        if let Some(component) = first_unconfirmed(&confirms).await {
            return Some(format!("{component}: the store does not confirm the values"));
        }
        // A component may have become unready during the wait.
        self.unready()
    }

    /// The time until which the values of this moment may be shown. `None`: they do not become too old.
    pub fn shown_until(&self) -> Option<Instant> {
        self.unready.lock().values().map(|(from, _)| *from).min()
    }

    /// Whether all components run and may be read.
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready && self.unready().is_none()
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
    use std::time::Duration;

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
        assert_eq!(timeout(PATIENCE, health.refusal()).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_refused_as_soon_as_one_component_does_not_confirm() {
        let health = Health::default();
        for (component, waits) in [("a", true), ("b", false), ("c", true)] {
            health.confirm_by(component, Some(Arc::new(Unconfirmed { waits })));
        }
        let refusal = timeout(PATIENCE, health.refusal()).await.unwrap();
        let expected = "b: the store does not confirm the values";
        assert_eq!(refusal.as_deref(), Some(expected));
    }

    #[test]
    fn a_component_that_reports_nothing_more_is_unready_from_then_on() {
        let (health, now) = (Health::default(), Instant::now());
        health.enter(Phase::Ready);
        assert_eq!(health.shown_until(), None);
        let later = now + Duration::from_secs(600);
        health.hold_from("a", "stale", later);
        assert!(health.is_ready() && health.unready().is_none());
        health.hold_from("b", "stale", later + Duration::from_secs(1));
        assert_eq!(health.shown_until(), Some(later));
        health.hold("b", None);
        health.hold_from("a", "stale", now);
        assert_eq!(health.unready().as_deref(), Some("a: stale"));
        assert!(!health.is_ready());
        health.hold("a", None);
        assert!(health.is_ready());
    }
}
