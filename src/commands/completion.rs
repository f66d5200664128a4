// SPDX-License-Identifier: Apache-2.0

//! `completion`: scripts for shells, made from the command line's own description.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::components;
use super::{Cli, Failure};
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
/// None: failed writes to standard output are not reported.
pub fn run(args: &CompletionArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut described(), "tidegate", &mut std::io::stdout());
    if args.shell == Shell::Bash {
        print_line!("{BASH_COMPOSITES}");
    }
    Ok(())
}

/// The command line with the component types of this binary. The command itself takes other words too, for its error.
fn described() -> clap::Command {
    let kinds: BTreeSet<_> = components::all().iter().map(|about| about.kind).collect();
    let classes = Class::ALL.map(Class::as_str);
    let first: Vec<_> = classes.into_iter().chain(kinds.iter().copied()).collect();
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
        // Scripts for fish have options only.
        for shell in [Shell::Bash, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut described(), "tidegate", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["nixl_mp", "memory_limiter", "receiver", "fail-empty"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
