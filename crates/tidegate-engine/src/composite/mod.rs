//! Composites: declared derived values over a window, readable at any instant.

use std::sync::Arc;
use std::time::Duration;

use crate::{AttributeFilter, Attributes, Grouping, Pattern, UnixNanos};

/// What a composite computes over its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The smallest value.
    Min,
    /// The mean of all values.
    Avg,
    /// The largest value.
    Max,
    /// The sum of all values.
    Sum,
    /// How many values.
    Count,
    /// The sum of all values, per second.
    Rate,
    /// The newest value.
    Last,
}

impl Function {
    /// The name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Avg => "avg",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Rate => "rate",
            Self::Last => "last",
        }
    }
}

/// A declared derived value.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Name of the composite and of the gauge it is exported as.
    pub name: Arc<str>,
    /// Free text for people.
    pub description: Arc<str>,
    /// Which metrics it looks at.
    pub metric: Pattern,
    /// Which of their points.
    pub attributes: AttributeFilter,
    /// What it computes.
    pub function: Function,
    /// Over how long.
    pub window: Duration,
    /// Attributes that make groups; `Keep` groups by all attributes of the points.
    pub grouping: Grouping,
    /// Groups beyond this many go to one with `otel.metric.overflow=true`.
    pub max_groups: usize,
    /// How long a source of points that sends nothing counts as alive. (Sources of events have leases of their own.)
    pub lease: Duration,
}

/// How far a value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There were values within the window.
    Fresh,
    /// A source is alive, but there were no values within the window.
    Idle,
    /// Every source is overdue.
    Stale,
    /// Some expected source is overdue, or a loss upstream is known within the window.
    Partial,
    /// Never seen.
    Absent,
}

impl State {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Idle => "idle",
            Self::Stale => "stale",
            Self::Partial => "partial",
            Self::Absent => "absent",
        }
    }
}

/// What a composite says about one group at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The group.
    pub attributes: Attributes,
    /// The value, where there is one: `sum`, `count` and `rate` of an idle group are 0, everything else needs values.
    pub value: Option<f64>,
    /// How many values the window holds.
    pub count: f64,
    /// Sum of the values in the window.
    pub sum: f64,
    /// Smallest value in the window.
    pub min: Option<f64>,
    /// Largest value in the window.
    pub max: Option<f64>,
    /// Newest value in the window.
    pub last: Option<f64>,
    /// The declared window.
    pub window: Duration,
    /// Since when there was no newer value; `None` when there never was one.
    pub age: Option<Duration>,
    /// How far it can be trusted.
    pub state: State,
    /// Sources that have fed this group and have not ended.
    pub sources_expected: usize,
    /// Those of them that are alive.
    pub sources_reporting: usize,
}

/// A declared derived value with its state.
#[derive(Debug)]
pub struct Composite {
    declaration: Declaration,
}

impl Composite {
    /// Without any values yet.
    pub fn new(declaration: Declaration) -> Self {
        Self { declaration }
    }

    /// What was declared.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// One answer a group, in the order in which groups came up; a single `absent` one where there are none.
    pub fn read(&self, _now: UnixNanos) -> Vec<Answer> {
        Vec::new()
    }
}
