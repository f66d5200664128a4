//! Exporters: take telemetry out.

pub mod prometheus;

use crate::component::ExporterFactory;

/// Every exporter type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExporterFactory] = &[&prometheus::FACTORY];
