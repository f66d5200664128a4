//! What we have to say ourselves.

/// Something is wrong that nobody is there to be told of.
pub(crate) fn error(text: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tidegate_metrics", "{text}");
    #[cfg(not(feature = "tracing"))]
    eprintln!("tidegate-metrics: {text}");
}
