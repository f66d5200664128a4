// SPDX-License-Identifier: Apache-2.0

//! `completion`: scripts for shells, made from the command line's own description.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::{Cli, Failure, components, output};
use crate::config::Class;
use crate::print_line;

/// Adds the names of composites to the script for bash. The gateway at `TIDEGATE_ADMIN` has them. Without an answer within a
/// second there are none, and no message.
const BASH_COMPOSITES: &str = r#"
_tidegate_with_composites() {
    if [[ $COMP_CWORD -eq 3 && ${COMP_WORDS[1]} == composites && ${COMP_WORDS[2]} == @(get|watch) && $2 != -* ]]; then
        local name
        COMPREPLY=()
        while IFS= read -r name; do
            [[ $name == "$2"* ]] && COMPREPLY+=("$name")
        done < <(timeout 1 "$1" composites ls --names 2>/dev/null)
    else
        _tidegate "$@"
    fi
}
complete -F _tidegate_with_composites -o bashdefault -o default tidegate"#;

/// The same for fish, after the lines that complete component types.
const FISH_COMPOSITES: &str = r#"
function __fish_tidegate_composites
    set -l words (commandline -opc)
    timeout 1 $words[1] composites ls --names 2>/dev/null
end
complete -c tidegate -n "test (count (commandline -opc)) -eq 3; and __fish_tidegate_using_subcommand composites; and __fish_seen_subcommand_from get watch" -f -a "(__fish_tidegate_composites)""#;

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tidegate completion bash > /etc/bash_completion.d/tidegate")]
pub struct CompletionArgs {
    /// The shell to complete for
    shell: Shell,
}

/// Writes the script to standard output.
///
/// # Errors
/// None.
pub fn run(args: &CompletionArgs) -> Result<(), Failure> {
    // It panics if it can't write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut described(), "tidegate", &mut script);
    output::print(format_args!("{}", String::from_utf8_lossy(&script)));
    match args.shell {
        Shell::Bash => print_line!("{BASH_COMPOSITES}"),
        Shell::Fish => print_line!("{}{FISH_COMPOSITES}", fish_kinds()),
        _ => {}
    }
    Ok(())
}

/// The words that `components` takes: classes and types first, then types.
fn component_words() -> [Vec<&'static str>; 2] {
    let kinds: BTreeSet<_> = components::all().iter().map(|about| about.kind).collect();
    let classes = Class::ALL.map(Class::as_str);
    let first = classes.into_iter().chain(kinds.iter().copied()).collect();
    [first, kinds.into_iter().collect()]
}

/// Lines for fish, whose generated script has no values of arguments.
fn fish_kinds() -> String {
    let lines = component_words()
        .into_iter()
        .zip([2, 3])
        .map(|(words, position)| {
            format!(
                "complete -c tidegate -n \"test (count (commandline -opc)) -eq {position}; and \
             __fish_tidegate_using_subcommand components\" -f -a \"{}\"",
                words.join(" ")
            )
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// The command line with the component types of this binary. The command itself takes other words too, for its error.
pub(super) fn described() -> clap::Command {
    let [first, kinds] = component_words();
    Cli::command().mut_subcommand("components", |command| {
        command
            .mut_arg("class", |class| {
                class.value_parser(PossibleValuesParser::new(first))
            })
            .mut_arg("kind", |kind| kind.value_parser(PossibleValuesParser::new(kinds)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_know_component_types_and_options() {
        for shell in [Shell::Bash, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut described(), "tidegate", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["nixl_mp", "memory_limiter", "receiver", "fail-empty"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        let fish = fish_kinds();
        let lines: Vec<_> = fish.lines().collect();
        assert_eq!(lines.len(), 2, "{fish}");
        assert!(lines[0].contains("-eq 2") && lines[0].contains("\"receiver processor "));
        assert!(lines[1].contains("-eq 3") && !lines[1].contains("receiver "));
        assert!(lines.iter().all(|line| line.contains(" nixl_mp ")), "{fish}");
    }
}
