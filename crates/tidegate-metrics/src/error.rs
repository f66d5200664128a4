// SPDX-License-Identifier: Apache-2.0

//! Errors: registration reports all of them; at run time, only those of exports.

use std::io;

/// Why an instrument could not be registered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is not a metric name.
    #[error("`{0}` is not a metric name: letters, digits, `_`, `:`, `.`, a letter or `_` or `:` first")]
    BadName(String),
    /// A label's name is not a label name, or is a reserved one.
    #[error(
        "metric `{metric}`: `{label}` is not a label name: letters, digits and `_`, no digit first, not `__...`, not `le` of a histogram"
    )]
    BadLabel {
        /// The metric.
        metric: String,
        /// The label.
        label: String,
    },
    /// A label is there twice; often one that the hierarchy sets already.
    #[error(
        "metric `{metric}`: label `{label}` is set twice: remove one of them, also from the scopes around"
    )]
    DuplicateLabel {
        /// The metric.
        metric: String,
        /// The label.
        label: String,
    },
    /// The labels given to a metric set are not the declared ones.
    #[error("the set declares the labels {expected:?}, but got {given:?}")]
    OtherLabels {
        /// The declared labels.
        expected: Vec<String>,
        /// The given labels.
        given: Vec<String>,
    },
    /// Bounds that no histogram can have.
    #[error("metric `{0}`: bounds of a histogram must be finite and ascending")]
    BadBounds(String),
    /// The SDK records no summaries.
    #[error("metric `{0}`: the SDK records no summaries: use a histogram")]
    Summary(String),
    /// There are no buckets of this name.
    #[error("unknown buckets `{0}`: use `latency`, `fast`, `bytes`, `tokens` or `ratio`")]
    UnknownBuckets(String),
    /// A metric of this name exists, and it is another one.
    #[error(
        "metric `{name}` is registered already, with another {what}: make both equal, or choose another name"
    )]
    Conflict {
        /// The metric.
        name: String,
        /// The part that differs.
        what: &'static str,
    },
    /// Another metric shows this name to a reader.
    #[error("readers see metric `{name}` as `{shown}`, the name of `{other}`: give one of them another name")]
    ShownTwice {
        /// The metric.
        name: String,
        /// The name in the exposition.
        shown: String,
        /// The metric that has the name.
        other: String,
    },
    /// The store took no more.
    #[error("metric `{name}`: {reason}")]
    Store {
        /// The metric.
        name: String,
        /// The error of the store.
        reason: String,
    },
    /// A registry outside this process's Rust code refused.
    #[error("metric `{name}`: the foreign registry refused it with code {code}")]
    Foreign {
        /// The metric.
        name: String,
        /// Its code.
        code: i32,
    },
}

/// Why what was recorded did not get out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The peer did not take it in time.
    #[error("timed out")]
    Timeout,
    /// The peer or the way to it failed.
    #[error("{0}")]
    Peer(String),
    /// A file or socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
