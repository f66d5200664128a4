// SPDX-License-Identifier: Apache-2.0

//! `config print`: the effective configuration, with all secrets masked.

use crate::commands::Failure;
use crate::commands::load::{self, Checked, ConfigArgs};
use crate::config::{SubstitutedValues, print_yaml, redacted};
use crate::print_line;

/// Arguments of `config print`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The output is a configuration too: `$$` stands for a literal `$`. It shows values of \
`${...}`, except those of secrets.\n\nExit code 0 when the configuration has no errors, 1 with the list of \
problems on standard error otherwise. A configuration with errors is printed if all its files can be read.\n\n\
Example:\n  tidegate config print --config gateway.yaml --set service.telemetry.logs.level=debug"
)]
pub(super) struct PrintArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = PrintFormat::Yaml)]
    format: PrintFormat,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PrintFormat {
    /// As configurations are written
    Yaml,
    /// For programs
    Json,
}

/// Prints the configuration, then its problems.
pub(super) fn run(args: &PrintArgs) -> Result<(), Failure> {
    let checked = load::check(&args.config);
    if let Some(text) = text(&checked, args.format) {
        print_line!("{text}");
    }
    checked.print_problems()
}

/// The configuration without the last line break; `None` if a part of it could not be read.
fn text(checked: &Checked, format: PrintFormat) -> Option<String> {
    let document = checked.document.as_ref().filter(|_| checked.is_read)?;
    let root = redacted(&document.root, &checked.problems, SubstitutedValues::Shown);
    Some(match format {
        PrintFormat::Yaml => print_yaml(&root).trim_end().to_owned(),
        PrintFormat::Json => format!("{:#}", root.to_json()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PrintArgs,
    }

    fn printed(arguments: &[&str]) -> Option<String> {
        let line = Line::parse_from([&["print"], arguments].concat());
        text(&load::check(&line.args.config), line.args.format)
    }

    const NOP: &str = "yaml:{receivers: {nop: }, exporters: {nop: {}}, service: {pipelines: {logs: \
                       {receivers: [nop], exporters: [nop]}}}}";

    #[test]
    fn all_files_and_sets_are_in_the_text_and_in_the_json() {
        let arguments = [
            "--config",
            NOP,
            "--config",
            "yaml:exporters: {nop/b: }",
            "--set",
            "service.drain_timeout=3s",
        ];
        let text = printed(&arguments).unwrap();
        assert_eq!(
            text,
            "receivers:\n  nop: null\nexporters:\n  nop: {}\n  nop/b: null\nservice:\n  pipelines:\n    logs:\n      \
             receivers:\n        - nop\n      exporters:\n        - nop\n  drain_timeout: \"3s\""
        );
        let json = printed(&[&arguments[..], &["--format", "json"]].concat()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["service"]["drain_timeout"], "3s");
        assert_eq!(json["exporters"]["nop"], serde_json::json!({}));
    }

    #[test]
    fn a_configuration_with_mistakes_is_printed_and_half_of_one_is_not() {
        let text = printed(&[
            "--config",
            "yaml:receivers: {nosuch: {access: {keys: hunter2}, port: 1}}",
        ]);
        let text = text.unwrap();
        assert!(
            text.contains("keys: \"[REDACTED]\"") && text.contains("port: 1"),
            "{text}"
        );
        assert_eq!(printed(&["--config", NOP, "--config", "yaml:receivers: ["]), None);
    }
}
