//! OTLP on the wire: checked, counted and walked without building trees.

pub(crate) mod attributes;
mod check;
pub(crate) mod edit;
pub(crate) mod points;
pub(crate) mod proto;
mod split;
pub(crate) mod walk;

pub use check::check;
pub(crate) use split::split_part;

/// Bytes that are no export request: what is wrong, and in which field (`resource_metrics.scope_metrics`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} in `{path}`")]
pub struct WireError {
    /// What is wrong.
    pub problem: &'static str,
    /// Dotted path of the message, empty at the top.
    pub path: String,
}

#[cfg(test)]
mod tests;
