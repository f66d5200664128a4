// SPDX-License-Identifier: Apache-2.0

//! tidegate: a telemetry gateway for AI-inference clusters, in the shape of an OpenTelemetry Collector.
//!
//! `ARCHITECTURE.md` is the map. Dependencies point one way: commands -> service -> components
//! (receivers, processors, exporters, connectors, extensions) -> crates. `cargo xtask rules` checks it.

pub mod built;
pub mod commands;
pub mod connectors;
pub mod exporters;
pub mod extensions;
pub mod processors;
#[cfg(test)]
pub(crate) mod protofile;
pub mod receivers;
pub mod service;
pub mod telemetry;

pub use tidegate_config as config;
pub use tidegate_config::{choices, options};
pub use tidegate_pipeline::{batch, component, delivery, net, watch};
pub use tidegate_prometheus as prom;
