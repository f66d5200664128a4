// SPDX-License-Identifier: Apache-2.0

//! Levels, and the leases of the runs that keep them alive.

use super::item::Item;
use super::report::MergeMode;
use super::total::ByProducer;
use crate::lease::RunLiveness;
use crate::{Number, UnixNanos, Value};

/// The lease of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunLease {
    pub(super) epoch: UnixNanos,
    pub(super) life: RunLiveness,
    /// Whether it may have levels in some series.
    pub(super) has_levels: bool,
    /// Since when its levels have been hidden; `None`: they count. Without levels, the time of the last sweep.
    pub(super) hidden_at: Option<UnixNanos>,
}

impl RunLease {
    /// The lease of a run of which nothing is known yet. A touch shows its levels.
    pub(super) fn new(epoch: UnixNanos, now: UnixNanos) -> Self {
        Self {
            epoch,
            life: RunLiveness::default(),
            has_levels: false,
            hidden_at: Some(now),
        }
    }

    pub(super) fn is_alive(&self, now: UnixNanos, term: u64) -> bool {
        self.life.is_alive(now, term)
    }
}

/// The newest, smallest, largest or mean value. Of equal ones, all replicas take the same.
pub(super) fn combine<'a>(mode: MergeMode, each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Option<Value> {
    if mode == MergeMode::Mean {
        return mean(each);
    }
    let mut best: Option<Item<'a>> = None;
    each(&mut |item| {
        if best.is_none_or(|best| is_better(mode, &item, &best)) {
            best = Some(item);
        }
    });
    best.map(|best| best.value.clone())
}

fn is_better(mode: MergeMode, item: &Item<'_>, best: &Item<'_>) -> bool {
    let less = |a: &Item<'_>, b: &Item<'_>| {
        let numbers = a.value.number().zip(b.value.number());
        numbers.is_some_and(|(a, b)| a.less(b))
    };
    match mode {
        MergeMode::Min => less(item, best),
        MergeMode::Max => less(best, item),
        _ => item.time >= best.time,
    }
}

fn mean<'a>(each: &impl Fn(&mut dyn FnMut(Item<'a>))) -> Option<Value> {
    let mut all =
        ByProducer::new(|a: (Number, u64), b: (Number, u64)| (a.0.plus(b.0), a.1.saturating_add(b.1)));
    each(&mut |item| match item.value {
        Value::Summary(summary) => all.add(item.producer, (Number::Double(summary.sum), summary.count)),
        value => {
            if let Some(number) = value.number() {
                all.add(item.producer, (number, 1));
            }
        }
    });
    let (sum, count) = all.total().filter(|(_, count)| *count > 0)?;
    Some(Value::Double(sum.as_f64() / count as f64))
}
