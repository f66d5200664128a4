// SPDX-License-Identifier: Apache-2.0

//! Options of the `aggregate` processor, and the rules they declare.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{BadPattern, GaugePolicy, Input, Instrument, Limits, Pattern, Rule};

use super::nixl;
use crate::component::future::FutureConfig;
use crate::component::patterns::{check_filter, check_pattern, filter, grouping};
use crate::config::{ByteSize, Decode, Node, Ordered, Problems, TypeHelp, YamlType};

crate::options! {
    /// Options of the `aggregate` processor.
    pub struct AggregateConfig {
        /// A built-in set (`nixl`), or a list of rules and built-in sets. Data that no rule matches passes
        /// unchanged.
        pub rules: Rules = required,
        /// Interval at which the processor pushes its state. Readers of its table see the state at any time.
        pub interval: Duration = Duration::from_secs(1),
        /// Most output series. Further series of a metric share one with `otel.metric.overflow=true`.
        pub max_series: usize = Limits::default().series,
        /// Most output series of one metric. Unset: no limit besides `max_series`.
        pub max_series_per_metric: Option<usize> = None,
        /// Most input streams of one source that get their own series. Unset: as many as take half of
        /// `max_bytes`, by the mean size of the streams of all sources.
        pub max_streams_per_source: Option<usize> = None,
        /// Most memory of series and streams, estimated. New series beyond it share one series, as beyond
        /// `max_series`. Unset: a quarter of the memory limit.
        pub max_bytes: Option<ByteSize> = None,
        /// Tolerance for points that arrive out of order. An older point counts if the newest point of its stream
        /// is at most this much newer.
        pub lateness: Duration = Limits::default().lateness,
        /// Treatment of points whose time is too far ahead of the gateway's clock.
        pub future: FutureConfig = FutureConfig::default(),
        /// Time that a series remains after the end of its last source.
        #[alias = "lease"]
        pub expiry: Duration = Limits::default().expiry,
        /// Id of the storage extension that preserves the state across a restart. Senders get their
        /// acknowledgement when the data is on disk. `service::extensions` must list it.
        pub storage: Option<String> = None,
        /// Time after the start. A warning in the log and in `tidegate explain` then names every rule that has
        /// matched no data.
        pub warn_after: Duration = Duration::from_secs(60),
    }
    check = AggregateConfig::check
}

crate::options! {
    /// One rule: its input and its output.
    pub struct RuleConfig {
        /// Input of the rule.
        pub r#match: MatchConfig = required,
        /// Name of the output metric. Unset: that of the input.
        pub name: Option<String> = None,
        /// Description of the output metric. Unset: that of the input.
        pub description: Option<String> = None,
        /// Unit of the output metric. Unset: that of the input.
        pub unit: Option<String> = None,
        /// Instrument of the output metric. Unset: that of the input.
        pub instrument: Option<InstrumentName> = None,
        /// Attributes that define the groups. All other attributes are aggregated away.
        pub by: Option<Vec<String>> = None,
        /// Attributes to aggregate away. Attributes of the resource are possible.
        pub without: Option<Vec<String>> = None,
        /// Upper bounds of a histogram's buckets, in ascending order, without infinity.
        pub bounds: Option<Vec<f64>> = None,
        /// Treatment of histograms of one group with different bounds.
        pub unequal_bounds: UnequalBounds = UnequalBounds::Rebucket,
        /// Aggregation of the gauges of a group.
        pub aggregation: Aggregation = Aggregation::Last,
        /// Whether counters, gauges and histograms of events start at 0 as soon as their source is known.
        pub zero: bool = false,
    }
    check = RuleConfig::check
}

crate::options! {
    /// Input of a rule.
    pub struct MatchConfig {
        /// Metric name: exact, a glob (`agent_*`), or `regex:...`.
        pub name: String = required,
        /// Attributes that the point or else its resource must have. Each value is exact, a glob, or `regex:...`.
        pub attributes: Ordered<String> = Ordered::default(),
        /// Accepted types of input. Unset: events, and points of the type that the rule makes.
        pub types: Option<Vec<InputName>> = None,
    }
    check = MatchConfig::check
}

crate::choices! {
    /// The instrument of an output metric.
    pub enum InstrumentName {
        /// A sum that never falls.
        Counter = "counter",
        /// A sum that may fall.
        UpDownCounter = "up_down_counter",
        /// A current value.
        Gauge = "gauge",
        /// A distribution.
        Histogram = "histogram",
    }
}

crate::choices! {
    /// The treatment of histograms of one group with different bounds.
    pub enum UnequalBounds {
        /// They get common bounds. No running total is overstated, and totals at common bounds are exact.
        Rebucket = "rebucket",
        /// Each set of bounds gets its own series, with the attribute `tidegate.bounds`.
        #[deprecated_alias = "apart"]
        Separate = "separate",
    }
}

crate::choices! {
    /// The aggregation of the gauges of a group.
    pub enum Aggregation {
        /// The newest.
        Last = "last",
        /// The smallest.
        Min = "min",
        /// The largest.
        Max = "max",
        /// The mean.
        Mean = "mean" | "avg",
        /// The sum.
        Sum = "sum",
    }
}

crate::choices! {
    /// The type of an input.
    pub enum InputName {
        /// A single measurement, not aggregated.
        Event = "event",
        /// A point of a sum.
        Sum = "sum",
        /// A point of a gauge.
        Gauge = "gauge",
        /// A point of a histogram.
        Histogram = "histogram",
        /// A point of an exponential histogram.
        ExponentialHistogram = "exponential_histogram",
        /// A point of a summary.
        Summary = "summary",
    }
}

crate::choices! {
    /// Rules that come with the gateway.
    pub enum RuleSet {
        /// The metrics of NIXL's own Prometheus exporter, and their sums by node.
        Nixl = "nixl",
    }
}

/// A built-in set, or a list of rules and sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules(Vec<RulesItem>);

#[derive(Clone, Debug, PartialEq)]
enum RulesItem {
    Set(RuleSet),
    Rule(Box<RuleConfig>),
}

impl Decode for RulesItem {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar() {
            Some(_) => RuleSet::decode(node, cx).map(Self::Set),
            None => RuleConfig::decode(node, cx).map(|rule| Self::Rule(Box::new(rule))),
        }
    }

    fn type_help() -> TypeHelp {
        let rule = RuleConfig::type_help();
        let types = vec![RuleSet::type_help().accepts, rule.accepts.clone()];
        rule.accepting(YamlType::AnyOf(types))
    }

    fn show(&self) -> String {
        match self {
            Self::Set(set) => set.show(),
            Self::Rule(rule) => rule.show(),
        }
    }
}

impl Decode for Rules {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar() {
            Some(_) => RuleSet::decode(node, cx).map(|set| Self(vec![RulesItem::Set(set)])),
            None => Vec::decode(node, cx).map(Self),
        }
    }

    fn type_help() -> TypeHelp {
        let list = Vec::<RulesItem>::type_help();
        let types = vec![RuleSet::type_help().accepts, list.accepts.clone()];
        list.accepting(YamlType::AnyOf(types))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

impl AggregateConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.rules.0.is_empty() {
            cx.at(at.child("rules")).error("must name at least one rule");
        }
        for (key, value) in [("interval", self.interval), ("expiry", self.expiry)] {
            if value.is_zero() {
                cx.at(at.child(key)).error("must be greater than zero");
            }
        }
    }

    /// The rules in the form of the engine.
    ///
    /// # Errors
    /// A pattern of a rule is not a regular expression.
    pub fn rules(&self) -> Result<Vec<Rule>, BadPattern> {
        let mut rules = Vec::new();
        for item in &self.rules.0 {
            match item {
                RulesItem::Set(RuleSet::Nixl) => rules.extend(nixl::rules()),
                RulesItem::Rule(rule) => rules.push(rule.rule()?),
            }
        }
        Ok(rules)
    }

    /// The names of the rules, in the order of [`Self::rules`]: their places in the list of the file, as errors show them.
    pub fn rule_names(&self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (index, item) in self.rules.0.iter().enumerate() {
            match item {
                RulesItem::Set(RuleSet::Nixl) => {
                    let name: Arc<str> = format!("rules[{index}] (built-in set `nixl`)").into();
                    names.extend(nixl::rules().iter().map(|_| name.clone()));
                }
                RulesItem::Rule(rule) => names.push(match &rule.name {
                    Some(name) => format!("rules[{index}] (`{name}`)").into(),
                    None => format!("rules[{index}]").into(),
                }),
            }
        }
        names
    }

    /// The rules that the file has itself: their indexes in its list, and their indexes in [`Self::rules`]. Rules of
    /// built-in sets need not match anything.
    pub fn own_rules(&self) -> Vec<(usize, usize)> {
        let (mut own, mut at) = (Vec::new(), 0);
        for (index, item) in self.rules.0.iter().enumerate() {
            match item {
                RulesItem::Set(RuleSet::Nixl) => at += nixl::rules().len(),
                RulesItem::Rule(_) => {
                    own.push((index, at));
                    at += 1;
                }
            }
        }
        own
    }

    /// The limits of the table.
    pub fn limits(&self) -> Limits {
        Limits {
            series: self.max_series,
            series_per_metric: self.max_series_per_metric.unwrap_or(usize::MAX),
            streams_per_source: self.max_streams_per_source.unwrap_or(usize::MAX),
            bytes: self.max_bytes.map_or(usize::MAX, ByteSize::as_usize),
            lateness: self.lateness,
            future: (&self.future).into(),
            lease: Limits::default().lease.min(self.expiry),
            expiry: self.expiry,
            // Each series has at least one stream, even without aggregation.
            streams: Limits::default().streams.max(self.max_series.saturating_mul(2)),
            ..Limits::default()
        }
    }
}

impl RuleConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.by.is_some() && self.without.is_some() {
            cx.at(at.child("without"))
                .error("`by` and `without` exclude each other");
        }
        let bounds = self.bounds.as_deref().unwrap_or_default();
        let ascending = bounds.iter().zip(bounds.iter().skip(1)).all(|(a, b)| a < b);
        if !ascending || bounds.iter().any(|bound| !bound.is_finite()) {
            cx.at(at.child("bounds")).error("must be finite and ascending");
        }
        if self.bounds.is_some() && self.unequal_bounds == UnequalBounds::Separate {
            cx.at(at.child("unequal_bounds"))
                .error("can't be combined with `bounds`, which sets the same bounds for all");
        }
        if self.name.as_deref() == Some("") {
            cx.at(at.child("name")).error("must not be empty");
        }
    }

    fn rule(&self) -> Result<Rule, BadPattern> {
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        Ok(Rule {
            attributes: filter(&self.r#match.attributes)?,
            inputs: self.r#match.inputs(),
            output: text(&self.name),
            description: text(&self.description),
            unit: text(&self.unit),
            instrument: self.instrument.map(InstrumentName::instrument),
            grouping: grouping(self.by.as_deref(), self.without.as_deref()).unwrap_or_default(),
            bounds: self.bounds.as_deref().map(Arc::from),
            apart: self.unequal_bounds == UnequalBounds::Separate,
            gauge: self.aggregation.policy(),
            zero: self.zero,
            ..Rule::new(Pattern::parse(&self.r#match.name)?)
        })
    }
}

impl MatchConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_pattern(&self.name, at.child("name"), cx);
        check_filter(&self.attributes, at.child("attributes"), cx);
    }

    fn inputs(&self) -> Option<Vec<Input>> {
        let inputs = |types: &Vec<InputName>| types.iter().map(|name| name.input()).collect();
        self.types.as_ref().map(inputs)
    }
}

impl InstrumentName {
    fn instrument(self) -> Instrument {
        match self {
            Self::Counter => Instrument::Counter,
            Self::UpDownCounter => Instrument::UpDownCounter,
            Self::Gauge => Instrument::Gauge,
            Self::Histogram => Instrument::Histogram,
        }
    }
}

impl Aggregation {
    fn policy(self) -> GaugePolicy {
        match self {
            Self::Last => GaugePolicy::Last,
            Self::Min => GaugePolicy::Min,
            Self::Max => GaugePolicy::Max,
            Self::Mean => GaugePolicy::Mean,
            Self::Sum => GaugePolicy::Sum,
        }
    }
}

impl InputName {
    fn input(self) -> Input {
        match self {
            Self::Event => Input::Event,
            Self::Sum => Input::Sum,
            Self::Gauge => Input::Gauge,
            Self::Histogram => Input::Histogram,
            Self::ExponentialHistogram => Input::ExponentialHistogram,
            Self::Summary => Input::Summary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::options;
    use crate::config::parse_text;

    #[test]
    fn the_old_value_of_unequal_bounds_is_accepted_with_one_warning() {
        let mut problems = Problems::default();
        let text = "{match: {name: m}, unequal_bounds: apart}";
        let node = parse_text("a.yaml", text, &mut problems).unwrap();
        let rule = RuleConfig::decode(&node, &mut problems).unwrap();
        assert_eq!(rule.unequal_bounds, UnequalBounds::Separate);
        let warnings: Vec<_> = problems.sorted().iter().map(|p| p.message.as_str()).collect();
        assert_eq!(warnings, ["`apart` is deprecated: write `separate`"]);
    }

    #[test]
    fn rules_have_their_places_in_the_list_of_the_file() {
        let yaml = "{rules: [nixl, {match: {name: a}, name: b}, {match: {name: c}}]}";
        let config = options::<AggregateConfig>(yaml).unwrap();
        let (names, sets) = (config.rule_names(), nixl::rules().len());
        assert_eq!(names.len(), config.rules().unwrap().len());
        assert_eq!(&*names[0], "rules[0] (built-in set `nixl`)");
        assert_eq!([&*names[sets], &*names[sets + 1]], ["rules[1] (`b`)", "rules[2]"]);
        assert_eq!(config.own_rules(), [(1, sets), (2, sets + 1)]);
    }
}
