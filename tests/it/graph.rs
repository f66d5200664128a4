// SPDX-License-Identifier: Apache-2.0

//! `tidegate graph`: the pipelines of every example configuration, in every format.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::examples::examples;
use super::kit::command::{Finished, finished};
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

/// A quoted text of Graphviz at the beginning, with its escapes, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = inner.find(|character| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    })?;
    Some((&inner[..end], &inner[end + 1..]))
}

/// The number of links of a graph of Graphviz.
///
/// # Panics
/// If a line is not a statement, a block has no end, a node is declared twice, or a link has an undeclared node.
fn links(dot: &str) -> usize {
    let (mut nodes, mut links, mut open) = (BTreeSet::new(), Vec::new(), 0_usize);
    for line in dot.lines().map(str::trim) {
        if line.ends_with('{') {
            open += 1;
        } else if line == "}" {
            open -= 1;
        } else if let Some((from, rest)) = quoted(line) {
            if let Some(to) = rest.strip_prefix(" -> ") {
                let (to, end) = quoted(to).expect("a node");
                assert_eq!(end, ";", "{line}");
                links.push([from, to]);
            } else {
                let label = rest.strip_prefix(" [label=").and_then(quoted);
                let is_node = label.is_some_and(|(_, rest)| rest.ends_with("];"));
                assert!(is_node && nodes.insert(from), "{line}\n{dot}");
            }
        } else {
            assert!(line.ends_with(';'), "{line}\n{dot}");
        }
    }
    assert_eq!(open, 0, "{dot}");
    for link in &links {
        assert!(link.iter().all(|node| nodes.contains(node)), "{link:?}\n{dot}");
    }
    links.len()
}

/// A configuration whose exporter has a name of markup.
const ODD: &str = r#"receivers: {nop: {}}
exporters: {'nop/<"odd" & \b>': {}}
connectors: {forward: {}}
service:
  pipelines:
    metrics/in: {receivers: [nop], exporters: [forward]}
    metrics/out: {receivers: [forward], exporters: ['nop/<"odd" & \b>']}
"#;

/// Reads the files of its arguments with a strict parser. Prints the number of arrows of each, and its texts.
const READ_SVG: &str = r#"
import json, sys, xml.etree.ElementTree as ElementTree
SVG = "{http://www.w3.org/2000/svg}"
KNOWN = {SVG + name for name in ("svg", "title", "style", "marker", "g", "rect", "path", "text")}
pictures = []
for file in sys.argv[1:]:
    root = ElementTree.parse(file).getroot()
    names = {element.tag for element in root.iter()}
    if root.tag != SVG + "svg" or not names <= KNOWN:
        sys.exit(f"{file}: {names}")
    for box in root.iter(SVG + "rect"):
        for begin, size in (("x", "width"), ("y", "height")):
            first = int(box.get(begin, 0))
            if first < 0 or first + int(box.get(size)) > int(root.get(size)):
                sys.exit(f"{file}: a box outside the picture: {box.attrib}")
    arrows = sum(path.get("class") == "l" for path in root.iter(SVG + "path"))
    pictures.append({"arrows": arrows, "texts": [text.text for text in root.iter(SVG + "text")]})
print(json.dumps(pictures))
"#;

#[test]
fn strict_readers_find_every_link_in_dot_and_svg() {
    let directory = TempDir::new().expect("a temporary directory");
    let odd = directory.path().join("odd.yaml");
    fs::write(&odd, ODD).expect("a file of the test");
    let mut configs = examples();
    configs.push(odd);
    let mut python = Command::new("python3");
    python.args(["-c", READ_SVG]);
    let mut expected = Vec::new();
    for (at, config) in configs.iter().enumerate() {
        let (config, file) = (
            config.to_string_lossy(),
            directory.path().join(format!("{at}.svg")),
        );
        fs::write(&file, graph(&config, "svg")).expect("a file of the test");
        python.arg(&file);
        expected.push(links(&graph(&config, "dot")));
    }
    let Finished { code, output, errors } = finished(&mut python);
    assert_eq!(code, Some(0), "{errors}");
    let pictures: Vec<Value> = serde_json::from_str(&output).expect("a list");
    let arrows: Vec<_> = pictures
        .iter()
        .map(|picture| picture["arrows"].as_u64())
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|links| Some(links as u64)).collect();
    assert_eq!(arrows, expected, "{configs:?}");
    assert_eq!(expected.last(), Some(&Some(4)));
    let texts = pictures.last().map(|picture| picture["texts"].to_string());
    let name = Value::from(r#"nop/<"odd" & \b>"#).to_string();
    assert!(texts.is_some_and(|texts| texts.contains(&name)), "{output}");
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
