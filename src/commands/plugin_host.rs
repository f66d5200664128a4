// SPDX-License-Identifier: Apache-2.0

//! `plugin-host`: the process of a plugin with `isolation: process`. The gateway starts it; people have no use for it.

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// Arguments of `plugin-host`.
#[derive(clap::Args, Debug)]
pub struct PluginHostArgs {
    /// Bytes of memory that the process may write to
    #[arg(long)]
    memory_limit: u64,
}

/// Serves the gateway at the other end of standard input until it closes.
///
/// # Errors
/// The runtime can't start, or the connection to the gateway fails.
pub fn run(args: &PluginHostArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(Failure::io("starting the runtime"))?;
    let _entered = runtime.enter();
    // A service manager sends these to every process of the gateway: it is the gateway that ends this one, when it has
    // drained. Anyone who listens keeps the default from happening.
    let _ignored = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .map(signal);
    tidegate_plugin::host::serve_stdin(args.memory_limit).map_err(Failure::io("serving the gateway"))
}
