// SPDX-License-Identifier: Apache-2.0

//! Reloads that are refused, and the names that queries know after a reload.

use tidegate_engine::{Attributes, Data, Value, clock};
use tidegate_promql::{Instant as Answer, NAME, Query};

use super::*;
use crate::commands::load;
use crate::component::unix_now;
use crate::config::Loader;
use crate::prom::catalog::testing::point;
use crate::prom::catalog::{View, millis};

const DRAIN: Duration = Duration::from_secs(10);

/// A plan with these options of a `rules` receiver, and these extensions that run.
fn plan(receiver: &str, extensions: &str) -> Plan {
    let yaml = format!(
        "yaml:
extensions: {{rules: {{files: [/nonexistent/*.yaml]}}}}
receivers: {{rules: {receiver}}}
exporters: {{nop: {{}}}}
service:
  extensions: {extensions}
  pipelines: {{metrics: {{receivers: [rules], exporters: [nop]}}}}"
    );
    let loaded = load::load_from(Loader::default().config(&yaml));
    loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan
}

fn texts(errors: &[BuildError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_reload_without_the_extension_of_a_receiver_is_refused_like_a_start() {
    for receiver in ["{}", "{rules: rules}"] {
        let (from, to) = (plan(receiver, "[rules]"), plan(receiver, "[]"));
        let started = Graph::build(&to, &Arc::default()).err().unwrap();
        let expected = "receivers::rules: rules: `rules` is not a `rules` extension in `service::extensions`";
        assert_eq!(texts(&started), [expected]);
        let shared = Arc::new(Shared::default());
        let graph = Graph::build(&from, &shared).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut running = Running::start(graph, shared.clone(), DRAIN).await.unwrap();
        let paths = running.paths();
        let refused = running.reload(&from, &to, &[]).await;
        let Err(ReloadError::Build(errors)) = &refused else {
            panic!("{receiver}: {refused:?}");
        };
        assert_eq!(texts(errors), [expected]);
        running.finish(DRAIN).await;
        assert_eq!(running.paths(), paths, "the old members run on");
        assert!(shared.services.get("rules").is_some());
        let again = running.reload(&from, &from, &[]).await.unwrap();
        assert!(
            again.added.is_empty() && again.rebuilt.is_empty() && again.removed.is_empty(),
            "{again:?}"
        );
        running.stop(DRAIN).await;
    }
}

/// A plan with a page whose names begin with `namespace`.
fn page(namespace: &str) -> Plan {
    let yaml = format!(
        "yaml:
receivers: {{nop: {{}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\", namespace: {namespace}}}}}
service: {{pipelines: {{metrics: {{receivers: [nop], exporters: [prometheus]}}}}}}"
    );
    let loaded = load::load_from(Loader::default().config(&yaml));
    loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan
}

/// The names of the gauge `level` in queries.
fn names(view: &View) -> Vec<String> {
    let (now, query) = (unix_now(), Query::parse("{__name__=~\".*level\"}").unwrap());
    let asked = view.ask(now, &query.selections());
    match query.instant(&asked, millis(clock::wall(now))).unwrap() {
        Answer::Vector(vector) => {
            let names = vector.iter().map(|(labels, _)| labels.get(NAME).to_owned());
            names.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn queries_know_only_the_new_names_while_pushes_into_the_old_page_are_under_way() {
    let (from, to) = (page("a"), page("b"));
    let shared = Arc::new(Shared::default());
    let graph = Graph::build(&from, &shared).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut running = Running::start(graph, shared.clone(), DRAIN).await.unwrap();
    let mut members = running.members.iter();
    let old = members.find(|member| member.class == Class::Exporter).unwrap();
    let (table, old) = (old.own_table().unwrap(), Arc::downgrade(&old.lifecycle()));
    let now = unix_now();
    let of = (Attributes::default(), Attributes::default());
    let level = point("level", Data::Gauge, of, (now - 1, now), Value::Int(1));
    table.observe(&level, now);
    let view = View::of(&shared);
    assert_eq!(names(&view), ["a_level"]);
    running.reload(&from, &to, &[]).await.unwrap();
    // As pushes hold it.
    let under_way = running.past.clone();
    assert_eq!(names(&view), ["b_level"]);
    assert_eq!(view.names_of_gauge("level"), ["b_level", "level"]);
    running.finish(Duration::ZERO).await;
    assert!(old.upgrade().is_some(), "pushes may still reach it");
    assert_eq!(names(&view), ["b_level"]);
    drop(under_way);
    running.finish(DRAIN).await;
    assert!(old.upgrade().is_none(), "nothing leads there");
    running.stop(DRAIN).await;
}
