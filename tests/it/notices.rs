// SPDX-License-Identifier: Apache-2.0

//! Likely mistakes in the configuration that show while data passes: one line in the log, at the API and in `explain`.

use super::kit::gateway::tidegate;
use super::kit::{Gateway, SOON, free_port, http, wait_until};
use serde_json::Value as Json;

/// The expected notices: component and text.
const EXPECTED: [(&str, &str); 5] = [
    (
        "processors::composite@metrics",
        "the composite `typo` has matched nothing since the start: no metric `quue` with the selected attributes arrived; did you mean `queue`?",
    ),
    (
        "processors::composite@metrics",
        "the composite `depth`: no series has the attribute `zoen` of `by`",
    ),
    (
        "processors::aggregate@metrics",
        "rules[0] has matched nothing since the start: no metric `quue` with the selected attributes arrived",
    ),
    (
        "processors::aggregate@metrics",
        "rules[1]: no series has the attribute `pdo` of `without`",
    ),
    ("receivers::nixl", "later does not exist; it is looked for again"),
];

struct Scene {
    gateway: Gateway,
    input: u16,
    admin: u16,
    folder: tempfile::TempDir,
}

impl Scene {
    fn start() -> Self {
        let (input, admin) = (free_port(), free_port());
        let folder = tempfile::tempdir().expect("a folder");
        let gateway = Gateway::start(&format!(
            "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
  nixl: {{directories: [\"{folder}/later\"], scan_interval: 50ms}}
processors:
  composite:
    warn_after: 1s
    composites:
      - {{name: typo, metric: quue, function: max}}
      - {{name: depth, metric: queue, function: max, across: max, by: [pod, zoen]}}
  aggregate:
    warn_after: 1s
    rules:
      - {{match: {{name: quue}}}}
      - {{match: {{name: queue}}, without: [pdo], aggregation: max}}
exporters:
  debug: {{}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp, nixl], processors: [composite, aggregate], exporters: [debug]}}}}
",
            folder = folder.path().display()
        ));
        Self {
            gateway,
            input,
            admin,
            folder,
        }
    }

    fn push(&self, name: &str, attribute: &str) {
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"{name}","gauge":{{"dataPoints":[
            {{"asInt":"7","attributes":[{{"key":"{attribute}","value":{{"stringValue":"x"}}}}]}}]}}}}]}}]}}]}}"#
        );
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("it lives").status, 200);
    }

    /// Component and text of every notice at the API.
    fn listed(&self) -> Vec<(String, String)> {
        let page = http::get(self.admin, "/api/v1/status/notices")
            .expect("a page")
            .json();
        let all = page["data"].as_object().expect("an object").clone();
        let of = |(component, texts): (String, Json)| {
            let texts = texts.as_array().expect("a list").clone();
            let text = |text: Json| text.as_str().expect("a text").to_owned();
            texts
                .into_iter()
                .map(move |one| (component.clone(), text(one)))
                .collect::<Vec<_>>()
        };
        all.into_iter().flat_map(of).collect()
    }

    fn lists(&self, expected: &(&str, &str)) -> bool {
        self.listed()
            .iter()
            .any(|(component, text)| component.starts_with(expected.0) && text.contains(expected.1))
    }

    /// The output of `tidegate explain` for this series, or without one.
    fn explained(&self, series: &[&str]) -> String {
        let endpoint = format!("http://127.0.0.1:{}", self.admin);
        let output = tidegate()
            .args(["explain", "--endpoint", &endpoint])
            .args(series)
            .output()
            .expect("a command");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn what_matches_nothing_is_named_once_and_until_it_does() {
    let mut scene = Scene::start();
    scene.push("queue", "pod");
    wait_until(SOON, "all notices", || {
        EXPECTED.iter().all(|expected| scene.lists(expected))
    });
    assert_eq!(scene.listed().len(), EXPECTED.len(), "{:?}", scene.listed());
    for series in [&["queue"][..], &[]] {
        let explained = scene.explained(series);
        for (component, text) in EXPECTED {
            let mut lines = explained.lines();
            let is_it =
                |line: &str| line.starts_with(&format!("notice    {component}")) && line.contains(text);
            assert!(lines.any(is_it), "{component}: {text} is not in {explained}");
        }
        assert_eq!(explained.contains("  value "), !series.is_empty(), "{explained}");
    }
    let explained = scene.explained(&["typo"]);
    let expected =
        "  matches   nothing: no metric `quue` with the selected attributes arrived; did you mean `queue`?\n";
    assert!(explained.contains(expected), "{explained}");

    // A directory or a metric that comes later is not a mistake.
    std::fs::create_dir(scene.folder.path().join("later")).expect("a folder");
    scene.push("quue", "pod");
    wait_until(SOON, "fewer notices", || scene.listed().len() == 2);
    assert!(
        scene.lists(&EXPECTED[1]) && scene.lists(&EXPECTED[3]),
        "{:?}",
        scene.listed()
    );
    scene.push("queue", "zoen");
    scene.push("queue", "pdo");
    wait_until(SOON, "no notices", || scene.listed().is_empty());
    assert!(!scene.explained(&["queue"]).contains("notice"));
    assert_eq!(scene.explained(&[]), "no notices\n");
    scene.gateway.wait_for_log("the directory is there now");

    let log = scene.gateway.stop();
    for (_, text) in EXPECTED {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(text)).collect();
        assert!(lines.len() == 1 && lines[0].contains("WARN"), "{text}: {lines:?}");
    }
    let about = log.lines().filter(|line| line.contains("/later")).count();
    assert_eq!(
        about, 3,
        "that it is watched, that it is not there, and that it is: {log}"
    );
}
