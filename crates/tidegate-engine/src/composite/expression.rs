// SPDX-License-Identifier: Apache-2.0

//! Composites whose value is an expression: another component computes it, and the composite tracks its sources.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::Instant;

use super::{Answer, Composite};
use crate::chunks::lock;
use crate::freshness::Freshness;
use crate::{Attributes, Reading, Series, UnixNanos, Value, clock};

/// A value that was computed so recently is read again as it is.
const RECENT_NS: u64 = 10_000_000;

/// A slower computation than this, in microseconds, does not run in readers.
const QUICK_US: u128 = 1000;

/// The expression that a composite is computed from, instead of passing data.
#[derive(Clone)]
pub struct Expression {
    /// Its declared text.
    pub text: Arc<str>,
    /// The series that it selects: their sources decide the quality of its value.
    pub selects: Arc<dyn Fn(&Series) -> bool + Send + Sync>,
}

/// By the text: it decides what is selected.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// The result of an expression.
#[derive(Clone, Debug, Default)]
pub struct Evaluated {
    /// One value a group.
    pub values: Vec<(Attributes, f64)>,
    /// The quality of the selected series, by the worst of their sources. `None`: it selects nothing.
    pub quality: Option<DataQuality>,
    /// Whether the expression itself defines the value if nothing is selected.
    pub handles_absence: bool,
    /// The living series that it does not see because others have their name and labels.
    pub collision: Option<Arc<str>>,
}

/// By bits: NaN is the same as NaN.
impl PartialEq for Evaluated {
    fn eq(&self, other: &Self) -> bool {
        let bits = |(attributes, value): &(Attributes, f64)| (attributes.clone(), value.to_bits());
        self.values.iter().map(bits).eq(other.values.iter().map(bits))
            && self.quality == other.quality
            && self.handles_absence == other.handles_absence
            && self.collision == other.collision
    }
}

/// The quality of a value: its freshness, and the number of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataQuality {
    /// Its freshness.
    pub state: Freshness,
    /// Number of expected sources.
    pub expected: usize,
    /// Number of expected sources that are alive.
    pub reporting: usize,
}

impl DataQuality {
    /// The quality of values of different sources: the worse state, and the sources of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            state: worse(self.state, other.state),
            expected: self.expected + other.expected,
            reporting: self.reporting + other.reporting,
        }
    }

    /// The quality of two views of the same sources: the worse state, and the larger number of sources.
    fn or(self, other: Self) -> Self {
        let best = if other.expected > self.expected {
            other
        } else {
            self
        };
        Self {
            state: worse(self.state, other.state),
            ..best
        }
    }
}

fn worse(one: Freshness, other: Freshness) -> Freshness {
    if severity(other) > severity(one) {
        other
    } else {
        one
    }
}

fn severity(state: Freshness) -> u8 {
    match state {
        Freshness::Fresh => 0,
        Freshness::Idle => 1,
        Freshness::Partial => 2,
        Freshness::Stale => 3,
        Freshness::Absent => 4,
    }
}

/// A number that is not finite, as PromQL writes it.
fn spelt(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

type Compute = dyn Fn(UnixNanos) -> Result<Evaluated, String> + Send + Sync;

/// The last values.
#[derive(Default)]
pub(super) struct Computed {
    compute: OnceLock<Box<Compute>>,
    /// Held while it is computed.
    running: Mutex<()>,
    last: Mutex<Last>,
}

struct Last {
    /// 0: never.
    at: UnixNanos,
    is_quick: bool,
    result: Result<Evaluated, Arc<str>>,
    /// The series that the values are shown as, with the last value of each.
    shown: HashMap<Attributes, (Arc<Series>, f64)>,
    /// The groups that there were when it gave some: of sources that are not alive there are none.
    groups: Vec<Attributes>,
}

impl Default for Last {
    fn default() -> Self {
        Self {
            at: 0,
            is_quick: false,
            result: Ok(Evaluated::default()),
            shown: HashMap::new(),
            groups: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Computed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Computed").finish_non_exhaustive()
    }
}

impl Composite {
    /// Has the expression computed by this. Once.
    pub fn computed_by(
        &self,
        compute: impl Fn(UnixNanos) -> Result<Evaluated, String> + Send + Sync + 'static,
    ) {
        let _ = self.computed.compute.set(Box::new(compute));
    }

    /// Computes the expression, even if a reader computes it at the same time. It may take long.
    pub fn compute(&self, now: UnixNanos) {
        let _running = self.begin();
        self.evaluate_now(now);
    }

    /// `None`: it is computed already.
    fn begin(&self) -> Option<MutexGuard<'_, ()>> {
        match self.computed.running.try_lock() {
            Ok(running) => Some(running),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn evaluate_now(&self, now: UnixNanos) {
        let Some(compute) = self.computed.compute.get() else {
            return;
        };
        let begun = Instant::now();
        let result = compute(now).map(|all| self.limit(all)).map_err(Arc::from);
        let is_quick = begun.elapsed().as_micros() < QUICK_US;
        let mut last = lock(&self.computed.last);
        if last.result != result {
            self.version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        (last.at, last.is_quick, last.result) = (now, is_quick, result);
        self.remember(&mut last);
    }

    /// The first groups, as far as there is memory for their text; a value that lacks groups is partial.
    fn limit(&self, mut evaluated: Evaluated) -> Evaluated {
        let max = self.declaration.max_groups;
        let rest = evaluated.values.len().saturating_sub(max);
        evaluated.values.truncate(max);
        let (budget, before, mut text) = (self.room.budget(), evaluated.values.len(), 0usize);
        evaluated.values.retain(|(attributes, _)| {
            let bytes = attributes.bytes();
            let fits = !budget.is_too_long(bytes) && text.saturating_add(bytes) <= budget.max_bytes();
            text += if fits { bytes } else { 0 };
            fits
        });
        let without = before - evaluated.values.len();
        self.room.note_omitted(rest, without);
        let why = match (rest, without) {
            (0, 0) => return evaluated,
            (0, without) => format!("{without} groups are omitted: no memory is left for their attributes"),
            (rest, _) => format!("{rest} groups are omitted: `max_groups` is {max}"),
        };
        evaluated.collision.get_or_insert_with(|| why.into());
        evaluated
    }

    fn remember(&self, last: &mut Last) {
        let values = last.result.as_ref().map_or(&[][..], |result| &result.values);
        let mut shown = HashMap::with_capacity(values.len());
        for (attributes, value) in values.iter().filter(|(_, value)| value.is_finite()) {
            let known = last.shown.get(attributes).map(|(series, _)| series.clone());
            let series = known.unwrap_or_else(|| self.series(attributes.clone()));
            shown.insert(attributes.clone(), (series, *value));
        }
        if !values.is_empty() {
            last.groups = values.iter().map(|(attributes, _)| attributes.clone()).collect();
        }
        if !shown.is_empty() || self.declaration.on_stale != super::OnStale::Last {
            last.shown = shown;
        }
    }

    /// Computes the expression if that is due and no other thread does so. It may take long.
    pub fn compute_if_due(&self, now: UnixNanos) {
        if !self.is_due(now) {
            return;
        }
        let running = self.begin();
        // It may have become the past while this reader came.
        if running.is_some() && self.is_due(now) {
            self.evaluate_now(now);
        }
    }

    /// Whether the expression is computed for readers now: the last time took less than 1 ms and is 10 ms past.
    pub fn is_due(&self, now: UnixNanos) -> bool {
        if self.declaration.expression.is_none() {
            return false;
        }
        let last = lock(&self.computed.last);
        last.is_quick && now.saturating_sub(last.at) >= RECENT_NS
    }

    /// One answer for each value of the last computation. `sources`: the answer for the sources of the series.
    pub(super) fn computed(&self, sources: Option<Answer>) -> Vec<Answer> {
        let last = lock(&self.computed.last);
        let (absent, none) = (self.absent(), Evaluated::default());
        let base = sources.unwrap_or_else(|| absent.clone());
        let (evaluated, error) = match &last.result {
            Ok(evaluated) => (evaluated, None),
            Err(error) => (&none, Some(error.clone())),
        };
        let of_series = DataQuality {
            state: if base.state == Freshness::Idle {
                Freshness::Fresh
            } else {
                base.state
            },
            expected: base.sources_expected,
            reporting: base.sources_reporting,
        };
        let is_known = base.state != Freshness::Absent || base.has_left;
        let mut quality = match (is_known.then_some(of_series), evaluated.quality) {
            (Some(one), Some(other)) => one.or(other),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => DataQuality {
                state: if evaluated.handles_absence {
                    Freshness::Fresh
                } else {
                    Freshness::Absent
                },
                expected: 0,
                reporting: 0,
            },
        };
        if evaluated.collision.is_some() {
            quality.state = worse(quality.state, Freshness::Partial);
        }
        let stands_in = self.declaration.on_stale == super::OnStale::Last && quality.state.is_unusable();
        let one = |attributes: &Attributes, value: Option<f64>| Answer {
            attributes: attributes.clone(),
            value,
            count: f64::from(u8::from(value.is_some())),
            sum: value.unwrap_or_default(),
            min: value,
            max: value,
            avg: value,
            last: value,
            age: base.age,
            state: quality.state,
            sources_expected: quality.expected,
            sources_reporting: quality.reporting,
            has_left: base.has_left,
            error: error.clone(),
            collision: evaluated.collision.clone(),
            ..absent.clone()
        };
        let has_value = error.is_none() && !quality.state.is_unusable();
        let (values, kept) = (&evaluated.values, &last.shown);
        match (has_value, values.is_empty()) {
            (true, false) => {
                let shown = values.iter();
                shown
                    .map(|(attributes, value)| {
                        if value.is_finite() {
                            one(attributes, Some(*value))
                        } else {
                            Answer {
                                state: Freshness::Absent,
                                error: Some(format!("the expression gives {}", spelt(*value)).into()),
                                ..one(attributes, None)
                            }
                        }
                    })
                    .collect()
            }
            _ if stands_in && !kept.is_empty() => kept
                .iter()
                .map(|(attributes, (_, value))| one(attributes, Some(*value)))
                .collect(),
            // It selects nothing, and its sources are not to blame.
            (true, true) => vec![Answer {
                state: Freshness::Absent,
                ..one(&Attributes::default(), None)
            }],
            (false, true) if quality.state == Freshness::Stale && !last.groups.is_empty() => last
                .groups
                .iter()
                .map(|attributes| one(attributes, None))
                .collect(),
            (false, true) => vec![one(&Attributes::default(), None)],
            (false, false) => values
                .iter()
                .map(|(attributes, _)| one(attributes, None))
                .collect(),
        }
    }

    /// Shows the values as gauges.
    pub(super) fn show_computed(
        &self,
        sources: Option<Answer>,
        now: UnixNanos,
        each: &mut dyn FnMut(Reading<'_>),
    ) {
        let answers = self.computed(sources);
        let series: Vec<_> = {
            let last = lock(&self.computed.last);
            let known = answers.iter().map(|answer| {
                let (series, _) = last.shown.get(&answer.attributes)?;
                Some((series.clone(), answer.value?))
            });
            known.flatten().collect()
        };
        for (series, value) in series {
            each(Reading {
                series: &series,
                start: 0,
                time: clock::wall(now),
                seen: now,
                value: &Value::Double(value),
                exemplars: &[],
            });
        }
    }
}

#[cfg(test)]
mod tests;
