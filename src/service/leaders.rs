// SPDX-License-Identifier: Apache-2.0

//! Finds exporters that push merged series from each replica, and those that push other metrics from one replica only.

use std::collections::BTreeSet;

use super::plan::{PipelinePlan, Plan, Planned};
use super::writers;
use crate::batch::Signal;
use crate::component::{ExporterFactory, ReceiverFactory};
use crate::config::{ComponentId, Node, Problems};
use crate::{exporters, receivers};

/// The option that names the cluster whose leader pushes.
const OPTION: &str = "only_leader";

/// Warns of exporters that lack `only_leader` for merged series, and of those that have it for other metrics.
pub(super) fn check(plan: &Plan, cx: &mut Problems) {
    let mut warned = BTreeSet::new();
    for pipeline in &plan.pipelines {
        if pipeline.id.signal != Signal::Metrics {
            continue;
        }
        let merges = merged_cluster(plan, pipeline);
        let own = own_receiver(plan, pipeline);
        for id in writers::exporters(plan, &pipeline.id) {
            let Some(planned) = plan.exporters.get(&id).filter(|planned| pushes(planned)) else {
                continue;
            };
            let is_led = planned.options.get(OPTION).is_some_and(|node| !node.is_null());
            if is_led {
                if let Some(receiver) = own
                    && warned.insert(id)
                {
                    warn_of_losses(planned, receiver, pipeline, cx);
                }
            } else if let Some(cluster) = merges
                && warned.insert(id)
            {
                warn_of_copies(planned, cluster, cx);
            }
        }
    }
}

/// The id of the cluster whose merged series enter a pipeline. `None` also if the cluster has one gateway.
fn merged_cluster<'a>(plan: &'a Plan, pipeline: &'a PipelinePlan) -> Option<&'a str> {
    let all = planned_receivers(plan, pipeline);
    let mut merged = all.filter(|(_, planned)| planned.factory.kind == receivers::partials::FACTORY.kind);
    merged.find_map(|(_, planned)| {
        let cluster = planned.options.get("cluster").and_then(Node::as_text)?;
        (!is_local(plan, cluster)).then_some(cluster)
    })
}

/// Whether only this process sees the store of a cluster.
fn is_local(plan: &Plan, cluster: &str) -> bool {
    let mut extensions = plan.extensions.iter();
    let found = extensions.find(|(id, _)| id.to_string() == cluster);
    let engine = found.and_then(|(_, planned)| planned.options.get("engine"));
    engine.is_some_and(|engine| engine.get("local").is_some())
}

/// A receiver of a pipeline whose metrics other replicas lack. Each replica scrapes its targets and evaluates its rules itself.
/// A target allocator gives each replica other targets.
fn own_receiver<'a>(plan: &'a Plan, pipeline: &'a PipelinePlan) -> Option<&'a ComponentId> {
    let alike = [
        receivers::nop::FACTORY.kind,
        receivers::partials::FACTORY.kind,
        receivers::rules::FACTORY.kind,
        tidegate_scrape::FACTORY.kind,
    ];
    let mut all = planned_receivers(plan, pipeline);
    let allocates = |options: &Node| {
        let allocator = options.get("target_allocator");
        allocator.is_some_and(|node| !node.is_null())
    };
    let is_alike = |planned: &Planned<ReceiverFactory>| {
        alike.contains(&planned.factory.kind) && !allocates(&planned.options)
    };
    let own = all.find(|(_, planned)| !is_alike(planned));
    own.map(|(id, _)| id)
}

/// The receivers of a pipeline that are no connectors.
fn planned_receivers<'a>(
    plan: &'a Plan,
    pipeline: &'a PipelinePlan,
) -> impl Iterator<Item = (&'a ComponentId, &'a Planned<ReceiverFactory>)> {
    let named = pipeline.receivers.iter();
    named.filter_map(move |id| Some((id, plan.receivers.get(id)?)))
}

/// Whether an exporter sends to a destination that all replicas share.
fn pushes(planned: &Planned<ExporterFactory>) -> bool {
    let local = [
        exporters::debug::FACTORY.kind,
        exporters::file::FACTORY.kind,
        exporters::nop::FACTORY.kind,
        exporters::partials::FACTORY.kind,
        exporters::prometheus::FACTORY.kind,
    ];
    !local.contains(&planned.factory.kind)
}

fn warn_of_copies(planned: &Planned<ExporterFactory>, cluster: &str, cx: &mut Problems) {
    let options = (planned.factory.config.docs)();
    let help = if options.iter().any(|option| option.name == OPTION) {
        format!("set `{OPTION}: {cluster}`")
    } else {
        format!(
            "use an `otlp` exporter with `{OPTION}: {cluster}`: `{}` has no such option",
            planned.factory.kind
        )
    };
    cx.at(planned.options.child(OPTION)).help(help).warning(
        "each replica of the cluster sends the merged series: the destination gets them several times",
    );
}

fn warn_of_losses(
    planned: &Planned<ExporterFactory>,
    receiver: &ComponentId,
    pipeline: &PipelinePlan,
    cx: &mut Problems,
) {
    let message = format!(
        "pipeline `{}` also sends metrics of `{receiver}`: replicas that do not lead drop theirs",
        pipeline.id
    );
    cx.at(planned.options.child(OPTION))
        .help(format!("give these metrics an exporter without `{OPTION}`"))
        .warning(message);
}

#[cfg(test)]
mod tests {
    use crate::commands::load;
    use crate::config::Loader;

    /// The problems of pipelines behind a replica whose cluster has this engine.
    fn problems_with(engine: &str, pipelines: &str) -> String {
        let yaml = format!(
            "yaml:
extensions: {{cluster: {{name: test, engine: {{{engine}}}}}}}
receivers:
  partials: {{cluster: cluster}}
  otlp: {{protocols: {{grpc: {{}}}}}}
  prometheus: {{config: {{scrape_configs: [{{job_name: a, static_configs: [{{targets: ['a:1']}}]}}]}}}}
  prometheus/allocated: {{target_allocator: {{endpoint: 'http://a', collector_id: b}}}}
exporters:
  otlp/all: {{endpoint: 'a:4317'}}
  otlp/led: {{endpoint: 'a:4317', only_leader: cluster}}
  otlphttp: {{endpoint: 'http://a'}}
  prometheusremotewrite: {{endpoint: 'http://a'}}
  kafka: {{}}
  kafka/led: {{only_leader: cluster}}
  nats: {{}}
  nats/led: {{only_leader: cluster}}
  plugin: {{path: a.so}}
  plugin/led: {{path: a.so, only_leader: cluster}}
  loadbalancing: {{protocol: {{otlp: {{}}}}, resolver: {{static: {{hostnames: [a]}}}}}}
  prometheus: {{endpoint: 'localhost:9464'}}
  file: {{path: /dev/stdout}}
  debug: {{}}
  nop: {{}}
connectors: {{forward: {{}}}}
service: {{extensions: [cluster], pipelines: {pipelines}}}"
        );
        let checked = load::check_loader(Loader::default().config(&yaml));
        let problems = checked.problems.to_string();
        assert!(checked.plan.is_some(), "{problems}");
        problems
    }

    fn problems(pipelines: &str) -> String {
        problems_with("nats: {}", pipelines)
    }

    const COPIES: &str = "each replica of the cluster sends the merged series";
    const LOSSES: &str = "replicas that do not lead drop theirs";

    #[test]
    fn exporters_that_push_merged_series_from_each_replica_are_warnings() {
        for exporter in [
            "otlp/all",
            "otlphttp",
            "prometheusremotewrite",
            "kafka",
            "nats",
            "plugin",
        ] {
            let said = problems(&format!(
                "{{metrics: {{receivers: [partials], exporters: [{exporter}]}}}}"
            ));
            assert!(
                said.contains(&format!("exporters::{exporter}: {COPIES}")),
                "{said}"
            );
            assert!(said.contains("set `only_leader: cluster`"), "{said}");
        }
        let said = problems("{metrics: {receivers: [partials], exporters: [loadbalancing]}}");
        assert!(said.contains(COPIES) && said.contains("use an `otlp` exporter with `only_leader: cluster`"));
        let silent = "otlp/led, kafka/led, nats/led, plugin/led, prometheus, file, debug, nop";
        let said = problems(&format!(
            "{{metrics: {{receivers: [partials], exporters: [{silent}]}}}}"
        ));
        assert!(!said.contains(COPIES) && !said.contains(LOSSES), "{said}");
    }

    #[test]
    fn an_exporter_behind_connectors_is_one_warning() {
        let said = problems(
            "{metrics/a: {receivers: [partials], exporters: [forward, otlp/all]},
            metrics/b: {receivers: [forward], exporters: [otlp/all, kafka]},
            logs: {receivers: [otlp], exporters: [otlp/all]}}",
        );
        assert_eq!(said.matches(COPIES).count(), 2, "{said}");
    }

    #[test]
    fn exporters_need_no_leader_without_replicas_or_merged_series() {
        let merged = "{metrics: {receivers: [partials], exporters: [otlp/all]}}";
        assert!(!problems_with("local: {}", merged).contains(COPIES));
        let apart = "{metrics/a: {receivers: [partials], exporters: [prometheus]},
            metrics/b: {receivers: [otlp], exporters: [otlp/all]}}";
        assert!(!problems(apart).contains(COPIES));
    }

    #[test]
    fn exporters_of_the_leader_that_get_metrics_of_one_replica_are_warnings() {
        let shared = "{metrics/a: {receivers: [partials], exporters: [otlp/led]},
            metrics/b: {receivers: [otlp], exporters: [forward]},
            metrics/c: {receivers: [forward], exporters: [otlp/led]}}";
        let said = problems(shared);
        assert_eq!(said.matches(LOSSES).count(), 1, "{said}");
        assert!(
            said.contains("only_leader: pipeline `metrics/b` also sends metrics of `otlp`"),
            "{said}"
        );
        let one = problems("{metrics: {receivers: [partials, otlp], exporters: [kafka/led]}}");
        assert!(one.contains(LOSSES), "{one}");
        let allocated = problems("{metrics: {receivers: [prometheus/allocated], exporters: [otlp/led]}}");
        assert!(
            allocated.contains("also sends metrics of `prometheus/allocated`"),
            "{allocated}"
        );
        let alike = "{metrics: {receivers: [partials, prometheus], exporters: [otlp/led]},
            logs: {receivers: [otlp], exporters: [otlp/led]}}";
        let said = problems(alike);
        assert!(!said.contains(LOSSES), "{said}");
    }
}
