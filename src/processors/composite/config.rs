// SPDX-License-Identifier: Apache-2.0

//! Options of the `composite` processor.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Across, BadPattern, Declaration, Function, Grouping, OnStale, Pattern, Threshold};
use tidegate_promql::Query;

use super::expression;
use super::threshold::ThresholdConfig;
use crate::component::Shared;
use crate::component::future::FutureConfig;
use crate::component::patterns::{check_filter, check_pattern, filter, grouping};
use crate::config::{Node, Ordered, Problems};

/// The most ranks of one composite, which the shared page can hold.
const MAX_QUANTILES: usize = 4;

/// The length of a sub-window of a short window.
const MIN_WINDOW: Duration = Duration::from_millis(100);

crate::options! {
    /// Options of the `composite` processor.
    pub struct CompositeProcessorConfig {
        /// The composites, each with a name, a metric and a function.
        pub composites: Vec<CompositeConfig> = required,
        /// Interval at which the processor pushes composites as gauges. Readers see them at any time.
        pub interval: Duration = Duration::from_secs(1),
        /// Treatment of points whose time is too far ahead of the gateway's clock. Composites ignore refused
        /// points. These points pass on, and their sender gets no error.
        pub future: FutureConfig = FutureConfig::default(),
        /// Time after the start. A warning in the log and in `tidegate explain` then names every composite that
        /// has matched no data.
        pub warn_after: Duration = Duration::from_secs(60),
        /// Id of the storage extension that preserves the windows across a restart. The processor writes new values
        /// every second and at the stop. Unset: a restart begins empty windows. It always does so for points of gauges,
        /// and for composites with `expr` or with `across` other than `pool`.
        pub storage: Option<String> = None,
    }
    check = CompositeProcessorConfig::check
}

crate::options! {
    /// One composite.
    pub struct CompositeConfig {
        /// Name of the composite and of its gauge.
        pub name: String = required,
        /// Description for people.
        pub description: String = String::new(),
        /// Input metric: exact, a glob (`agent_*`), or `regex:...`. It can't be combined with `expr`.
        pub metric: Option<String> = None,
        /// PromQL over the live tables, instead of `metric` and `function`. It needs the `admin` extension. The
        /// processor evaluates it at each read and every `interval`, at least every 100ms.
        pub expr: Option<String> = None,
        /// Function over the window. It applies to each series, or to all observations together (`across: pool`).
        pub function: Option<FunctionName> = None,
        /// Rank of the function `quantile`, 0 to 1.
        pub quantile: Option<f64> = None,
        /// Combination of the series of a group. The default for observations (events, deltas, increments of
        /// counters and histograms) is `pool`. Gauges and `function: last` need a value.
        pub across: Option<AcrossName> = None,
        /// Rank of `across: quantile`, 0 to 1.
        pub across_quantile: Option<f64> = None,
        /// Ranks, 0 to 1, whose values are reported beside the value.
        pub quantiles: Vec<f64> = Vec::new(),
        /// Length of the window, which ends now.
        pub window: Duration = Duration::from_secs(10),
        /// Attributes that define the groups. Empty: one value over everything.
        pub by: Option<Vec<String>> = None,
        /// Attributes that do not define groups. All others do, those of the resource included.
        pub without: Option<Vec<String>> = None,
        /// Attributes that a point must have. Each value is exact, a glob, or `regex:...`.
        pub attributes: Ordered<String> = Ordered::default(),
        /// Most groups. Further groups, and those without memory, share one with `otel.metric.overflow=true`.
        /// With `expr` they are omitted, and the others are `partial`.
        pub max_groups: usize = 2000,
        /// Value of a group that is stale or absent.
        pub on_stale: OnStaleChoice = OnStaleChoice::Error,
        /// Thresholds. The processor reports each crossing.
        pub thresholds: Vec<ThresholdConfig> = Vec::new(),
        /// Time that a silent pushing source counts as alive. Unset: 90s until 3 pushes, then 2.5 of the source's
        /// own intervals, at least 5s.
        pub lease: Option<Duration> = None,
    }
    check = CompositeConfig::check
}

crate::choices! {
    /// The function of a composite.
    pub enum FunctionName {
        /// The smallest value.
        Min = "min",
        /// The mean of all values.
        Avg = "avg" | "mean",
        /// The largest value.
        Max = "max",
        /// The sum of all values.
        Sum = "sum",
        /// The number of values.
        Count = "count",
        /// The sum of all values, per second.
        Rate = "rate",
        /// The newest value.
        Last = "last",
        /// The value of a rank.
        Quantile = "quantile",
    }
}

crate::choices! {
    /// The combination of the series of a group.
    pub enum AcrossName {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        Avg = "avg" | "mean",
        /// The smallest value.
        Min = "min",
        /// The largest value.
        Max = "max",
        /// The number of series with a value.
        Count = "count",
        /// The value of a rank.
        Quantile = "quantile",
        /// All observations together in one window.
        Pool = "pool",
    }
}

crate::choices! {
    /// The value of a group that is stale or absent.
    pub enum OnStaleChoice {
        /// No value. A query that has no result because of it fails.
        Error = "error",
        /// The last value.
        Last = "last",
        /// No value. A query that has no result because of it reports so.
        Empty = "empty",
    }
}

impl CompositeProcessorConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.interval.is_zero() {
            cx.at(at.child("interval")).error("must be greater than zero");
        }
        let nodes = at.child("composites").as_list().unwrap_or_default();
        for (index, (composite, node)) in self.composites.iter().zip(nodes).enumerate() {
            let same = |other: &&CompositeConfig| other.name == composite.name;
            if self.composites.iter().take(index).any(|other| same(&other)) {
                let name = &composite.name;
                cx.at(node.child("name"))
                    .error(format!("`{name}` is declared twice"));
            }
        }
    }
}

impl CompositeConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_source(at, cx);
        check_filter(&self.attributes, at.child("attributes"), cx);
        if self.name.is_empty() {
            cx.at(at.child("name")).error("must not be empty");
        }
        if self.by.is_some() && self.without.is_some() {
            cx.at(at.child("without"))
                .error("`by` and `without` exclude each other");
        }
        let is_rank = |rank: &f64| (0.0..=1.0).contains(rank);
        let wants_rank = self.function == Some(FunctionName::Quantile);
        if wants_rank != self.quantile.is_some() {
            cx.at(at.child("quantile")).error(if wants_rank {
                "`function: quantile` needs `quantile`, for example `quantile: 0.99`"
            } else {
                "goes together with `function: quantile`"
            });
        }
        if !self.quantile.iter().all(is_rank) {
            cx.at(at.child("quantile")).error("must be between 0 and 1");
        }
        if self.function == Some(FunctionName::Last) && self.across.is_none() {
            cx.at(at.child("function")).error(
                "`function: last` needs `across`: a group can hold several series. `across: sum` is the total of the \
                 last value of each series; `avg`, `min`, `max`, `count` and `quantile` are there too. `across: pool` \
                 (events only) is the newest value of any series",
            );
        }
        if (self.across == Some(AcrossName::Quantile)) != self.across_quantile.is_some() {
            cx.at(at.child("across_quantile"))
                .error("goes together with `across: quantile`");
        }
        if !self.across_quantile.iter().all(is_rank) {
            cx.at(at.child("across_quantile"))
                .error("must be between 0 and 1");
        }
        if self.lease.is_some_and(|lease| lease.is_zero()) {
            cx.at(at.child("lease")).error("must be greater than zero");
        }
        if !self.quantiles.iter().all(is_rank) || self.quantiles.len() > MAX_QUANTILES {
            cx.at(at.child("quantiles"))
                .error(format!("must be at most {MAX_QUANTILES} ranks between 0 and 1"));
        }
        let names = self.thresholds();
        for (index, threshold) in names.iter().enumerate() {
            if names.iter().take(index).any(|other| other.name == threshold.name) {
                cx.at(at.child("thresholds"))
                    .error(format!("`{}` is declared twice", threshold.name));
            }
        }
        if self.window < MIN_WINDOW {
            cx.at(at.child("window")).error("must be at least 100ms");
        }
        if self.max_groups == 0 {
            cx.at(at.child("max_groups")).error("must be greater than zero");
        }
    }

    /// Checks for an expression, or for a metric and a function.
    fn check_source(&self, at: &Node, cx: &mut Problems) {
        if let Some(metric) = &self.metric {
            check_pattern(metric, at.child("metric"), cx);
        }
        let Some(expr) = &self.expr else {
            for (key, is_there) in [
                ("metric", self.metric.is_some()),
                ("function", self.function.is_some()),
            ] {
                if !is_there {
                    cx.at(at).error(format!("`{key}` is missing (or give an `expr`)"));
                }
            }
            return;
        };
        if let Err(error) = Query::parse(expr) {
            cx.at(at.child("expr")).error(error.to_string());
        }
        let others = [
            "metric",
            "function",
            "quantile",
            "quantiles",
            "across",
            "window",
            "by",
            "without",
            "attributes",
        ];
        for key in others.into_iter().filter(|key| at.get(key).is_some()) {
            cx.at(at.child(key)).error("can't be combined with `expr`");
        }
    }

    /// The thresholds in the form of the engine.
    pub fn thresholds(&self) -> Vec<Threshold> {
        let thresholds = self.thresholds.iter();
        thresholds.filter_map(ThresholdConfig::threshold).collect()
    }

    /// The expression.
    pub fn query(&self) -> Option<Query> {
        Query::parse(self.expr.as_ref()?).ok()
    }

    /// The declaration in the form of the engine.
    ///
    /// # Errors
    /// A pattern of `metric`, `attributes` or the names in `expr` is not a regular expression.
    pub fn declaration(&self, shared: &Shared) -> Result<Declaration, BadPattern> {
        let all_together = || Grouping::by::<&str>([]);
        let declaration = Declaration {
            name: Arc::from(&*self.name),
            description: Arc::from(&*self.description),
            metric: Pattern::parse(self.metric.as_deref().unwrap_or_default())?,
            attributes: filter(&self.attributes)?,
            expression: None,
            function: self.function.unwrap_or(FunctionName::Avg).function(self.quantile),
            across: self.across.map(|across| across.across(self.across_quantile)),
            quantiles: Arc::from(&*self.quantiles),
            on_stale: self.on_stale.policy(),
            window: self.window,
            grouping: grouping(self.by.as_deref(), self.without.as_deref()).unwrap_or_else(all_together),
            max_groups: self.max_groups,
            lease: self.lease,
        };
        match (&self.expr, self.query()) {
            (Some(text), Some(query)) => expression::declaration(text, &query, shared, declaration),
            _ => Ok(declaration),
        }
    }
}

impl OnStaleChoice {
    fn policy(self) -> OnStale {
        match self {
            Self::Error => OnStale::Error,
            Self::Last => OnStale::Last,
            Self::Empty => OnStale::Empty,
        }
    }
}

impl AcrossName {
    fn across(self, quantile: Option<f64>) -> Across {
        match self {
            Self::Sum => Across::Sum,
            Self::Avg => Across::Avg,
            Self::Min => Across::Min,
            Self::Max => Across::Max,
            Self::Count => Across::Count,
            Self::Quantile => Across::Quantile(quantile.unwrap_or(0.5)),
            Self::Pool => Across::Pool,
        }
    }
}

impl FunctionName {
    fn function(self, quantile: Option<f64>) -> Function {
        match self {
            Self::Min => Function::Min,
            Self::Avg => Function::Avg,
            Self::Max => Function::Max,
            Self::Sum => Function::Sum,
            Self::Count => Function::Count,
            Self::Rate => Function::Rate,
            Self::Last => Function::Last,
            Self::Quantile => Function::Quantile(quantile.unwrap_or(0.5)),
        }
    }
}
