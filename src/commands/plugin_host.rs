//! `plugin-host`: the process of a plugin with `isolation: process`. The gateway starts it; people have no use for it.

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// Serves the gateway at the other end of standard input until it closes.
pub fn run() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(Failure::io("starting the runtime"))?;
    let _entered = runtime.enter();
    // A service manager sends these to every process of the gateway: it is the gateway that ends this one, when it has
    // drained. Whoever listens keeps the default from happening.
    let _ignored = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .map(signal);
    tidegate_plugin::host::serve_stdin().map_err(Failure::io("serving the gateway"))
}
