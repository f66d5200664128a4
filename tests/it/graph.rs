// SPDX-License-Identifier: Apache-2.0

//! `tidegate graph`: the pipelines of every example configuration, in every format.

use std::fs;
use std::path::PathBuf;

use super::examples::examples;
use super::kit::gateway::tidegate;
use super::kit::plugins;

const FORMATS: [&str; 4] = ["text", "dot", "mermaid", "svg"];

fn in_checkout(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The output for a configuration without problems.
fn graph(config: &str, format: &str) -> String {
    let output = tidegate()
        .args(["graph", "--config", config, "--format", format])
        .env("QUICKSTART_RINGS", "/tmp")
        .env("PLUGIN_DIR", plugins::examples())
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{config}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The components that the lists of the section `service` name.
fn components(yaml: &str) -> Vec<&str> {
    let (_, service) = yaml.split_once("\nservice:").expect("a service");
    let lists = service
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split(']').next());
    lists.flat_map(|list| list.split(',')).map(str::trim).collect()
}

/// Whether both texts occur equally often.
fn is_balanced(text: &str, begin: &str, end: &str) -> bool {
    text.matches(begin).count() == text.matches(end).count()
}

fn is_well_formed(text: &str, format: &str) -> bool {
    match format {
        "text" => text.starts_with("pipeline ") && text.lines().all(|line| line.chars().count() <= 80),
        "dot" => text.starts_with("digraph ") && is_balanced(text, "{", "}"),
        "mermaid" => text.starts_with("flowchart LR\n") && is_balanced(text, "  subgraph ", "  end\n"),
        _ => {
            let elements = [("<g>", "</g>"), ("<text ", "</text>"), ("<title>", "</title>")];
            let mut elements = elements.into_iter();
            text.starts_with("<svg ")
                && text.ends_with("</svg>\n")
                && elements.all(|(begin, end)| is_balanced(text, begin, end))
        }
    }
}

#[test]
fn every_format_shows_all_components_of_every_example() {
    for path in examples() {
        let yaml = fs::read_to_string(&path).expect("a file");
        let components = components(&yaml);
        assert!(components.len() >= 2, "{}", path.display());
        for format in FORMATS {
            let text = graph(&path.to_string_lossy(), format);
            assert!(is_well_formed(&text, format), "{text}");
            for component in &components {
                let label = match format {
                    "text" => (*component).to_owned(),
                    "dot" => format!("label=\"{component}\""),
                    "mermaid" => format!("\"{component}\""),
                    _ => format!(">{component}</text>"),
                };
                assert!(text.contains(&label), "{label}\n{text}");
            }
        }
    }
}

#[test]
fn graph_reports_the_problems_that_validate_reports() {
    let corpus = in_checkout("tests/data/config/collector");
    let entries = corpus.read_dir().expect("the corpus is there");
    let (mut valid, mut invalid) = (0, 0);
    for path in entries.map(|entry| entry.expect("it can be listed").path()) {
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let [graph, validate] = ["graph", "validate"].map(|command| {
            let mut tidegate = tidegate();
            tidegate.current_dir(&corpus).env_remove("TIDEGATE_TEST_UNSET");
            let output = tidegate.arg(command).arg("--config").arg(&path).output();
            output.expect("it starts")
        });
        assert_eq!(graph.status, validate.status, "{}", path.display());
        let [problems, expected] =
            [graph.stderr, validate.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(problems, expected, "{}", path.display());
        assert_eq!(
            graph.stdout.is_empty(),
            !graph.status.success(),
            "{}",
            path.display()
        );
        let count = if graph.status.success() {
            &mut valid
        } else {
            &mut invalid
        };
        *count += 1;
    }
    assert!(
        valid > 0 && invalid > 0,
        "{valid} valid files, {invalid} invalid ones"
    );
}

#[test]
fn no_format_shows_options_of_components() {
    let config = "yaml:
receivers: {nop: {}}
exporters: {otlphttp: {endpoint: \"http://hidden.example.com\", headers: {api-key: hidden}}}
service: {pipelines: {logs: {receivers: [nop], exporters: [otlphttp]}}}
";
    for format in FORMATS {
        let text = graph(config, format);
        assert!(text.contains("otlphttp") && !text.contains("hidden"), "{text}");
    }
}

#[test]
fn the_documentation_shows_what_the_command_prints() {
    let example = in_checkout("config/sockets-to-file.yaml");
    let text = graph(&example.to_string_lossy(), "text");
    let page = include_str!("../../docs/processors.md");
    assert!(page.contains(&format!("```text\n{text}```\n")), "{text}");
}
