// SPDX-License-Identifier: Apache-2.0

//! An alert and its states.

use std::fmt;

use tidegate_promql::{Labels, Millis};

use crate::file::AlertTerms;

/// A resolved alert is kept so long, in milliseconds, so that it is sent again.
pub const RESOLVED_RETENTION: Millis = 15 * 60_000;

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// Its series has gone.
    Inactive,
    /// Its series is there, for a shorter time than `for`.
    Pending,
    /// It fires.
    Firing,
}

impl fmt::Display for AlertState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        })
    }
}

/// An alert of one series of a rule. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveAlert {
    /// Its state. An inactive alert has fired before: it is resolved.
    pub state: AlertState,
    /// Its labels, with `alertname`.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// The value of its series at the last evaluation that had it.
    pub value: f64,
    /// When its series appeared.
    pub active_at: Millis,
    /// When it began to fire.
    pub fired_at: Option<Millis>,
    /// When it stopped to fire.
    pub resolved_at: Option<Millis>,
    /// Since when it fires without its series, by `keep_firing_for`.
    pub keep_firing_since: Option<Millis>,
    /// When it was last sent.
    pub last_sent_at: Option<Millis>,
    /// Until when a receiver may take it for firing without hearing of it again.
    pub valid_until: Option<Millis>,
}

/// What an evaluation says about the series of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
    /// Its sources are silent.
    Unknown,
}

impl ActiveAlert {
    /// A pending alert.
    pub(crate) fn pending(labels: Labels, annotations: Labels, value: f64, at: Millis) -> Self {
        Self {
            state: AlertState::Pending,
            labels,
            annotations,
            value,
            active_at: at,
            fired_at: None,
            resolved_at: None,
            keep_firing_since: None,
            last_sent_at: None,
            valid_until: None,
        }
    }

    /// Moves to the state after an evaluation. Returns whether the alert is kept.
    pub(crate) fn step(&mut self, presence: Presence, at: Millis, terms: &AlertTerms) -> bool {
        match presence {
            Presence::Present => self.keep_firing_since = None,
            Presence::Unknown if self.state != AlertState::Inactive => return true,
            Presence::Absent | Presence::Unknown => {
                if self.keeps_firing(at, terms) {
                    return true;
                }
                let is_old = |resolved_at: Millis| at - resolved_at > RESOLVED_RETENTION;
                if self.state == AlertState::Pending || self.resolved_at.is_some_and(is_old) {
                    return false;
                }
                if self.state == AlertState::Firing {
                    self.state = AlertState::Inactive;
                    self.resolved_at = Some(at);
                }
                return true;
            }
        }
        if self.state == AlertState::Pending && at - self.active_at >= terms.hold {
            self.state = AlertState::Firing;
            self.fired_at = Some(at);
        }
        true
    }

    /// Whether it fires on without its series.
    fn keeps_firing(&mut self, at: Millis, terms: &AlertTerms) -> bool {
        if self.state != AlertState::Firing || terms.keep_firing == 0 {
            return false;
        }
        let since = *self.keep_firing_since.get_or_insert(at);
        at - since < terms.keep_firing
    }

    /// Whether receivers must hear of it: it fires or was resolved, and was not sent since, or long ago.
    pub(crate) fn is_due(&self, at: Millis, resend_delay: Millis) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        let Some(sent) = self.last_sent_at else {
            return true;
        };
        self.resolved_at.is_some_and(|resolved| resolved > sent) || at - sent > resend_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Millis = 60_000;

    /// The terms of an alert that is pending for this time.
    fn terms(hold: Millis) -> AlertTerms {
        AlertTerms {
            hold,
            ..AlertTerms::default()
        }
    }

    fn pending() -> ActiveAlert {
        ActiveAlert::pending(Labels::default(), Labels::default(), 1.0, 0)
    }

    #[test]
    fn firing_and_resolved_alerts_are_due_again_after_the_delay() {
        let (mut alert, terms) = (pending(), terms(0));
        assert!(!alert.is_due(0, MINUTE), "it is pending");
        alert.step(Presence::Present, 0, &terms);
        assert!(alert.is_due(0, MINUTE));
        alert.last_sent_at = Some(0);
        assert!(!alert.is_due(MINUTE, MINUTE));
        assert!(alert.is_due(MINUTE + 1, MINUTE));
        alert.last_sent_at = Some(MINUTE + 1);
        alert.step(Presence::Absent, MINUTE + 2, &terms);
        assert_eq!(alert.state, AlertState::Inactive);
        assert!(alert.is_due(MINUTE + 2, MINUTE), "the end is sent at once");
        alert.last_sent_at = Some(MINUTE + 2);
        assert!(!alert.is_due(2 * MINUTE + 2, MINUTE));
        assert!(alert.is_due(2 * MINUTE + 3, MINUTE));
    }

    #[test]
    fn an_alert_of_silent_sources_stays_as_it_is() {
        let terms = terms(MINUTE);
        let mut alert = pending();
        assert!(alert.step(Presence::Unknown, 2 * MINUTE, &terms));
        assert_eq!(alert.state, AlertState::Pending, "only its series makes it fire");
        assert!(!alert.step(Presence::Absent, 3 * MINUTE, &terms), "it has ended");
        let mut alert = pending();
        alert.step(Presence::Present, MINUTE, &terms);
        assert!(alert.step(Presence::Unknown, 60 * MINUTE, &terms));
        assert_eq!(alert.state, AlertState::Firing);
        assert_eq!(alert.resolved_at, None);
    }
}
