// SPDX-License-Identifier: Apache-2.0

//! `completion`: scripts for shells, made from the command line's own description.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::components;
use super::{Cli, Failure};
use crate::config::Class;

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
