// SPDX-License-Identifier: Apache-2.0

//! Rules: the selection of a table's input, and the output series made of it.

use std::sync::Arc;

use crate::grouping::overflow_attributes;
use crate::{
    AttributeFilter, Attributes, Data, EventKind, Grouping, Instrument, Metric, Pattern, Series, Source,
    Temporality,
};

/// Bounds of histograms that declare none: those of the OpenTelemetry SDKs.
pub const DEFAULT_BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0,
];

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A measurement before any aggregation.
    Event,
    /// A point of a sum.
    Sum,
    /// A point of a gauge.
    Gauge,
    /// A point of a histogram.
    Histogram,
    /// A point of an exponential histogram.
    ExponentialHistogram,
    /// A point of a summary.
    Summary,
}

impl Input {
    fn of(data: Data) -> Self {
        match data {
            Data::Gauge => Self::Gauge,
            Data::Sum { .. } => Self::Sum,
            Data::Histogram { .. } => Self::Histogram,
            Data::ExponentialHistogram { .. } => Self::ExponentialHistogram,
            Data::Summary => Self::Summary,
        }
    }
}

/// The value of a group of gauges: one, or a function, of the newest values of its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GaugePolicy {
    /// The newest.
    #[default]
    Last,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
    Mean,
    /// The sum.
    Sum,
}

/// One way from input series to output series.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The names of the metrics.
    pub name: Pattern,
    /// The filter of their points, by point attributes or else resource attributes.
    pub attributes: AttributeFilter,
    /// Which inputs; `None` = events and the points that are what `instrument` makes. A histogram rule that names
    /// `Gauge` takes each gauge point as an observation.
    pub inputs: Option<Vec<Input>>,
    /// Name of the output metric; `None` = as the input's.
    pub output: Option<Arc<str>>,
    /// Description of the output metric; `None` = as the first input's.
    pub description: Option<Arc<str>>,
    /// Unit of the output metric; `None` = as the input's.
    pub unit: Option<Arc<str>>,
    /// `Metric.metadata` of the output.
    pub metadata: Attributes,
    /// The instrument of the output; `None` = as the input is.
    pub instrument: Option<Instrument>,
    /// The attributes that make the groups.
    pub grouping: Grouping,
    /// Bounds of histograms made; `None` = the first input's for histogram points, `DEFAULT_BOUNDS` for observations.
    pub bounds: Option<Arc<[f64]>>,
    /// Keeps histograms with different bounds apart, with an attribute for the bounds, instead of converting them. Not
    /// together with `bounds`.
    pub apart: bool,
    /// The policy by which gauges of one group combine.
    pub gauge: GaugePolicy,
    /// Shows the outputs of events as 0 as soon as their source is known, before the first event.
    pub zero: bool,
    /// Each stream's points are shown as they came (cumulative ones may fall back), deltas that can't fall added up.
    pub verbatim: bool,
}

impl Rule {
    /// Takes the metrics that `name` selects, as they are, without grouping.
    pub fn new(name: Pattern) -> Self {
        Self {
            name,
            attributes: AttributeFilter::default(),
            inputs: None,
            output: None,
            description: None,
            unit: None,
            metadata: Attributes::default(),
            instrument: None,
            grouping: Grouping::Keep,
            bounds: None,
            apart: false,
            gauge: GaugePolicy::Last,
            zero: false,
            verbatim: false,
        }
    }

    /// Takes everything but deltas that may fall, and shows the newest state of each series.
    pub fn newest() -> Self {
        Self {
            verbatim: true,
            ..Self::new(Pattern::Glob("*".into()))
        }
    }

    /// The output for the points of `series`, if the rule takes them. `bounds`: those of a histogram.
    pub(crate) fn of_points(&self, series: &Series, bounds: Option<&[f64]>) -> Option<Output> {
        let sets = [&series.attributes, &series.resource.attributes];
        if !self.name.matches(&series.metric.name) || !self.attributes.matches(&sets) {
            return None;
        }
        let (op, data) = self.point_op(series.metric.data)?;
        let (resource, mut attributes) = self.grouping.apply(&series.resource, &series.attributes);
        if let Some(bounds) = bounds.filter(|_| self.apart && op == Op::Merge) {
            attributes = attributes.merge(&bounds_attribute(bounds));
        }
        let scope = match self.grouping {
            Grouping::Keep => series.scope.clone(),
            Grouping::By(_) | Grouping::Without(_) => Arc::default(),
        };
        let metric = self.metric(&series.metric, data);
        Some(Output {
            op,
            series: Series {
                resource,
                scope,
                metric,
                attributes,
            },
        })
    }

    fn point_op(&self, data: Data) -> Option<(Op, Data)> {
        let asked = self
            .inputs
            .as_ref()
            .map(|inputs| inputs.contains(&Input::of(data)));
        let temporality = Temporality::Cumulative;
        let explicit = Data::Histogram { temporality };
        if asked == Some(false) {
            return None;
        }
        if self.verbatim && data.temporality() == Temporality::Cumulative {
            return Some((Op::Keep, data));
        }
        // No declaration says to add these up, and their start is unknown.
        if self.verbatim && data.is_falling_delta() {
            return None;
        }
        let merged = match data {
            Data::ExponentialHistogram { .. } if self.bounds.is_none() => {
                Data::ExponentialHistogram { temporality }
            }
            _ => explicit,
        };
        match (self.instrument, data) {
            (None | Some(Instrument::Counter), Data::Sum { monotonic: true, .. }) => Some((
                Op::Add,
                Data::Sum {
                    monotonic: true,
                    temporality,
                },
            )),
            (Some(Instrument::UpDownCounter), Data::Sum { monotonic: true, .. }) => Some((
                Op::Add,
                Data::Sum {
                    monotonic: false,
                    temporality,
                },
            )),
            (None | Some(Instrument::UpDownCounter), Data::Sum { .. }) => Some((
                Op::UpDown,
                Data::Sum {
                    monotonic: false,
                    temporality,
                },
            )),
            (None | Some(Instrument::Gauge), Data::Gauge) => Some((self.gauge_op(), Data::Gauge)),
            (
                None | Some(Instrument::Histogram),
                Data::Histogram { .. } | Data::ExponentialHistogram { .. },
            ) => Some((Op::Merge, merged)),
            (Some(Instrument::Histogram), Data::Gauge) if asked == Some(true) => {
                Some((Op::Observe, explicit))
            }
            (None, Data::Summary) => Some((Op::Merge, Data::Summary)),
            _ => None,
        }
    }

    fn gauge_op(&self) -> Op {
        match self.gauge {
            GaugePolicy::Last => Op::Last,
            _ => Op::Member,
        }
    }

    /// The output for the events of a kind, if the rule takes them.
    pub(crate) fn of_events(&self, source: &Source, kind: &EventKind) -> Option<Output> {
        let taken = self
            .inputs
            .as_ref()
            .is_none_or(|inputs| inputs.contains(&Input::Event));
        let sets = [&kind.attributes, &source.attributes, &source.resource.attributes];
        if !taken || !self.name.matches(&kind.name) || !self.attributes.matches(&sets) {
            return None;
        }
        let temporality = Temporality::Cumulative;
        let (op, data) = match self.instrument.unwrap_or(kind.instrument) {
            Instrument::Counter => (
                Op::Add,
                Data::Sum {
                    monotonic: true,
                    temporality,
                },
            ),
            Instrument::UpDownCounter if kind.instrument == Instrument::Counter => (
                Op::Add,
                Data::Sum {
                    monotonic: false,
                    temporality,
                },
            ),
            Instrument::UpDownCounter => (
                Op::UpDown,
                Data::Sum {
                    monotonic: false,
                    temporality,
                },
            ),
            Instrument::Gauge => (self.gauge_op(), Data::Gauge),
            Instrument::Histogram => (Op::Observe, Data::Histogram { temporality }),
        };
        let own = source.attributes.merge(&kind.attributes);
        let (resource, attributes) = self.grouping.apply(&source.resource, &own);
        let scope = match self.grouping {
            Grouping::Keep => source.scope.clone(),
            Grouping::By(_) | Grouping::Without(_) => Arc::default(),
        };
        let input = Metric {
            name: kind.name.clone(),
            description: kind.description.clone(),
            unit: kind.unit.clone(),
            data,
            metadata: Attributes::default(),
        };
        let metric = self.metric(&Arc::new(input), data);
        Some(Output {
            op,
            series: Series {
                resource,
                scope,
                metric,
                attributes,
            },
        })
    }

    /// Whether the rule could have made this output.
    pub(crate) fn could_make(&self, output: &Series) -> bool {
        let metric = &output.metric;
        let named = match &self.output {
            Some(name) => *name == metric.name,
            None => self.name.matches(&metric.name),
        };
        named
            && match (self.instrument, metric.data) {
                (None, _) => true,
                (Some(Instrument::Counter), Data::Sum { monotonic, .. }) => monotonic,
                (Some(Instrument::UpDownCounter), Data::Sum { monotonic, .. }) => !monotonic,
                (Some(Instrument::Gauge), data) => data == Data::Gauge,
                (Some(Instrument::Histogram), data) => {
                    matches!(data, Data::Histogram { .. } | Data::ExponentialHistogram { .. })
                }
                _ => false,
            }
    }

    /// Whether another rule makes the same series with the same values. Descriptions may differ.
    pub(crate) fn equals_except_text(&self, other: &Self) -> bool {
        let description = self.description.clone();
        *self
            == Self {
                description,
                ..other.clone()
            }
    }

    fn metric(&self, input: &Arc<Metric>, data: Data) -> Arc<Metric> {
        let plain = self.output.is_none() && self.description.is_none() && self.unit.is_none();
        if plain && self.metadata.is_empty() && input.data == data {
            return input.clone();
        }
        Arc::new(Metric {
            name: self.output.clone().unwrap_or_else(|| input.name.clone()),
            description: self
                .description
                .clone()
                .unwrap_or_else(|| input.description.clone()),
            unit: self.unit.clone().unwrap_or_else(|| input.unit.clone()),
            data,
            metadata: input.metadata.merge(&self.metadata),
        })
    }
}

/// Gives a saved series the description of the rules that could make it. If they do not all have the same one, it stays.
pub(crate) fn describe(series: &mut Series, rules: &[Rule]) {
    let could = rules.iter().filter(|rule| rule.could_make(series));
    let mut texts = could.map(|rule| rule.description.as_ref());
    let first = texts.next().flatten();
    if let Some(text) = first
        && texts.all(|other| other == Some(text))
        && *text != series.metric.description
    {
        Arc::make_mut(&mut series.metric).description = text.clone();
    }
}

/// The operation of an input on an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The newest point as it is.
    Keep,
    /// Adds increases; they stay when the source leaves.
    Add,
    /// Adds differences; they are taken back when the source leaves.
    UpDown,
    /// Replaces by time.
    Last,
    /// Is one of the values that the group combines.
    Member,
    /// Adds the increases of a histogram, or of a summary's sum and count.
    Merge,
    /// Adds observations.
    Observe,
}

/// An output series and how the input changes it.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) op: Op,
    pub(crate) series: Series,
}

impl Output {
    /// The overflow series, for input without room: the convention of the OpenTelemetry SDKs.
    pub(crate) fn overflow(mut self) -> Self {
        self.series.resource = Arc::default();
        self.series.scope = Arc::default();
        self.series.attributes = overflow_attributes();
        self.op = match (self.op, self.series.metric.data) {
            (Op::Keep, Data::Sum { monotonic: true, .. }) => Op::Add,
            (Op::Keep, Data::Sum { .. }) => Op::UpDown,
            (Op::Keep, Data::Gauge) => Op::Last,
            (Op::Keep, Data::Histogram { .. } | Data::ExponentialHistogram { .. } | Data::Summary) => {
                Op::Merge
            }
            (op, _) => op,
        };
        self
    }
}

/// The attribute that distinguishes histograms of unequal bounds: `tidegate.bounds` = the bounds, as text.
fn bounds_attribute(bounds: &[f64]) -> Attributes {
    let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
    [("tidegate.bounds", bounds.join(","))].into_iter().collect()
}
