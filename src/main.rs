// SPDX-License-Identifier: Apache-2.0

//! The `tidegate` binary: parses the command line, calls a command, exits with its code.

mod allocator;

use std::process::ExitCode;

use tidegate::commands::Cli;

fn main() -> ExitCode {
    allocator::start();
    Cli::main()
}
