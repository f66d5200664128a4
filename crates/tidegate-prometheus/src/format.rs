// SPDX-License-Identifier: Apache-2.0

//! The formats of an exposition, and the format-dependent parts of a metric's name.

/// Metadata key under which a metric may name its OpenMetrics family: there a counter `x_total` has the family `x`,
/// so a gauge `x` beside it needs another name.
pub const OPENMETRICS_NAME: &str = "tidegate.openmetrics_name";

/// The format of an exposition. Versions that differ only in the allowed names are one format, because the style
/// handles names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text: 0.0.4, and 1.0.0 with quoted names.
    Text,
    /// OpenMetrics text: 0.0.1 and 1.0.0.
    OpenMetrics,
    /// Messages of `io.prometheus.client.MetricFamily`, each with a length prefix.
    Protobuf,
}

impl Format {
    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OpenMetrics => "openmetrics",
            Self::Protobuf => "protobuf",
        }
    }
}
