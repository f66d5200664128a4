// SPDX-License-Identifier: Apache-2.0

//! Finds components that forget series before the `shm` receiver of their pipeline sends them again. `aggregate` has a table of
//! its own: it must keep the series for so long, and they do not expire in the exporter.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_engine::Limits;

use super::Plan;
use super::plan::{PipelinePlan, Planned};
use crate::component::{ExporterFactory, ProcessorFactory};
use crate::config::{Node, Problems};
use crate::exporters::prometheus::config::PrometheusExporterConfig;
use crate::processors::aggregate::config::AggregateConfig;
use crate::receivers::shm::config::ShmConfig;
use crate::{exporters, processors, receivers};

/// Warns of components that forget series before they come again.
pub(super) fn check(plan: &Plan, cx: &mut Problems) {
    let mut warnings = Warnings::default();
    for pipeline in &plan.pipelines {
        let Some(repeats) = Repeats::of(plan, pipeline) else {
            continue;
        };
        let planned = pipeline
            .processors
            .iter()
            .filter_map(|id| plan.processors.get(id));
        let is_aggregate = |planned: &&Planned<ProcessorFactory>| {
            planned.factory.kind == processors::aggregate::FACTORY.kind
        };
        let aggregates: Vec<_> = planned.filter(is_aggregate).collect();
        if aggregates.is_empty() {
            let exporters = pipeline.exporters.iter().filter_map(|id| plan.exporters.get(id));
            exporters.for_each(|exporter| warnings.check_exporter(exporter, &repeats));
        } else {
            aggregates
                .iter()
                .for_each(|aggregate| warnings.check_aggregate(aggregate, &repeats));
        }
    }
    warnings.report(cx);
}

/// How seldom the slowest `shm` receiver of a pipeline sends unchanged series.
struct Repeats<'a> {
    interval: Duration,
    /// The option that sets it, and the node to point at.
    option: &'static str,
    node: &'a Node,
}

impl<'a> Repeats<'a> {
    /// `None`: the pipeline has no such receiver.
    fn of(plan: &'a Plan, pipeline: &PipelinePlan) -> Option<Self> {
        let planned = pipeline.receivers.iter().filter_map(|id| plan.receivers.get(id));
        let of_cells = planned.filter(|planned| planned.factory.kind == receivers::shm::FACTORY.kind);
        let repeats = of_cells.map(|planned| {
            let config = planned.settings.get::<ShmConfig>();
            let option = if config.poll_interval > config.refresh {
                "poll_interval"
            } else {
                "refresh"
            };
            Self {
                interval: config.refresh.max(config.poll_interval),
                option,
                node: planned.options.child(option),
            }
        });
        repeats.max_by_key(|repeats| repeats.interval)
    }

    /// The shortest time for which a component must keep a series.
    fn least_expiry(&self) -> Duration {
        self.interval.saturating_mul(2)
    }
}

/// By the paths of their options: several pipelines may have a component. Each is that of the slowest receiver.
#[derive(Default)]
struct Warnings<'a>(BTreeMap<String, Warning<'a>>);

struct Warning<'a> {
    interval: Duration,
    node: &'a Node,
    help: String,
    effect: &'static str,
}

impl<'a> Warnings<'a> {
    fn check_aggregate(&mut self, aggregate: &'a Planned<ProcessorFactory>, repeats: &Repeats<'a>) {
        let least = repeats.least_expiry();
        if aggregate.settings.get::<AggregateConfig>().expiry < least {
            let help = format!("set `expiry` to at least {least:?}");
            let effect = "`aggregate` may forget them before";
            self.warn(aggregate.options.child("expiry"), help, repeats, effect);
        }
    }

    fn check_exporter(&mut self, exporter: &'a Planned<ExporterFactory>, repeats: &Repeats<'a>) {
        let least = repeats.least_expiry();
        let of_kind = |factory: &ExporterFactory| exporter.factory.kind == factory.kind;
        if of_kind(&exporters::prometheus::FACTORY) {
            let config = exporter.settings.get::<PrometheusExporterConfig>();
            if config.metric_expiration < least {
                let help = format!("set `metric_expiration` to at least {least:?}");
                let effect = "the exporter may drop them before";
                let node = exporter.options.child("metric_expiration");
                self.warn(node, help, repeats, effect);
            }
        } else if of_kind(&exporters::partials::FACTORY) {
            // It has no option for this.
            let expiry = Limits::default().expiry;
            if expiry < least {
                let help = format!("set `{}` to at most {:?}", repeats.option, expiry / 2);
                let effect = "the exporter `partials` may drop them before";
                self.warn(repeats.node, help, repeats, effect);
            }
        }
    }

    fn warn(&mut self, node: &'a Node, help: String, repeats: &Repeats<'a>, effect: &'static str) {
        let interval = repeats.interval;
        let path = node.path().to_string();
        let known = self.0.get(&path);
        if known.is_none_or(|known| known.interval < interval) {
            let warning = Warning {
                interval,
                node,
                help,
                effect,
            };
            self.0.insert(path, warning);
        }
    }

    fn report(self, cx: &mut Problems) {
        for warning in self.0.into_values() {
            let Warning {
                interval,
                node,
                help,
                effect,
            } = warning;
            let message = format!("`shm` sends unchanged series every {interval:?}: {effect}");
            cx.at(node).help(help).warning(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::load;
    use crate::config::Loader;

    #[test]
    fn series_that_expire_before_cells_are_sent_again_are_warnings() {
        let warnings = |refresh: &str, processors: &str, expiration: &str| {
            let yaml = format!(
                "yaml:
receivers: {{shm: {{refresh: {refresh}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: '*'}}, without: []}}]}}}}
exporters: {{prometheus: {{endpoint: 'localhost:9464', metric_expiration: {expiration}}}}}
service: {{pipelines: {{metrics: {{receivers: [shm], processors: [{processors}], exporters: [prometheus]}}}}}}"
            );
            let checked = load::check_loader(Loader::default().config(&yaml));
            let problems = checked.problems.to_string();
            assert!(checked.plan.is_some(), "{problems}");
            let of_both = ["may drop them before", "may forget them before"];
            of_both.map(|text| problems.matches(text).count())
        };
        assert_eq!(warnings("60s", "", "2m"), [0, 0]);
        assert_eq!(warnings("60s", "", "119s"), [1, 0]);
        assert_eq!(warnings("9m", "", "5m"), [1, 0]);
        assert_eq!(warnings("9m", "aggregate", "5m"), [0, 1]);
        assert_eq!(warnings("2m", "aggregate", "1m"), [0, 0]);
        assert_eq!(warnings("1m, poll_interval: 2m", "", "3m"), [1, 0]);
    }

    #[test]
    fn the_advice_for_a_shared_component_fits_its_slowest_receiver() {
        for (first, second) in [("1m", "9m"), ("9m", "1m")] {
            let yaml = format!(
                "yaml:
receivers: {{shm/a: {{refresh: {first}}}, shm/b: {{refresh: {second}}}}}
exporters: {{prometheus: {{endpoint: 'localhost:9464', metric_expiration: 1m}}}}
service:
  pipelines:
    metrics/a: {{receivers: [shm/a], exporters: [prometheus]}}
    metrics/b: {{receivers: [shm/b], exporters: [prometheus]}}"
            );
            let problems = load::check_loader(Loader::default().config(&yaml))
                .problems
                .to_string();
            assert_eq!(problems.matches("may drop them before").count(), 1, "{problems}");
            assert!(problems.contains("to at least 1080s"), "{problems}");
        }
    }

    #[test]
    fn pages_for_replicas_need_cells_before_their_levels_expire() {
        let warnings = |refresh: &str| {
            let yaml = format!(
                "yaml:
receivers: {{shm: {{refresh: {refresh}}}}}
exporters: {{partials: {{cluster: cluster}}}}
service: {{pipelines: {{metrics: {{receivers: [shm], exporters: [partials]}}}}}}"
            );
            let checked = load::check_loader(Loader::default().config(&yaml));
            checked.problems.to_string()
        };
        assert!(!warnings("150s").contains("may drop them before"));
        for (options, option) in [("151s", "refresh"), ("1m, poll_interval: 151s", "poll_interval")] {
            let problems = warnings(options);
            assert_eq!(problems.matches("may drop them before").count(), 1, "{problems}");
            let warning = format!("warning: receivers::shm::{option}: `shm` sends");
            assert!(problems.contains(&warning), "{problems}");
            assert!(
                problems.contains(&format!("set `{option}` to at most 150s")),
                "{problems}"
            );
        }
    }

    #[test]
    fn cells_are_sent_again_before_components_forget_them() {
        let is_refused = |refresh: &str| {
            let yaml = format!(
                "yaml:
receivers: {{shm: {{refresh: {refresh}}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [shm], exporters: [nop]}}}}}}"
            );
            let checked = load::check_loader(Loader::default().config(&yaml));
            checked.problems.to_string().contains("must be below 10m")
        };
        assert!(!is_refused("599s") && is_refused("10m"));
    }
}
