// SPDX-License-Identifier: Apache-2.0

//! The component that a request names.

use crate::component::overview::Overview;
use crate::component::tap::{ComponentSide, TapSide, TapTarget};
use crate::config::{Class, nearest};
use crate::net::pages::Request;

/// The most components or pipelines that an error lists.
const MAX_LISTED: usize = 20;

/// Why a request names no component.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    /// No running component has this name. The second text is a near name.
    Unknown(String, Option<String>),
    /// The request is wrong.
    Wrong(String),
}

/// A running component of the pipelines.
struct PipelineComponent<'a> {
    class: Class,
    id: &'a str,
    pipelines: Vec<&'a str>,
}

impl PipelineComponent<'_> {
    fn has(&self, side: Option<TapSide>) -> bool {
        !matches!(
            (self.class, side),
            (Class::Receiver, Some(TapSide::Input)) | (Class::Exporter, Some(TapSide::Output))
        )
    }

    fn path(&self) -> String {
        format!("{}::{}", self.class.section(), self.id)
    }
}

/// The target of the parameters `component`, `direction` and `pipeline`.
pub(super) fn resolve(overview: &Overview, request: &Request) -> Result<TapTarget, NoTarget> {
    let get = |name| request.get(name).filter(|text| !text.is_empty());
    let Some(component) = get("component") else {
        return Err(NoTarget::Wrong("the parameter `component` is missing".to_owned()));
    };
    let side = match get("direction") {
        None => None,
        Some("input") => Some(TapSide::Input),
        Some("output") => Some(TapSide::Output),
        Some(other) => {
            let why = format!("direction: `{other}` is neither `input` nor `output`");
            return Err(NoTarget::Wrong(why));
        }
    };
    let (class, id, of_path) = parts(component);
    let all = running(overview);
    let is_named =
        |one: &&PipelineComponent<'_>| one.id == id && class.is_none_or(|class| one.class == class);
    let named: Vec<_> = all.iter().filter(is_named).collect();
    if named.is_empty() {
        return Err(unknown(component, class, id, &all));
    }
    let pipeline = of_path.or(get("pipeline"));
    if let Some(wanted) = pipeline
        && overview.pipelines.iter().all(|one| one.id != wanted)
    {
        let ids = overview.pipelines.iter().map(|one| one.id.clone());
        let why = format!(
            "there is no pipeline `{wanted}`; there are {}",
            listed(ids.collect())
        );
        return Err(NoTarget::Wrong(why));
    }
    let one = choose(component, &named, side, pipeline).map_err(NoTarget::Wrong)?;
    let usual = match one.class {
        Class::Exporter => TapSide::Input,
        _ => TapSide::Output,
    };
    Ok(TapTarget {
        component: ComponentSide {
            class: one.class,
            id: id.into(),
            side: side.unwrap_or(usual),
        },
        pipeline: pipeline.map(Into::into),
    })
}

/// The class, the id and the pipeline of `processors::batch@metrics`, or of the id alone.
fn parts(component: &str) -> (Option<Class>, &str, Option<&str>) {
    let of_class = |class: Class| {
        let rest = component.strip_prefix(class.section())?.strip_prefix("::")?;
        Some((class, rest))
    };
    match Class::ALL.into_iter().find_map(of_class) {
        None => (None, component, None),
        Some((class, rest)) => match rest.split_once('@') {
            None => (Some(class), rest, None),
            Some((id, pipeline)) => (Some(class), id, Some(pipeline)),
        },
    }
}

/// The components of all pipelines, each once.
fn running(overview: &Overview) -> Vec<PipelineComponent<'_>> {
    let nodes = &overview.metrics.nodes;
    let is_connector = |id: &str| {
        let mut connectors = nodes.iter().filter(|node| node.class == Class::Connector);
        connectors.any(|node| *node.id == *id)
    };
    let mut all: Vec<PipelineComponent<'_>> = Vec::new();
    for pipeline in &overview.pipelines {
        for (class, ids) in [
            (Class::Receiver, &pipeline.receivers),
            (Class::Processor, &pipeline.processors),
            (Class::Exporter, &pipeline.exporters),
        ] {
            for id in ids {
                let class = match class {
                    Class::Receiver | Class::Exporter if is_connector(id) => Class::Connector,
                    class => class,
                };
                match all.iter_mut().find(|one| one.class == class && one.id == id) {
                    Some(known) => known.pipelines.push(&pipeline.id),
                    None => all.push(PipelineComponent {
                        class,
                        id,
                        pipelines: vec![pipeline.id.as_str()],
                    }),
                }
            }
        }
    }
    all
}

fn unknown(component: &str, class: Option<Class>, id: &str, all: &[PipelineComponent<'_>]) -> NoTarget {
    let paths = listed(all.iter().map(PipelineComponent::path).collect());
    let why = format!("no pipeline has the component `{component}`; there are {paths}");
    NoTarget::Unknown(why, near(class, id, all))
}

/// The component that the user probably meant: a path if the request has one, otherwise an id.
fn near(class: Option<Class>, id: &str, all: &[PipelineComponent<'_>]) -> Option<String> {
    let Some(class) = class else {
        let near = nearest(id, all.iter().map(|one| one.id));
        // `otlphttp/a` means an `otlphttp`, although the id `otlp` is nearer.
        let same_type = all.iter().map(|one| one.id).find(|one| kind(one) == kind(id));
        let near = near.filter(|near| kind(near) == kind(id)).or(same_type).or(near);
        return near.map(str::to_owned);
    };
    if let Some(other) = all.iter().find(|one| one.id == id) {
        return Some(other.path());
    }
    let asked = format!("{}::{id}", class.section());
    let paths: Vec<String> = all.iter().map(PipelineComponent::path).collect();
    nearest(&asked, paths.iter().map(String::as_str)).map(str::to_owned)
}

/// The type of a component, from its id.
fn kind(id: &str) -> &str {
    id.split_once('/').map_or(id, |(kind, _)| kind)
}

/// The names for an error, or the first of many.
fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// The one component that has the side and the pipeline. An error says why there is not exactly one.
fn choose<'a>(
    component: &str,
    named: &[&'a PipelineComponent<'a>],
    side: Option<TapSide>,
    pipeline: Option<&str>,
) -> Result<&'a PipelineComponent<'a>, String> {
    let is_in = |one: &&&PipelineComponent<'_>| pipeline.is_none_or(|wanted| one.pipelines.contains(&wanted));
    let in_pipeline: Vec<&PipelineComponent<'a>> = named.iter().filter(is_in).copied().collect();
    if let (true, Some(pipeline)) = (in_pipeline.is_empty(), pipeline) {
        let pipelines: Vec<&str> = named
            .iter()
            .flat_map(|one| one.pipelines.iter().copied())
            .collect();
        return Err(format!(
            "the pipeline `{pipeline}` has no `{component}`, which is in {}",
            pipelines.join(", ")
        ));
    }
    let with_side: Vec<&PipelineComponent<'a>> =
        in_pipeline.iter().filter(|one| one.has(side)).copied().collect();
    match with_side.as_slice() {
        [one] => Ok(*one),
        [] => Err(format!(
            "`{component}` has no such side: receivers have only an output, exporters only an input"
        )),
        several => {
            let paths: Vec<String> = several.iter().map(|one| one.path()).collect();
            Err(format!(
                "`{component}` is ambiguous: write {}",
                paths.join(" or ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::component::graph_metrics::GraphMetrics;
    use crate::component::overview::PipelineOverview;

    fn overview() -> Overview {
        let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        Overview {
            built: SystemTime::UNIX_EPOCH,
            pipelines: vec![
                PipelineOverview {
                    id: "metrics".to_owned(),
                    receivers: list(&["otlp", "uds"]),
                    processors: list(&["batch"]),
                    exporters: list(&["otlp"]),
                },
                PipelineOverview {
                    id: "logs/x".to_owned(),
                    receivers: list(&["otlp"]),
                    processors: list(&["batch"]),
                    exporters: list(&["debug"]),
                },
            ],
            extensions: Vec::new(),
            config: String::new(),
            metrics: GraphMetrics::default(),
        }
    }

    fn resolved(form: &[(&str, &str)]) -> Result<TapTarget, NoTarget> {
        let form = form
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        resolve(&overview(), &Request::of("/api/v1/tap", form.collect()))
    }

    fn target(class: Class, id: &str, pipeline: Option<&str>, side: TapSide) -> Result<TapTarget, NoTarget> {
        let id = id.into();
        Ok(TapTarget {
            component: ComponentSide { class, id, side },
            pipeline: pipeline.map(Into::into),
        })
    }

    #[test]
    fn an_id_or_a_path_names_a_component_and_its_usual_side() {
        let of = |component| resolved(&[("component", component)]);
        let (input, output) = (TapSide::Input, TapSide::Output);
        assert_eq!(of("uds"), target(Class::Receiver, "uds", None, output));
        assert_eq!(of("debug"), target(Class::Exporter, "debug", None, input));
        assert_eq!(
            of("exporters::otlp"),
            target(Class::Exporter, "otlp", None, input)
        );
        let batch = target(Class::Processor, "batch", Some("logs/x"), output);
        assert_eq!(of("processors::batch@logs/x"), batch);
        let only_one = resolved(&[("component", "otlp"), ("direction", "input")]);
        assert_eq!(only_one, target(Class::Exporter, "otlp", None, input));
    }

    #[test]
    fn what_names_no_single_component_is_refused_with_the_reason() {
        let wrong = |form: &[(&str, &str)]| match resolved(form) {
            Err(NoTarget::Wrong(why)) => why,
            other => panic!("{other:?}"),
        };
        let said = wrong(&[("component", "otlp")]);
        assert!(said.contains("receivers::otlp or exporters::otlp"), "{said}");
        let said = wrong(&[("component", "uds"), ("pipeline", "logs/x")]);
        assert!(said.ends_with(", which is in metrics"), "{said}");
        let none = "there is no pipeline `foo`; there are metrics, logs/x";
        assert_eq!(wrong(&[("component", "uds"), ("pipeline", "foo")]), none);
        assert_eq!(wrong(&[("component", "processors::batch@foo")]), none);
        let said = wrong(&[("component", "uds"), ("direction", "input")]);
        assert!(said.contains("no such side"), "{said}");
        assert!(wrong(&[]).contains("`component` is missing"));
        assert!(wrong(&[("component", "uds"), ("direction", "up")]).contains("neither"));
        let unknown = resolved(&[("component", "bach")]);
        let Err(NoTarget::Unknown(why, near)) = unknown else {
            panic!("{unknown:?}");
        };
        assert!(why.contains("processors::batch"), "{why}");
        assert_eq!(near.as_deref(), Some("batch"));
    }

    #[test]
    fn the_near_name_of_a_path_is_a_path_of_the_same_class_or_id() {
        let component = |class, id| PipelineComponent {
            class,
            id,
            pipelines: Vec::new(),
        };
        let all = [
            component(Class::Receiver, "otlp"),
            component(Class::Processor, "batch"),
            component(Class::Exporter, "otlphttp/datadog"),
        ];
        for (class, id, expected) in [
            (
                Some(Class::Exporter),
                "otlphttp/nope",
                Some("exporters::otlphttp/datadog"),
            ),
            (
                Some(Class::Receiver),
                "otlphttp/datadog",
                Some("exporters::otlphttp/datadog"),
            ),
            (Some(Class::Processor), "somewhere-else", None),
            (None, "otlphttp/nope", Some("otlphttp/datadog")),
            (None, "bach", Some("batch")),
            (None, "nothing", None),
        ] {
            assert_eq!(near(class, id, &all).as_deref(), expected, "{class:?} {id}");
        }
    }
}
