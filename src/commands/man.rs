// SPDX-License-Identifier: Apache-2.0

//! `man`: the manual page tidegate(1), made from the command line's own description.
//!
//! One page has all commands, so that a reader can search it. The text is roff with the macros of man(7).

use clap::{Arg, Command};

use super::Failure;
use super::completion::described;
use crate::built::{DATE, VERSION};
use crate::print_line;

/// The last sections.
const END: &str = ".SH FILES
.TP
.I /etc/tidegate/config.yaml
The configuration of the service that packages install.
.TP
.I /etc/tidegate/environment
Lines NAME=VALUE for ${env:NAME} in that configuration.
.TP
.I /var/lib/tidegate
Queues and other state of the service.
.SH EXIT STATUS
0 after a success, 1 after a failure, 2 if the command line is wrong.
.SH SEE ALSO
The documents in
.IR /usr/share/doc/tidegate .
";

/// Prints the page.
///
/// # Errors
/// None.
pub(super) fn run() -> Result<(), Failure> {
    print_line!("{}", page().trim_end());
    Ok(())
}

fn page() -> String {
    let mut command = described().disable_help_subcommand(true);
    command.build();
    let mut page = format!(".TH TIDEGATE 1 \"{DATE}\" \"tidegate {VERSION}\" \"User Commands\"\n");
    page.push_str(".SH NAME\ntidegate \\- telemetry gateway for AI\\-inference clusters\n.SH SYNOPSIS\n");
    usage(&mut page, &mut command);
    page.push_str(".SH DESCRIPTION\n");
    description(&mut page, &command);
    page.push_str(".SH OPTIONS\n");
    arguments(&mut page, &command, true);
    examples(&mut page, &command);
    page.push_str(".SH COMMANDS\n");
    commands(&mut page, &mut command);
    page.push_str(END);
    page
}

/// All commands below a command.
fn commands(page: &mut String, above: &mut Command) {
    let is_shown = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
    for command in above.get_subcommands_mut().filter(is_shown) {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        page.push_str(&format!(".SS \"{}\"\n", line(name)));
        description(page, command);
        usage(page, command);
        arguments(page, command, false);
        examples(page, command);
        commands(page, command);
    }
}

fn description(page: &mut String, command: &Command) {
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        paragraphs(page, &about.to_string());
    }
}

/// The usage in lines as they are.
fn usage(page: &mut String, command: &mut Command) {
    let usage = command.render_usage().to_string();
    page.push_str(".PP\n.nf\n");
    for text in usage.trim_start_matches("Usage:").lines() {
        page.push_str(&format!("{}\n", line(text.trim())));
    }
    page.push_str(".fi\n");
}

/// The options, and the arguments without a name. Each command has `--help`: only the `main` one says so.
fn arguments(page: &mut String, command: &Command, is_main: bool) {
    let is_shown = |argument: &&Arg| !argument.is_hide_set() && (is_main || argument.get_id() != "help");
    for argument in command.get_arguments().filter(is_shown) {
        let short = argument.get_short().filter(|_| argument.get_long().is_some());
        let short = short.map(|short| format!("-{short}, ")).unwrap_or_default();
        page.push_str(&format!(".TP\n.B {}\n", line(&format!("{short}{argument}"))));
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        for text in help.lines().filter(|text| !text.is_empty()) {
            page.push_str(&format!("{}\n", line(text.trim())));
        }
        for note in notes(argument) {
            page.push_str(&format!("{}\n", line(&note)));
        }
    }
}

/// The values that an option takes or has without being set, as the help shows them.
fn notes(argument: &Arg) -> Vec<String> {
    if !argument.get_action().takes_values() {
        return Vec::new();
    }
    let values = argument.get_possible_values();
    let values: Vec<&str> = values
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let variable = argument
        .get_env()
        .map(|name| format!("[env: {}]", name.to_string_lossy()));
    let list = |title: &str, words: String| (!words.is_empty()).then(|| format!("[{title}: {words}]"));
    let is_default_shown = !argument.is_hide_default_value_set();
    let notes = [
        list("possible values", values.join(", ")).filter(|_| !argument.is_hide_possible_values_set()),
        list("default", defaults.join(" ")).filter(|_| is_default_shown),
        variable,
    ];
    notes.into_iter().flatten().collect()
}

/// What the help shows after the options.
fn examples(page: &mut String, command: &Command) {
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after {
        page.push_str(".PP\n");
        paragraphs(page, &after.to_string());
    }
}

/// Text whose empty lines divide paragraphs. Indented lines stay as they are.
fn paragraphs(page: &mut String, text: &str) {
    let mut was_indented = false;
    for text in text.lines() {
        let is_indented = text.starts_with(' ');
        if text.trim().is_empty() {
            page.push_str(".PP\n");
        } else {
            if was_indented || is_indented {
                page.push_str(".br\n");
            }
            page.push_str(&format!("{}\n", line(text)));
        }
        was_indented = is_indented;
    }
}

/// A line of text in which nothing is a command of roff.
fn line(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_commands_and_options_that_the_help_shows() {
        let page = page();
        for part in [
            ".TH TIDEGATE 1 ",
            ".SS \"tidegate run\"",
            ".SS \"tidegate config convert\"",
            ".SS \"tidegate man\"",
            ".B \\-c, \\-\\-config <FILE>",
            ".B \\-\\-feature\\-gates <GATES>",
            ".SH FILES",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        for hidden in ["plugin\\-host", "tidegate help"] {
            assert!(!page.contains(hidden), "{hidden} is in {page}");
        }
    }

    #[test]
    fn lines_begin_with_known_macros_only() {
        const MACROS: &[&str] = &[
            ".B", ".I", ".IR", ".PP", ".SH", ".SS", ".TH", ".TP", ".br", ".fi", ".nf",
        ];
        for line in page().lines().filter(|line| line.starts_with(['.', '\''])) {
            let first = line.split(' ').next().unwrap();
            assert!(MACROS.contains(&first), "{line}");
        }
        assert_eq!(line(".a\\b-c"), "\\&.a\\eb\\-c");
    }
}
