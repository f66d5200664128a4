//! Exporters: take telemetry out.

use crate::component::ExporterFactory;

/// Every exporter type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExporterFactory] = &[];
