// SPDX-License-Identifier: Apache-2.0

//! Reloads that are refused.

use super::*;
use crate::commands::load;
use crate::config::Loader;

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
