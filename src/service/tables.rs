// SPDX-License-Identifier: Apache-2.0

//! Connects the tables of processors and receivers with the exporters that the contents of these tables reach unedited.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::plan::{PipelinePlan, Plan};
use crate::batch::Signal;
use crate::component::{Exporter, TableHandle};
use crate::config::{ComponentId, PipelineId};

/// The exporters, and which of them the data of a pipeline reaches unedited.
#[derive(Default)]
pub(super) struct TableReaders {
    exporters: HashMap<ComponentId, (Arc<dyn Exporter>, Vec<TableHandle>)>,
    reached: HashMap<PipelineId, BTreeSet<ComponentId>>,
}

impl TableReaders {
    pub(super) fn add(&mut self, id: ComponentId, exporter: Arc<dyn Exporter>) {
        self.exporters.insert(id, (exporter, Vec::new()));
    }

    /// The exporters that data reaches unedited from the end of a pipeline. The pipelines after its connectors must
    /// be noted.
    pub(super) fn after(&self, plan: &Plan, pipeline: &PipelinePlan) -> BTreeSet<ComponentId> {
        let mut readers = BTreeSet::new();
        for id in &pipeline.exporters {
            if !plan.connectors.contains_key(id) {
                readers.insert(id.clone());
                continue;
            }
            // Connectors keep the signal and pass data unchanged.
            let fed = plan
                .pipelines
                .iter()
                .filter(|fed| fed.id.signal == pipeline.id.signal && fed.receivers.contains(id));
            let reached = fed.filter_map(|fed| self.reached.get(&fed.id));
            readers.extend(reached.flatten().cloned());
        }
        readers
    }

    /// The exporters that metrics of a receiver reach unedited. Its pipelines must be noted.
    pub(super) fn after_receiver(&self, plan: &Plan, receiver: &ComponentId) -> BTreeSet<ComponentId> {
        let fed = plan
            .pipelines
            .iter()
            .filter(|fed| fed.id.signal == Signal::Metrics && fed.receivers.contains(receiver));
        let reached = fed.filter_map(|fed| self.reached.get(&fed.id));
        reached.flatten().cloned().collect()
    }

    /// Notes the exporters that data reaches unedited from the beginning of a pipeline.
    pub(super) fn note(&mut self, pipeline: PipelineId, readers: BTreeSet<ComponentId>) {
        self.reached.insert(pipeline, readers);
    }

    /// Gives a table to these exporters.
    pub(super) fn attach(&mut self, handle: &TableHandle, readers: &BTreeSet<ComponentId>) {
        for id in readers {
            if let Some((_, handles)) = self.exporters.get_mut(id) {
                handles.push(handle.clone());
            }
        }
    }

    /// The exporters with their tables.
    pub(super) fn shown(&self) -> Vec<(Arc<dyn Exporter>, Vec<TableHandle>)> {
        self.exporters.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::component::Shared;
    use crate::prom::catalog::View;
    use crate::prom::name::Kind;
    use crate::service::Running;
    use crate::service::testing::{DRAIN, graph, plan};

    /// The tables of processors, each with the name of a gauge `x` in the exporter that shows it: `a_x`, `b_x`, or
    /// `x` if no exporter shows it.
    fn shown(pipelines: &str) -> Vec<(String, String)> {
        let yaml = format!(
            "receivers: {{uds/a: {{datagram: {{path: /tmp/a}}}}, uds/b: {{datagram: {{path: /tmp/b}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
  aggregate/second: {{rules: [{{match: {{name: calls}}, by: []}}]}}
  batch: {{}}
  attributes: {{actions: [{{key: k, value: v, action: insert}}]}}
  filter: {{metrics: {{exclude: {{metric_names: [other]}}}}}}
exporters:
  prometheus/a: {{endpoint: \"localhost:1\", namespace: a}}
  prometheus/b: {{endpoint: \"localhost:2\", namespace: b}}
connectors: {{forward: {{}}, forward/edited: {{}}}}
service: {{pipelines: {pipelines}}}"
        );
        let shared = Arc::new(Shared::default());
        let graph = graph(&plan(&yaml), &shared);
        graph.show_tables();
        for member in &graph.members {
            member.publish(&shared);
        }
        let named = View::of(&shared).named_tables().into_iter();
        let named = named.filter(|named| named.table.owner().starts_with("processors::"));
        named
            .map(|named| {
                let gauge = named.style.naming.metric("x", "", Kind::Gauge);
                (named.table.owner().to_string(), gauge.unwrap())
            })
            .collect()
    }

    fn one(owner: &str, gauge: &str) -> (String, String) {
        (format!("processors::{owner}"), gauge.to_owned())
    }

    #[test]
    fn an_exporter_shows_the_tables_that_nothing_edits_before_it() {
        let all = shown(
            "{metrics/a: {receivers: [uds/a], processors: [aggregate, aggregate/second, batch], exporters: [prometheus/a]},
              metrics/b: {receivers: [uds/b], processors: [aggregate, attributes, aggregate/second], exporters: [prometheus/b]}}",
        );
        assert_eq!(
            all,
            [
                one("aggregate/second@metrics/a", "a_x"),
                one("aggregate@metrics/a", "a_x"),
                one("aggregate/second@metrics/b", "b_x"),
                one("aggregate@metrics/b", "x"),
            ]
        );
    }

    #[test]
    fn tables_reach_exporters_through_connectors_unless_a_processor_edits() {
        let all = shown(
            "{metrics/a: {receivers: [uds/a], processors: [aggregate], exporters: [forward, forward/edited]},
              metrics/b: {receivers: [forward/edited], processors: [filter], exporters: [prometheus/a]},
              metrics/c: {receivers: [forward], processors: [batch], exporters: [prometheus/b]}}",
        );
        assert_eq!(all, [one("aggregate@metrics/a", "b_x")]);
    }

    /// Runs a pipeline with one processor.
    async fn run(processor: &str, shared: &Arc<Shared>) -> Running {
        let (id, _) = processor.split_once(':').unwrap();
        let yaml = format!(
            "receivers: {{nop: {{}}}}
processors: {{{processor}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [nop], processors: [{id}], exporters: [nop]}}}}}}"
        );
        let graph = graph(&plan(&yaml), shared);
        assert!(shared.tables.list().is_empty() && shared.composites.list().is_empty());
        Running::start(graph, shared.clone(), DRAIN).await.unwrap()
    }

    #[tokio::test]
    async fn a_table_is_listed_while_its_processor_runs() {
        let shared = Arc::new(Shared::default());
        let running = run("aggregate: {rules: [{match: {name: hits}, by: []}]}", &shared).await;
        let owners: Vec<_> = shared
            .tables
            .list()
            .iter()
            .map(|table| table.owner().to_string())
            .collect();
        assert_eq!(owners, ["processors::aggregate@metrics"]);
        running.stop(DRAIN).await;
        assert!(shared.tables.list().is_empty());
    }

    #[tokio::test]
    async fn composites_are_listed_while_their_processor_runs() {
        let shared = Arc::new(Shared::default());
        let processor = "composite: {composites: [{name: recent, metric: hits, function: sum, window: 10s}]}";
        let running = run(processor, &shared).await;
        let names: Vec<_> = shared
            .composites
            .list()
            .iter()
            .map(|composite| composite.declaration().name.to_string())
            .collect();
        assert_eq!(names, ["recent"]);
        running.stop(DRAIN).await;
        assert!(shared.composites.list().is_empty());
    }
}
