//! tidegate: a telemetry gateway for AI-inference clusters, in the shape of an OpenTelemetry Collector.
//!
//! `ARCHITECTURE.md` is the map. Dependencies point one way: commands -> service -> components
//! (receivers, processors, exporters, connectors, extensions) -> delivery -> net, prom -> watch -> component -> batch ->
//! crates. `cargo xtask rules` checks it.

pub mod batch;
pub mod built;
pub mod commands;
pub mod component;
pub mod connectors;
pub mod delivery;
pub mod exporters;
pub mod extensions;
pub mod net;
pub mod processors;
pub mod prom;
#[cfg(test)]
pub(crate) mod protofile;
pub mod receivers;
pub mod service;
pub mod telemetry;
pub mod watch;

pub use tidegate_config as config;
pub use tidegate_config::{choices, options};
