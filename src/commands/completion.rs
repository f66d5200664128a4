// SPDX-License-Identifier: Apache-2.0

//! `completion`: scripts for shells, made from the command line's own description.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use super::{Cli, Failure, components, output};
use crate::config::Class;
use crate::print_line;

/// Adds the names of composites and of components to the script for bash. The gateway at `TIDEGATE_ADMIN` has them. Without an
/// answer within a second there are none, and no message.
const BASH_NAMES: &str = r#"
_tidegate_with_names() {
    # Names may have colons, at which the shell divides words.
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:space:]]}
    local -a before list=()
    read -ra before <<< "${line%"$word"}"
    if [[ ${#before[@]} -eq 3 && ${before[1]} == composites && ${before[2]} == @(get|watch) ]]; then
        list=(composites ls --names)
    elif [[ ${#before[@]} -eq 2 && ${before[1]} == tap ]]; then
        list=(top --names)
    fi
    if [[ ${#list[@]} -gt 0 && $word != -* ]]; then
        local name begin=
        # The shell inserts what follows the last colon.
        [[ $COMP_WORDBREAKS == *:* ]] && begin=${word%"${word##*:}"}
        COMPREPLY=()
        while IFS= read -r name; do
            [[ $name == "$word"* ]] && COMPREPLY+=("${name#"$begin"}")
        done < <(timeout 1 "$1" "${list[@]}" 2>/dev/null)
    else
        _tidegate "$@"
    fi
}
complete -F _tidegate_with_names -o bashdefault -o default tidegate"#;

/// The same for fish, after the lines that complete component types.
const FISH_NAMES: &str = r#"
function __fish_tidegate_composites
    set -l words (commandline -opc)
    timeout 1 $words[1] composites ls --names 2>/dev/null
end
complete -c tidegate -n "test (count (commandline -opc)) -eq 3; and __fish_tidegate_using_subcommand composites; and __fish_seen_subcommand_from get watch" -f -a "(__fish_tidegate_composites)"

function __fish_tidegate_components
    set -l words (commandline -opc)
    timeout 1 $words[1] top --names 2>/dev/null
end
complete -c tidegate -n "test (count (commandline -opc)) -eq 2; and __fish_tidegate_using_subcommand tap" -f -a "(__fish_tidegate_components)""#;

/// The same for zsh. The program goes by its name: the generated script has changed `words`.
const ZSH_NAMES: &str = r#"
_tidegate_composite_names() {
    local -a names
    names=(${(f)"$(_call_program names timeout 1 tidegate composites ls --names)"})
    compadd -a names
}

_tidegate_component_names() {
    local -a names
    names=(${(f)"$(_call_program names timeout 1 tidegate top --names)"})
    compadd -a names
}
"#;

/// How the lines of arguments begin for which a function of [`ZSH_NAMES`] completes.
const ZSH_ARGUMENTS: [(&str, &str); 2] = [
    ("':name -- ", "_tidegate_composite_names"),
    ("':component -- ", "_tidegate_component_names"),
];

/// How the last statement of the generated script for zsh begins.
const ZSH_END: &str = "\nif [ \"$funcstack[1]\" = \"_tidegate\" ]";

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
    let script = String::from_utf8_lossy(&script);
    if args.shell == Shell::Zsh {
        output::print(format_args!("{}", with_zsh_names(&script)));
        return Ok(());
    }
    output::print(format_args!("{script}"));
    match args.shell {
        Shell::Bash => print_line!("{BASH_NAMES}"),
        Shell::Fish => print_line!("{}{FISH_NAMES}", fish_kinds()),
        _ => {}
    }
    Ok(())
}

/// The script for zsh with names that the gateway has.
fn with_zsh_names(script: &str) -> String {
    let line = |line: &str| {
        let mut arguments = ZSH_ARGUMENTS.iter();
        match arguments.find(|(begin, _)| line.starts_with(begin)) {
            Some((_, function)) => line.replace(":_default'", &format!(":{function}'")),
            None => line.to_owned(),
        }
    };
    let script: String = script.split_inclusive('\n').map(line).collect();
    script.replace(ZSH_END, &format!("{ZSH_NAMES}{ZSH_END}"))
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
    fn the_script_for_zsh_asks_the_gateway_for_names() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Zsh, &mut described(), "tidegate", &mut script);
        let script = with_zsh_names(&String::from_utf8(script).unwrap());
        for ((begin, function), count) in ZSH_ARGUMENTS.into_iter().zip([2, 1]) {
            let completes = |line: &&str| line.starts_with(begin) && line.contains(&format!(":{function}'"));
            assert_eq!(script.lines().filter(completes).count(), count, "{script}");
            assert_eq!(
                script.matches(&format!("\n{function}() {{\n")).count(),
                1,
                "{script}"
            );
        }
        let (before, _) = script.split_once(ZSH_END).unwrap();
        assert!(before.ends_with(ZSH_NAMES), "{script}");
    }

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
