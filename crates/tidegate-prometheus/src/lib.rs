// SPDX-License-Identifier: Apache-2.0

//! Prometheus translation and text formats, shared by components that expose, scrape and write remotely.
//!
//! The rules are those of the OpenTelemetry specification (compatibility/prometheus_and_openmetrics), with the
//! choices of prometheus/otlptranslator where it permits several.

pub mod catalog;
pub mod duration;
pub mod escaping;
pub mod flat;
pub mod format;
pub mod labels;
pub mod model;
pub mod name;
pub mod recorded;
pub mod relabel;
pub mod remote;
pub mod render;
pub mod scrape;
#[cfg(test)]
mod spelling_tests;
pub mod text;
#[cfg(test)]
mod translator_tests;

pub use escaping::Escaping;
pub use format::{Format, OPENMETRICS_NAME};
pub use labels::{LabelSources, ResourceLabels};
pub use name::{Naming, Strategy};
pub use render::{Conflict, Counts, Difference, OmissionReason, Page, Renderer, Style};
use tidegate_exposition::unit;
pub use tidegate_exposition::write as number;
