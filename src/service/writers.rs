// SPDX-License-Identifier: Apache-2.0

//! Finds duplicate writers: two processors that write the same series to one exporter. This check sees only the
//! configuration. The exporter refuses duplicates that appear only in the data.

use std::collections::BTreeSet;

use super::graph::BuildError;
use super::plan::Plan;
use crate::component::{ComponentError, OutputDescriptor};
use crate::config::{Class, ComponentId, PipelineId};

/// A processor of a pipeline, with the series that it writes.
pub(super) struct SeriesWriter {
    pub(super) pipeline: PipelineId,
    pub(super) id: ComponentId,
    pub(super) outputs: Vec<OutputDescriptor>,
    /// Whether a later processor may change its output, which makes a duplicate uncertain.
    pub(super) is_edited: bool,
}

/// Duplicate writers, as far as the configuration shows them.
#[derive(Default)]
pub(super) struct Duplicates {
    /// The exporter would always refuse one of the two.
    pub(super) certain: Vec<BuildError>,
    /// The exporter would refuse one of the two if their labels are equal.
    pub(super) possible: Vec<BuildError>,
}

/// Compares all pairs of writers that reach a common exporter.
pub(super) fn check(plan: &Plan, writers: &[SeriesWriter]) -> Duplicates {
    let reached: Vec<_> = writers
        .iter()
        .map(|writer| exporters(plan, &writer.pipeline))
        .collect();
    let mut found = Duplicates::default();
    for (at, later) in writers.iter().enumerate() {
        for (earlier, before) in writers[..at].iter().zip(&reached) {
            let Some(exporter) = before.intersection(&reached[at]).next() else {
                continue;
            };
            let common = |output: &&OutputDescriptor| earlier.outputs.iter().any(|other| other == *output);
            let (single, grouped): (Vec<_>, Vec<_>) = later
                .outputs
                .iter()
                .filter(common)
                .partition(|output| output.labels.is_empty());
            let is_certain = !single.is_empty() && !earlier.is_edited && !later.is_edited;
            let (list, names) = if is_certain {
                (&mut found.certain, single)
            } else {
                (&mut found.possible, [single, grouped].concat())
            };
            if let Some(message) = message(earlier, &names, exporter, is_certain) {
                list.push(BuildError {
                    class: Class::Processor,
                    id: later.id.clone(),
                    error: ComponentError {
                        component: format!("processors::{}@{}", later.id, later.pipeline),
                        message,
                    },
                });
            }
        }
    }
    found
}

fn message(
    earlier: &SeriesWriter,
    names: &[&OutputDescriptor],
    exporter: &ComponentId,
    is_certain: bool,
) -> Option<String> {
    let first = &names.first()?.name;
    let others = match names.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let (id, pipeline) = (&earlier.id, &earlier.pipeline);
    let what = if is_certain {
        "the same series has one writer only"
    } else {
        "where their labels agree, only one of the two is shown"
    };
    Some(format!(
        "`{first}`{others}: made by `processors::{id}` in pipeline `{pipeline}` too, and both reach \
         `exporters::{exporter}`; {what}. Use one pipeline for both, or other names"
    ))
}

/// The exporters that a pipeline feeds, also through connectors.
pub(super) fn exporters(plan: &Plan, from: &PipelineId) -> BTreeSet<ComponentId> {
    let mut reached = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut open: Vec<_> = plan
        .pipelines
        .iter()
        .filter(|pipeline| pipeline.id == *from)
        .collect();
    while let Some(pipeline) = open.pop() {
        if !visited.insert(&pipeline.id) {
            continue;
        }
        for id in &pipeline.exporters {
            if !plan.connectors.contains_key(id) {
                reached.insert(id.clone());
                continue;
            }
            let fed = plan.pipelines.iter().filter(|fed| fed.receivers.contains(id));
            open.extend(fed);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use crate::component::Shared;
    use crate::service::Graph;
    use crate::service::testing::plan;
    use std::sync::Arc;

    /// Errors, and warnings, of two pipelines with these processors and exporters, and of one pipeline with both.
    fn found(processors: &str, pipelines: &str) -> (Vec<String>, Vec<String>) {
        let yaml = format!(
            "receivers: {{uds/a: {{datagram: {{path: /tmp/a}}}}, uds/b: {{datagram: {{path: /tmp/b}}}}}}
processors: {processors}
exporters: {{prometheus: {{endpoint: \"localhost:1\"}}, prometheus/other: {{endpoint: \"localhost:2\"}}}}
connectors: {{forward: {{}}}}
service: {{pipelines: {pipelines}}}"
        );
        let messages = |list: Vec<super::BuildError>| {
            let message = |one: super::BuildError| format!("{}: {}", one.id, one.error.message);
            list.into_iter().map(message).collect::<Vec<_>>()
        };
        match Graph::build(&plan(&yaml), &Arc::new(Shared::default())) {
            Ok(graph) => (Vec::new(), messages(graph.warnings)),
            Err(errors) => (messages(errors), Vec::new()),
        }
    }

    const TOTAL: &str = "aggregate: {rules: [{match: {name: hits}, name: all, instrument: counter, by: []}]}";
    const BY_HOST: &str =
        "aggregate: {rules: [{match: {name: hits}, name: all, instrument: counter, by: [host]}]}";

    fn two(exporter_of_b: &str, processors_of_a: &str) -> String {
        format!(
            "{{metrics/a: {{receivers: [uds/a], processors: [{processors_of_a}], exporters: [prometheus]}},
               metrics/b: {{receivers: [uds/b], processors: [aggregate], exporters: [{exporter_of_b}]}}}}"
        )
    }

    #[test]
    fn two_writers_of_one_series_are_an_error_that_names_both() {
        let (errors, _) = found(&format!("{{{TOTAL}}}"), &two("prometheus", "aggregate"));
        assert_eq!(
            errors,
            [
                "aggregate: `all`: made by `processors::aggregate` in pipeline `metrics/a` too, and both reach \
                 `exporters::prometheus`; the same series has one writer only. Use one pipeline for both, or other names"
            ]
        );
    }

    #[test]
    fn what_labels_may_tell_apart_is_a_warning() {
        let (errors, warnings) = found(&format!("{{{BY_HOST}}}"), &two("prometheus", "aggregate"));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("only one of the two is shown"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_a_processor_behind_may_relabel_is_a_warning() {
        let processors =
            format!("{{{TOTAL}, attributes: {{actions: [{{key: k, value: v, action: insert}}]}}}}");
        let (errors, warnings) = found(&processors, &two("prometheus", "aggregate, attributes"));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn other_exporters_and_other_labels_do_not_clash() {
        let none = (Vec::new(), Vec::new());
        assert_eq!(
            found(&format!("{{{TOTAL}}}"), &two("prometheus/other", "aggregate")),
            none
        );
        let both = format!(
            "{{{TOTAL}, {}}}",
            BY_HOST.replace("aggregate:", "aggregate/by_host:")
        );
        assert_eq!(found(&both, &two("prometheus", "aggregate/by_host")), none);
    }

    #[test]
    fn exporters_are_reached_through_connectors() {
        let pipelines = "{metrics/a: {receivers: [uds/a], processors: [aggregate], exporters: [forward]},
            metrics/b: {receivers: [uds/b], processors: [aggregate], exporters: [prometheus]},
            metrics/c: {receivers: [forward], exporters: [prometheus]}}";
        let (errors, _) = found(&format!("{{{TOTAL}}}"), pipelines);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}
