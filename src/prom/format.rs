//! The two text formats, and where they differ for a metric's name.

/// Metadata key under which a metric may name its OpenMetrics family: there a counter `x_total` has the family `x`,
/// so a gauge `x` beside it needs another name.
pub const OPENMETRICS_NAME: &str = "tidegate.openmetrics_name";

/// Which text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The content type of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}
