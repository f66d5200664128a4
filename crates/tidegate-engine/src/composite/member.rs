// SPDX-License-Identifier: Apache-2.0

//! One series of a group.

use std::sync::Arc;

use super::Function;
use super::sketch::Sketch;
use super::window::{Cut, Moments, Window};
use crate::{Series, UnixNanos};

/// A series of a group, as long as the group knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberId {
    pub(super) at: u32,
    pub(super) id: u64,
}

/// The contribution of a series.
#[derive(Debug)]
pub(super) enum MemberKind {
    /// Observations, which fall into the window of the group. Deltas need not be in every push.
    Pooled {
        /// Whether it is in every push of its source.
        is_steady: bool,
    },
    /// Observations, in a window of its own.
    Own {
        /// The window that they fall into.
        window: Box<Window>,
        /// Whether it is in every push of its source.
        is_steady: bool,
    },
    /// A level, which lasts until the next one.
    Level {
        /// Its samples, where more than the newest is asked for.
        window: Option<Box<Window>>,
        /// Its identity, for messages.
        series: Option<Arc<Series>>,
    },
}

/// One series of a group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    /// The number of its source in the group.
    pub(super) source: u32,
    /// The push it was last in.
    pub(super) push: u64,
    /// When that was.
    pub(super) seen: UnixNanos,
    pub(super) newest: UnixNanos,
    /// Its latest points were refused because of their times: its value is stale.
    pub(super) is_stalled: bool,
    /// When another process than before last reported its level as this series; 0: never.
    pub(super) interleaved: UnixNanos,
    kind: MemberKind,
    level: Option<f64>,
}

/// The value of a series.
#[derive(Debug)]
pub(super) struct Reduced {
    pub(super) value: Option<f64>,
    /// Whether there is an observation in the window, or a level.
    pub(super) any: bool,
}

impl Member {
    pub(super) fn new(id: u64, source: u32, kind: MemberKind) -> Self {
        Self {
            id,
            source,
            push: 0,
            seen: 0,
            newest: 0,
            is_stalled: false,
            interleaved: 0,
            kind,
            level: None,
        }
    }

    pub(super) fn is_level(&self) -> bool {
        matches!(self.kind, MemberKind::Level { .. })
    }

    /// Whether it is stale when its living source leaves it out.
    pub(super) fn can_be_omitted(&self) -> bool {
        match self.kind {
            MemberKind::Pooled { is_steady } | MemberKind::Own { is_steady, .. } => is_steady,
            MemberKind::Level { .. } => true,
        }
    }

    /// The window of its own.
    pub(super) fn window(&mut self) -> Option<&mut Window> {
        match &mut self.kind {
            MemberKind::Pooled { .. } => None,
            MemberKind::Own { window, .. } => Some(window),
            MemberKind::Level { window, .. } => window.as_deref_mut(),
        }
    }

    /// The bytes that the sketches of its own window have allocated.
    pub(super) fn bytes_of_sketches(&self) -> usize {
        match &self.kind {
            MemberKind::Pooled { .. } => 0,
            MemberKind::Own { window, .. } => window.bytes_of_sketches(),
            MemberKind::Level { window, .. } => {
                window.as_ref().map_or(0, |window| window.bytes_of_sketches())
            }
        }
    }

    /// Its level is the newest of these samples.
    pub(super) fn level(&mut self, now: UnixNanos, samples: &Moments) {
        self.level = Some(samples.last);
        self.newest = now;
        if let Some(window) = self.window() {
            window.add(now, samples);
        }
    }

    /// Its samples in the window that ends at `now`; without any, the level that it keeps.
    pub(super) fn samples(&mut self, is_sketched: bool, now: UnixNanos) -> (Moments, Option<Sketch>) {
        let level = self.level;
        let kept = || level.map_or(Moments::NONE, Moments::of);
        let (moments, mut sketch) = match self.window() {
            Some(window) => (window.read(now), is_sketched.then(|| window.distribution(now))),
            None => (kept(), is_sketched.then(Sketch::default)),
        };
        if moments.count > 0.0 && sketch.as_ref().is_none_or(|sketch| !sketch.is_empty()) {
            return (moments, sketch);
        }
        if let (Some(sketch), Some(level)) = (&mut sketch, level) {
            sketch.add(level, 1.0);
        }
        (kept(), sketch)
    }

    /// Its value.
    pub(super) fn reduce(&mut self, function: Function, cut: Cut, now: UnixNanos) -> Reduced {
        let (is_level, level) = (self.is_level(), self.level);
        if let (true, Function::Last) = (is_level, function) {
            return Reduced {
                value: level,
                any: level.is_some(),
            };
        }
        let is_sketched = matches!(function, Function::Quantile(_));
        let (moments, sketch) = self.samples(is_sketched, now);
        let value = match function {
            Function::Quantile(rank) => sketch
                .and_then(|sketch| sketch.quantile(rank))
                .map(|value| moments.bound(value)),
            function => reduce(function, &moments, cut.covered_s(now)),
        };
        let any = moments.count > 0.0;
        let idle = (function.is_additive() && !is_level && !any).then_some(0.0);
        Reduced {
            value: value.or(idle),
            any,
        }
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> Option<String> {
        let MemberKind::Level {
            series: Some(series), ..
        } = &self.kind
        else {
            return None;
        };
        let all = series.resource.attributes.merge(&series.attributes);
        let text = format!("{}{{{all}}}", series.metric.name);
        /// Enough bytes to distinguish two series.
        const MOST: usize = 200;
        Some(match text.char_indices().nth(MOST) {
            Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
            None => text,
        })
    }
}

/// The value of a function; `None` without values. Quantiles come from the distribution, not from moments.
pub(super) fn reduce(function: Function, moments: &Moments, covered_s: f64) -> Option<f64> {
    if moments.count == 0.0 {
        return None;
    }
    Some(match function {
        Function::Min => moments.min,
        Function::Max => moments.max,
        Function::Avg => moments.sum / moments.count,
        Function::Sum => moments.sum,
        Function::Count => moments.count,
        Function::Rate => moments.sum / covered_s,
        Function::Last => moments.last,
        Function::Quantile(_) => return None,
    })
}
