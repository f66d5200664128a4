// SPDX-License-Identifier: Apache-2.0

//! `validate`: everything that can be known about a configuration without opening anything.

use super::Failure;
use super::load::{self, Loaded};
use super::run::runtime;
use crate::component::Shared;
use crate::service::Graph;

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 when the configuration can run, 1 with the list of problems on standard \
error otherwise.\n\nExample:\n  tidegate validate --config gateway.yaml"
)]
pub struct ValidateArgs {
    #[command(flatten)]
    config: load::ConfigArgs,
}

/// Loads, checks and builds the graph; prints every problem found.
///
/// # Errors
/// The configuration has errors, a component can't be built, or the runtime can't start.
pub fn run(args: &ValidateArgs) -> Result<(), Failure> {
    check(&args.config)?.print_warnings();
    Ok(())
}

/// A configuration that can run, with its warnings. Prints all problems when there are errors.
pub(super) fn check(config: &load::ConfigArgs) -> Result<Loaded, Failure> {
    let mut loaded = load::load(config)?;
    let shared = std::sync::Arc::new(Shared::default());
    // Some clients ask for a runtime when they are made, although they open nothing before they are started.
    let runtime = runtime()?;
    let _entered = runtime.enter();
    match Graph::build(&loaded.plan, &shared) {
        Ok(graph) => loaded.build_warned(graph.warnings),
        Err(errors) => return Err(loaded.build_failed(errors)),
    }
    Ok(loaded)
}
