// SPDX-License-Identifier: Apache-2.0

//! Exporters: components that send telemetry out of the gateway.

pub mod debug;
pub mod file;
pub mod kafka;
pub mod loadbalancing;
pub mod nats;
pub mod nop;
pub mod otlp;
pub mod otlphttp;
pub mod partials;
pub mod plugin;
mod producer_cell;
mod progress;
pub mod prometheus;
pub mod prometheusremotewrite;
mod tables;
#[cfg(test)]
mod testing;
pub mod vendor;

use crate::component::ExporterFactory;

/// Every exporter type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExporterFactory] = &[
    &debug::FACTORY,
    &file::FACTORY,
    &kafka::FACTORY,
    &loadbalancing::FACTORY,
    &nats::FACTORY,
    &nop::FACTORY,
    &otlp::FACTORY,
    &otlphttp::FACTORY,
    &partials::FACTORY,
    &plugin::FACTORY,
    &prometheus::FACTORY,
    &prometheusremotewrite::FACTORY,
];
