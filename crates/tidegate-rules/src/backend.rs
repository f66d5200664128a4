// SPDX-License-Identifier: Apache-2.0

//! The caller's side of an evaluation: it answers queries and takes samples.

use tidegate_promql::{Instant, Labels, Millis, Query, QueryError, Sample, SampleValue};

/// Answers the queries of rules, and takes their samples.
pub trait RuleBackend {
    /// The value of a query at a time.
    ///
    /// # Errors
    /// The query has no value, or is refused. The rule keeps its state.
    fn instant(&mut self, query: &Query, at: Millis) -> Result<QueryAnswer, QueryError>;

    /// Takes the samples of a rule. The next rules of the group must see them.
    fn append(&mut self, samples: &[RuleSample]);
}

/// The answer to the query of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryAnswer {
    /// A value for each series.
    pub vector: Vec<(Labels, SampleValue)>,
    /// Whether all series that the query reads come from sources that are dead or late.
    pub stale_inputs: bool,
}

impl QueryAnswer {
    /// From the value of a query. A scalar is a series without labels.
    ///
    /// # Errors
    /// `Execution`: the value is a range or a string.
    pub fn from_instant(instant: Instant, stale_inputs: bool) -> Result<Self, QueryError> {
        let vector = match instant {
            Instant::Vector(vector) => vector,
            Instant::Scalar(value) => vec![(Labels::default(), SampleValue::Float(value))],
            Instant::Matrix(_) | Instant::String(_) => {
                let why = "rule result is not a vector or scalar";
                return Err(QueryError::Execution(why.to_owned()));
            }
        };
        Ok(Self { vector, stale_inputs })
    }
}

/// A sample that a rule writes.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSample {
    /// The labels, with the metric's name.
    pub labels: Labels,
    /// The time that the rule's query was evaluated at.
    pub time: Millis,
    /// The value; a stale marker says that the series has ended.
    pub value: SampleValue,
}

impl RuleSample {
    /// A stale marker.
    pub fn marker(labels: Labels, time: Millis) -> Self {
        let value = SampleValue::Float(f64::from_bits(Sample::STALE));
        Self { labels, time, value }
    }

    /// Whether it says that the series has ended.
    pub fn is_marker(&self) -> bool {
        let float = self.value.float();
        float.is_some_and(|value| value.to_bits() == Sample::STALE)
    }
}
