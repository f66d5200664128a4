// SPDX-License-Identifier: Apache-2.0

//! The problems of a configuration for programs.

use serde_json::{Map, Value, json};

use crate::config::{Problem, Problems, Severity};

/// All problems, in the order of the files.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    /// The configuration has no errors.
    ok: bool,
    problems: Vec<Finding<'a>>,
    warnings: Vec<Finding<'a>>,
    /// Further ones, which are only counted.
    omitted: usize,
}

/// A problem with its position, as far as it has one.
#[derive(Debug)]
struct Finding<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    path: Option<&'a str>,
    message: &'a str,
    help: Option<&'a str>,
}

impl<'a> Findings<'a> {
    /// The findings of a load.
    pub(super) fn of(problems: &'a Problems) -> Self {
        let of_severity = |severity: Severity| {
            let found = problems.sorted().into_iter();
            let found = found.filter(|problem| problem.severity == severity);
            found.map(|problem| Finding::of(problem, problems)).collect()
        };
        Self {
            ok: !problems.has_errors(),
            problems: of_severity(Severity::Error),
            warnings: of_severity(Severity::Warning),
            omitted: problems.omitted(),
        }
    }

    /// The object that programs read.
    pub(super) fn json(&self) -> Value {
        let list = |findings: &[Finding<'_>]| Value::Array(findings.iter().map(Finding::json).collect());
        json!({
            "ok": self.ok,
            "problems": list(&self.problems),
            "warnings": list(&self.warnings),
            "omitted": self.omitted,
        })
    }

    /// The lines that annotate files in GitHub Actions.
    pub(super) fn workflow_commands(&self) -> Vec<String> {
        let errors = self.problems.iter();
        let errors = errors.map(|problem| problem.workflow_command("error"));
        let warnings = self.warnings.iter();
        let warnings = warnings.map(|warning| warning.workflow_command("warning"));
        let more = (self.omitted > 0).then(|| format!("::warning::{} more problems", self.omitted));
        errors.chain(warnings).chain(more).collect()
    }
}

impl<'a> Finding<'a> {
    fn of(problem: &'a Problem, problems: &'a Problems) -> Self {
        Self {
            file: problem.span.map(|span| problems.sources().name(span.file)),
            line: problem.span.map(|span| span.line),
            column: problem.span.map(|span| span.column),
            path: Some(problem.path.as_str()).filter(|path| !path.is_empty()),
            message: &problem.message,
            help: problem.help.as_deref(),
        }
    }

    fn json(&self) -> Value {
        let fields = [
            ("file", self.file.map(Value::from)),
            ("line", self.line.map(Value::from)),
            ("column", self.column.map(Value::from)),
            ("path", self.path.map(Value::from)),
            ("message", Some(Value::from(self.message))),
            ("help", self.help.map(Value::from)),
        ];
        let known = fields
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Object(known.collect::<Map<_, _>>())
    }

    fn workflow_command(&self, level: &str) -> String {
        let position = match (self.file.filter(|name| is_path(name)), self.line, self.column) {
            (Some(file), Some(line), Some(column)) => {
                format!(" file={},line={line},col={column}", escaped_property(file))
            }
            _ => String::new(),
        };
        let path = self.path.map(|path| format!("{path}: ")).unwrap_or_default();
        let help = self.help.map(|help| format!("\nhelp: {help}"));
        let text = format!("{path}{}{}", self.message, help.unwrap_or_default());
        format!("::{level}{position}::{}", escaped(&text))
    }
}

/// Whether a configuration of this name is a file, and not an argument, a variable or a URL.
fn is_path(name: &str) -> bool {
    !name.starts_with("--") && !name.starts_with("env:") && !name.contains("://")
}

/// A message of a workflow command.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn problems(name: &str) -> Problems {
        let mut problems = Problems::default();
        let root = parse_text(name, "limit: 0\n", &mut problems).unwrap();
        let at = problems.at(root.child("limit"));
        at.help("50%\nor less").error("too small, or: too large");
        problems.at_span(None, "--feature-gates").warning("no effect");
        problems
    }

    #[test]
    fn workflow_commands_have_the_escapes_of_github() {
        assert_eq!(
            Findings::of(&problems("a,b:c%.yaml")).workflow_commands(),
            [
                "::error file=a%2Cb%3Ac%25.yaml,line=1,col=8::limit: too small, or: too large%0Ahelp: 50%25%0Aor less",
                "::warning::--feature-gates: no effect",
            ]
        );
        for name in ["--set", "env:GATEWAY", "https://a.example/b.yaml"] {
            let commands = Findings::of(&problems(name)).workflow_commands();
            assert!(commands[0].starts_with("::error::limit: "), "{commands:?}");
        }
    }

    #[test]
    fn json_has_the_position_of_each_problem_as_far_as_it_is_known() {
        assert_eq!(
            Findings::of(&problems("a.yaml")).json(),
            json!({
                "ok": false,
                "problems": [{
                    "file": "a.yaml",
                    "line": 1,
                    "column": 8,
                    "path": "limit",
                    "message": "too small, or: too large",
                    "help": "50%\nor less",
                }],
                "warnings": [{"path": "--feature-gates", "message": "no effect"}],
                "omitted": 0,
            })
        );
    }

    #[test]
    fn problems_beyond_the_most_are_counted() {
        let mut problems = Problems::default();
        for _ in 0..300 {
            problems.at_span(None, "").error("wrong");
        }
        let findings = Findings::of(&problems);
        let json = findings.json();
        assert_eq!(json["problems"][0], json!({"message": "wrong"}));
        let listed = json["problems"].as_array().unwrap().len() as u64;
        assert_eq!(json["omitted"].as_u64(), Some(300 - listed));
        let commands = findings.workflow_commands();
        let more = format!("::warning::{} more problems", 300 - listed);
        assert_eq!(commands.last(), Some(&more));
    }
}
