// SPDX-License-Identifier: Apache-2.0

//! The decisions about a Lease: to create it, to take or renew it, or to wait. No I/O and no clock.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

/// The durations of an election.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// A Lease that nobody has changed for this long is free.
    pub duration: Duration,
    /// A holder that can't renew it for this long no longer leads. It is shorter than `duration`, so the last leader has
    /// stopped before the next one begins.
    pub renew_deadline: Duration,
    /// The time between two attempts.
    pub retry_period: Duration,
}

impl Default for LeaseTimes {
    /// The defaults of client-go.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The longest duration of another holder that counts.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum LeaseStep {
    /// The Lease does not exist: create this one.
    Create(Value),
    /// Write this one over that of the same version.
    Update(Value),
    /// Another process holds it.
    Wait,
}

/// A process that holds a Lease or wants it.
pub(super) struct LeaseRecord {
    /// The name of this process, which no other process has.
    identity: String,
    name: String,
    duration: Duration,
    /// The last version, and when it was read first.
    observed: Option<(String, Instant)>,
    /// The holder in it.
    holder: String,
}

impl LeaseRecord {
    pub(super) fn new(identity: String, name: String, duration: Duration) -> Self {
        Self {
            identity,
            name,
            duration,
            observed: None,
            holder: String::new(),
        }
    }

    /// The holder of the version that was read last. Empty: nobody.
    pub(super) fn holder(&self) -> &str {
        &self.holder
    }

    fn is_ours(&self) -> bool {
        self.holder == self.identity
    }

    /// Takes what was read. `None`: the Lease does not exist.
    pub(super) fn read(&mut self, lease: Option<Value>, now: Instant, wall: SystemTime) -> LeaseStep {
        let Some(lease) = lease else {
            // Its holder may not know yet that it is gone.
            let seen = self
                .observed
                .as_ref()
                .map(|(_, at)| now.saturating_duration_since(*at));
            let is_held = !self.holder.is_empty() && !self.is_ours();
            if is_held && seen.is_some_and(|seen| seen < self.duration) {
                return LeaseStep::Wait;
            }
            (self.observed, self.holder) = (None, String::new());
            return LeaseStep::Create(self.taken(json!({"metadata": {"name": self.name}}), wall));
        };
        let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let observed_at = match &self.observed {
            Some((known, at)) if known == version => *at,
            _ => {
                self.observed = Some((version.to_owned(), now));
                now
            }
        };
        let spec = &lease["spec"];
        self.holder = spec["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let declared = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default());
        // A process with longer durations holds it for longer, within bounds.
        let term = declared.max(self.duration).min(MAX_DURATION);
        let is_over = now.saturating_duration_since(observed_at) >= term;
        if self.is_ours() {
            LeaseStep::Update(self.renewed(lease, wall))
        } else if self.holder.is_empty() || is_over {
            LeaseStep::Update(self.taken(lease, wall))
        } else {
            LeaseStep::Wait
        }
    }

    /// This process has written the Lease.
    pub(super) fn written(&mut self) {
        self.holder.clone_from(&self.identity);
    }

    /// The Lease without a holder, if it is that of this process.
    pub(super) fn released(&self, mut lease: Value, wall: SystemTime) -> Option<Value> {
        if lease["spec"]["holderIdentity"].as_str() != Some(&self.identity) {
            return None;
        }
        let now = micro_time(wall);
        let spec = &mut lease["spec"];
        (spec["holderIdentity"], spec["renewTime"]) = ("".into(), now.clone());
        (spec["leaseDurationSeconds"], spec["acquireTime"]) = (1.into(), now);
        Some(lease)
    }

    fn renewed(&self, mut lease: Value, wall: SystemTime) -> Value {
        let spec = &mut lease["spec"];
        spec["holderIdentity"] = self.identity.clone().into();
        spec["leaseDurationSeconds"] = self.duration.as_secs().max(1).into();
        spec["renewTime"] = micro_time(wall);
        lease
    }

    fn taken(&self, lease: Value, wall: SystemTime) -> Value {
        // The first holder does not count as a transition.
        let transitions = match lease["spec"]["leaseTransitions"].as_u64() {
            Some(before) => before.saturating_add(1),
            None => u64::from(!lease["spec"]["holderIdentity"].is_null()),
        };
        let mut lease = self.renewed(lease, wall);
        let spec = &mut lease["spec"];
        spec["acquireTime"] = micro_time(wall);
        spec["leaseTransitions"] = transitions.min(i32::MAX.unsigned_abs().into()).into();
        lease
    }
}

/// A time as a Lease has it, in microseconds.
fn micro_time(wall: SystemTime) -> Value {
    humantime::format_rfc3339_micros(wall).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn record(identity: &str) -> LeaseRecord {
        LeaseRecord::new(identity.to_owned(), "l".to_owned(), 15 * SECOND)
    }

    fn wall() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001)
    }

    fn held(version: u64, holder: &str) -> Value {
        json!({
            "metadata": {"name": "l", "resourceVersion": version.to_string(), "labels": {"a": "b"}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3, "acquireTime": "x"},
        })
    }

    #[test]
    fn a_lease_that_does_not_exist_is_created() {
        let step = record("me").read(None, Instant::now(), wall());
        let time = "2023-11-14T22:13:20.000001Z";
        let expected = json!({
            "metadata": {"name": "l"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0, "acquireTime": time, "renewTime": time},
        });
        assert_eq!(step, LeaseStep::Create(expected));
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_has_not_changed_for_its_time() {
        let (mut record, begin) = (record("me"), Instant::now());
        let mut at = |seconds, lease| record.read(Some(lease), begin + seconds * SECOND, wall());
        assert_eq!(at(0, held(1, "other")), LeaseStep::Wait);
        assert_eq!(at(14, held(1, "other")), LeaseStep::Wait);
        assert_eq!(at(15, held(2, "other")), LeaseStep::Wait, "it was renewed");
        assert_eq!(at(29, held(2, "other")), LeaseStep::Wait);
        let LeaseStep::Update(taken) = at(30, held(2, "other")) else {
            panic!("it is free")
        };
        assert_eq!(
            taken["metadata"],
            held(2, "other")["metadata"],
            "the version stays"
        );
        assert_eq!(taken["spec"]["holderIdentity"], "me");
        assert_eq!(taken["spec"]["leaseTransitions"], 4);
    }

    #[test]
    fn a_deleted_lease_is_created_when_its_holder_no_longer_leads() {
        let (mut record, begin) = (record("me"), Instant::now());
        let mut at = |seconds, lease| record.read(lease, begin + seconds * SECOND, wall());
        assert_eq!(at(0, Some(held(1, "other"))), LeaseStep::Wait);
        assert_eq!(at(14, None), LeaseStep::Wait);
        assert!(matches!(at(15, None), LeaseStep::Create(_)));
    }

    #[test]
    fn the_longer_duration_of_another_holds_for_an_hour_at_most() {
        let (mut record, begin) = (record("me"), Instant::now());
        let mut lease = held(1, "other");
        lease["spec"]["leaseDurationSeconds"] = json!(60);
        for (seconds, is_free) in [(0, false), (59, false), (60, true)] {
            let step = record.read(Some(lease.clone()), begin + seconds * SECOND, wall());
            assert_eq!(step != LeaseStep::Wait, is_free, "{seconds}");
        }
        lease["spec"]["leaseDurationSeconds"] = json!(i32::MAX);
        let step = record.read(Some(lease), begin + 3_600 * SECOND, wall());
        assert_ne!(step, LeaseStep::Wait);
    }

    #[test]
    fn a_holder_renews_and_releases_its_lease() {
        let mut record = record("me");
        let LeaseStep::Update(renewed) = record.read(Some(held(7, "me")), Instant::now(), wall()) else {
            panic!("it is ours")
        };
        assert_eq!(renewed["spec"]["leaseTransitions"], 3);
        assert_eq!(renewed["spec"]["acquireTime"], "x");
        assert_eq!(renewed["metadata"]["labels"]["a"], "b");
        let released = record.released(renewed, wall()).unwrap();
        assert_eq!(released["spec"]["holderIdentity"], "");
        assert!(record.released(held(8, "other"), wall()).is_none());
        // The next process need not wait.
        let mut other = LeaseRecord::new("other".to_owned(), "l".to_owned(), 15 * SECOND);
        assert!(matches!(
            other.read(Some(released), Instant::now(), wall()),
            LeaseStep::Update(_)
        ));
    }
}
