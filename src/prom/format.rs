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
    /// The content type of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}
