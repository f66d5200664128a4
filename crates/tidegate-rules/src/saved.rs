// SPDX-License-Identifier: Apache-2.0

//! Alerts as bytes, so that they outlast a restart.
//!
//! The bytes are: a magic text, a version, the time, the number of alerts, the alerts, and a CRC-32 of all that. Numbers
//! are little-endian; a text has its length before it.

use tidegate_promql::{Labels, Millis};

use crate::alert::{ActiveAlert, AlertState};
use crate::group::GroupState;

/// More bytes are refused.
pub const MAX_STATE_BYTES: usize = 64 << 20;

const MAGIC: &[u8; 4] = b"TGAL";

const VERSION: u8 = 1;

/// Stands for no time.
const NEVER: Millis = Millis::MIN;

/// The reason why bytes are not alerts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// There are too many bytes.
    #[error("{0} bytes of alerts: {MAX_STATE_BYTES} are allowed")]
    TooLarge(usize),
    /// They were not written by this program.
    #[error("not the alerts of rules")]
    Foreign,
    /// Another version wrote them.
    #[error("version {0} of the alerts of rules is not supported")]
    Version(u8),
    /// They are cut off or changed.
    #[error("the alerts of rules are damaged")]
    Damaged,
}

/// An alert, and where it belongs.
#[derive(Clone, Debug, PartialEq)]
struct SavedAlert {
    file: String,
    group: String,
    rule: String,
    rule_labels: Vec<(String, String)>,
    alert: ActiveAlert,
}

/// Alerts of an earlier process.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedAlerts {
    saved_at: Millis,
    alerts: Vec<SavedAlert>,
}

/// The pending and firing alerts of groups as bytes, with those of an earlier process that still wait for their series. `at`
/// is the time of the last evaluation, in milliseconds.
pub fn save<'a>(groups: impl IntoIterator<Item = &'a GroupState>, at: Millis) -> Vec<u8> {
    let (mut alerts, mut count) = (Vec::new(), 0_u32);
    for state in groups {
        let group = state.group();
        for (rule, alert, active_at) in state.lasting(at) {
            let before = alerts.len();
            for text in [&group.file, &group.name, &rule.name] {
                put_text(&mut alerts, text);
            }
            let labels = rule
                .labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            put_pairs(&mut alerts, labels);
            put_alert(&mut alerts, alert, active_at);
            if alerts.len() > MAX_STATE_BYTES - 64 {
                alerts.truncate(before);
                break;
            }
            count += 1;
        }
    }
    let mut out = Vec::with_capacity(alerts.len() + 64);
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.append(&mut alerts);
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

impl SavedAlerts {
    /// Reads what [`save`] wrote.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() > MAX_STATE_BYTES {
            return Err(StateError::TooLarge(bytes.len()));
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(StateError::Foreign)?;
        match rest.first() {
            Some(&VERSION) => {}
            Some(version) => return Err(StateError::Version(*version)),
            None => return Err(StateError::Damaged),
        }
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(StateError::Damaged)?;
        if u32::from_le_bytes(*sum) != crc32fast::hash(content) {
            return Err(StateError::Damaged);
        }
        let rest = content.get(MAGIC.len() + 1..).ok_or(StateError::Damaged)?;
        let mut input = SavedBytes { rest };
        let saved = input.all().ok_or(StateError::Damaged)?;
        if input.rest.is_empty() {
            Ok(saved)
        } else {
            Err(StateError::Damaged)
        }
    }

    /// Gives a group its alerts, before its first evaluation at `at`. They wait ten minutes for their series. The time
    /// since they were saved does not count towards `for`. Returns their number.
    pub fn restore(&mut self, group: &mut GroupState, at: Millis) -> usize {
        let (file, name) = (group.group().file.clone(), group.group().name.clone());
        let alerts = std::mem::take(&mut self.alerts).into_iter();
        let (own, others): (Vec<_>, Vec<_>) =
            alerts.partition(|saved| saved.file == file && saved.group == name);
        self.alerts = others;
        let taken = own.iter().filter(|saved| {
            let rule = (saved.rule.as_str(), saved.rule_labels.as_slice());
            group.restore(rule, &saved.alert, (self.saved_at, at))
        });
        taken.count()
    }

    /// The number of alerts that no group has taken.
    pub fn len(&self) -> usize {
        self.alerts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.alerts.is_empty()
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_pairs<'t>(out: &mut Vec<u8>, pairs: impl ExactSizeIterator<Item = (&'t str, &'t str)>) {
    let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}

fn put_alert(out: &mut Vec<u8>, alert: &ActiveAlert, active_at: Millis) {
    put_pairs(out, alert.labels.iter().map(|(name, value)| (&**name, &**value)));
    out.push(u8::from(alert.state == AlertState::Firing));
    out.extend_from_slice(&alert.value.to_bits().to_le_bytes());
    let optional = [alert.fired_at, alert.keep_firing_since];
    let times = optional.map(|time| time.unwrap_or(NEVER));
    for time in [active_at].into_iter().chain(times) {
        out.extend_from_slice(&time.to_le_bytes());
    }
}

/// Bytes not read yet.
struct SavedBytes<'b> {
    rest: &'b [u8],
}

impl SavedBytes<'_> {
    fn all(&mut self) -> Option<SavedAlerts> {
        let saved_at = self.time()??;
        let count = self.count()?;
        let mut alerts = Vec::new();
        for _ in 0..count {
            alerts.push(SavedAlert {
                file: self.text()?,
                group: self.text()?,
                rule: self.text()?,
                rule_labels: self.pairs()?,
                alert: self.alert()?,
            });
        }
        Some(SavedAlerts { saved_at, alerts })
    }

    fn alert(&mut self) -> Option<ActiveAlert> {
        let labels: Labels = self.pairs()?.into_iter().collect();
        let state = match self.array::<1>()? {
            [0] => AlertState::Pending,
            [1] => AlertState::Firing,
            _ => return None,
        };
        let value = f64::from_bits(u64::from_le_bytes(self.array()?));
        let mut alert = ActiveAlert::pending(labels, Labels::default(), value, self.time()??);
        alert.state = state;
        alert.fired_at = self.time()?;
        alert.keep_firing_since = self.time()?;
        Some(alert)
    }

    fn pairs(&mut self) -> Option<Vec<(String, String)>> {
        let count = self.count()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.text()?, self.text()?));
        }
        Some(pairs)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.count()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }

    fn count(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A time, if it is one. Differences of such times do not overflow.
    fn time(&mut self) -> Option<Option<Millis>> {
        match self.array().map(Millis::from_le_bytes)? {
            NEVER => Some(None),
            time => (time.unsigned_abs() < 1 << 60).then_some(Some(time)),
        }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }
}
