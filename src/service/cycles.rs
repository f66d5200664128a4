// SPDX-License-Identifier: Apache-2.0

//! Finds pipelines that publish merged series to a cluster: each pass would add the totals again.

use super::graph::BuildError;
use super::plan::Plan;
use super::writers::exporters;
use crate::component::ComponentError;
use crate::config::Class;

/// The kind of the receiver that merges series, and of the exporter that publishes them.
const KIND: &str = "partials";

/// An error for each pipeline that leads from such a receiver to such an exporter.
pub(super) fn check(plan: &Plan) -> Vec<BuildError> {
    let mut errors = Vec::new();
    for pipeline in &plan.pipelines {
        let is_merged = pipeline
            .receivers
            .iter()
            .any(|id| id.kind == KIND && plan.receivers.contains_key(id));
        if !is_merged {
            continue;
        }
        for id in exporters(plan, &pipeline.id).iter().filter(|id| id.kind == KIND) {
            errors.push(BuildError {
                class: Class::Exporter,
                id: id.clone(),
                error: ComponentError {
                    component: format!("exporters::{id}"),
                    message: format!(
                        "pipeline `{}` publishes what it merges, so totals would grow without end: give the exporter a \
                         pipeline without a `{KIND}` receiver",
                        pipeline.id
                    ),
                },
            });
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::service::testing::plan;

    fn messages(pipelines: &str) -> Vec<String> {
        let yaml = format!(
            "extensions: {{cluster: {{name: test, engine: {{local: {{}}}}}}}}
receivers: {{partials: {{cluster: cluster}}, nop: {{}}}}
exporters: {{partials/a: {{cluster: cluster}}, nop: {{}}}}
connectors: {{forward: {{}}}}
service: {{extensions: [cluster], pipelines: {pipelines}}}"
        );
        let errors = check(&plan(&yaml)).into_iter();
        errors.map(|error| error.error.to_string()).collect()
    }

    #[test]
    fn merged_series_are_not_published_again_through_connectors_either() {
        let apart = "{metrics/a: {receivers: [partials], exporters: [nop]},
            metrics/b: {receivers: [nop], exporters: [partials/a]}}";
        assert_eq!(messages(apart), Vec::<String>::new());
        let loops = "{metrics/a: {receivers: [partials], exporters: [forward]},
            metrics/b: {receivers: [forward], exporters: [partials/a]}}";
        let found = messages(loops);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("exporters::partials/a: pipeline `metrics/a` publishes"),
            "{found:?}"
        );
    }
}
