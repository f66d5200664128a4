// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask page`: the page of `admin` in a real browser, Debian's Chromium, driven by Playwright.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::workspace;
use crate::{Outcome, bench, process, pytest, testenv};

/// The option that measures pages that stay open, instead of tests.
const OPEN: &str = "--open";

/// The variable that names a built gateway for the measurement.
const BINARY: &str = "TIDEGATE_BINARY";

/// Installs what is missing, and runs the tests or the measurement. Arguments of tests go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    match arguments {
        [first, others @ ..] if first == OPEN => measure(&Measurement::parse(others)?),
        _ => test(arguments),
    }
}

/// Runs `tests/page`. It takes a minute when the gateway is built. Pictures go to `target/page`.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let programs = [("TIDEGATE_CHROMIUM", chromium()), ("TIDEGATE_PICTURES", output())];
    pytest::run(&["tests/page", "--quiet"], &modules(), &programs, arguments)
}

fn chromium() -> PathBuf {
    testenv::part("chromium")
}

/// The folders of the Python modules.
fn modules() -> [PathBuf; 2] {
    ["playwright", "python-tools"].map(testenv::part)
}

fn output() -> PathBuf {
    process::target().join("page")
}

/// A measurement of open pages.
#[derive(Debug, PartialEq, Eq)]
struct Measurement {
    /// A built gateway. `None`: a release build.
    binary: Option<PathBuf>,
    /// Whether the figures are written into the documentation.
    publish: bool,
    /// The other arguments, which go to the script: minutes, and the number of pages.
    others: Vec<String>,
    /// The command as typed.
    command: String,
}

impl Measurement {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self {
            binary: std::env::var_os(BINARY).map(PathBuf::from),
            publish: false,
            others: Vec::new(),
            command: String::new(),
        };
        let mut typed = arguments.iter();
        while let Some(argument) = typed.next() {
            match argument.as_str() {
                "--publish" => parsed.publish = true,
                "--binary" => {
                    let path = typed.next().ok_or("--binary wants the path of a gateway")?;
                    parsed.binary = Some(path.into());
                }
                _ => parsed.others.push(argument.clone()),
            }
        }
        // The path of a binary says nothing to readers of the documentation.
        let mut words = vec!["cargo xtask page", OPEN];
        words.extend(parsed.others.iter().map(String::as_str));
        words.extend(parsed.publish.then_some("--publish"));
        parsed.command = words.join(" ");
        Ok(parsed)
    }
}

/// Measures what open pages cost. It fails if a figure exceeds its budget.
fn measure(asked: &Measurement) -> Outcome {
    let binary = if let Some(binary) = &asked.binary {
        std::path::absolute(binary).map_err(|error| format!("{}: {error}", binary.display()))?
    } else {
        bench::build_gateway()?;
        process::target().join("release/tidegate")
    };
    let figures = output().join("open.json");
    // Otherwise, figures of an earlier run could be published.
    if figures.exists() {
        fs::remove_file(&figures).map_err(|error| format!("{}: {error}", figures.display()))?;
    }
    let path = std::env::join_paths(modules()).map_err(|error| error.to_string())?;
    let measured = process::stream(
        process::by_hand("python3")
            .arg("tests/page/open_pages.py")
            .arg("--output")
            .arg(&figures)
            .args(&asked.others)
            .current_dir(workspace())
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TIDEGATE_CHROMIUM", chromium())
            .env(BINARY, binary),
    );
    if asked.publish && figures.exists() {
        publish(&figures, &asked.command)?;
    }
    measured
}

/// Writes the figures into `docs/benchmarks.md`, also those that exceed a budget.
fn publish(figures: &Path, command: &str) -> Outcome {
    let mut harness = Command::new(bench::release_harness()?);
    process::stream(harness.args(["-", "pages"]).arg(figures).arg(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Measurement, String> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        Measurement::parse(&arguments)
    }

    #[test]
    fn options_of_the_script_are_passed_on_and_named_in_the_report() {
        let asked = parse(&["0.5", "--binary", "a/tidegate", "--pages", "3", "--publish"]);
        let asked = asked.expect("valid options");
        assert_eq!(asked.binary.as_deref(), Some(Path::new("a/tidegate")));
        assert!(asked.publish);
        assert_eq!(asked.others, ["0.5", "--pages", "3"]);
        assert_eq!(asked.command, "cargo xtask page --open 0.5 --pages 3 --publish");
        assert!(parse(&["--binary"]).is_err());
    }
}
