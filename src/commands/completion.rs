// SPDX-License-Identifier: Apache-2.0

//! `completion`: scripts for shells, made from the command line's own description.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Failure};

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
    clap_complete::generate(
        args.shell,
        &mut Cli::command(),
        "tidegate",
        &mut std::io::stdout(),
    );
    Ok(())
}
