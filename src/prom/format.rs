//! The formats of an exposition, and where they differ for a metric's name.

/// Metadata key under which a metric may name its OpenMetrics family: there a counter `x_total` has the family `x`,
/// so a gauge `x` beside it needs another name.
pub const OPENMETRICS_NAME: &str = "tidegate.openmetrics_name";

/// Which form an exposition has. Versions of a form that differ only in what names may be are one: the names are the
/// style's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text: 0.0.4, and 1.0.0 where names are quoted.
    Text,
    /// OpenMetrics text: 0.0.1 and 1.0.0.
    OpenMetrics,
    /// Messages of `io.prometheus.client.MetricFamily`, each behind its length.
    Protobuf,
}

impl Format {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OpenMetrics => "openmetrics",
            Self::Protobuf => "protobuf",
        }
    }
}
