// SPDX-License-Identifier: Apache-2.0

//! `config`: the configuration as the gateway reads it, its layout, and configurations of other programs.

mod convert;
mod fmt;
mod print;
mod schema;

use clap::Subcommand;

use super::Failure;

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub struct ConfigCommandArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the configuration after the merge of all files, `--set` and `${...}`, with all secrets masked
    Print(print::PrintArgs),
    /// Convert a configuration of a Collector, of Prometheus or of vmagent, and list what it can't carry over
    Convert(convert::ConvertArgs),
    /// Format configurations: sections in order, indentation by two spaces, comments as they are
    Fmt(fmt::FmtArgs),
    /// Print a JSON Schema of the configuration, with which editors check and complete files
    #[command(
        after_help = "Example:\n  tidegate config schema > tidegate.schema.json\n\nAs first line of a \
configuration:\n  # yaml-language-server: $schema=tidegate.schema.json"
    )]
    Schema,
}

/// Runs the subcommand.
///
/// # Errors
/// The configuration has errors, or a file can't be read, converted or written.
pub fn run(args: &ConfigCommandArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Print(args) => print::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Fmt(args) => fmt::run(args),
        Command::Schema => schema::run(),
    }
}
