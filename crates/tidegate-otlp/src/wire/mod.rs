// SPDX-License-Identifier: Apache-2.0

//! OTLP on the wire: checked, counted and walked without building trees.

pub mod attributes;
mod check;
pub mod edit;
mod partition;
pub mod points;
pub mod proto;
mod split;
pub(crate) mod text;
pub mod walk;

pub use check::{CheckError, Checked, MAX_ELEMENTS, MAX_NAME_BYTES, check, weigh, weight};
pub use partition::partition_ids;
pub(crate) use split::split_part;
pub use walk::first_name;

/// How deep messages may nest below the request: one less than prost's `RECURSION_LIMIT`.
const MAX_DEPTH: usize = 99;

/// Bytes that are not an export request: the mistake, and its field (`resourceMetrics.scopeMetrics`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} in {}", location(path))]
pub struct WireError {
    /// The description of the mistake.
    pub problem: &'static str,
    /// Dotted path of the message, empty at the top.
    pub path: String,
}

fn location(path: &str) -> String {
    match path {
        "" => "the request".to_owned(),
        path => format!("`{path}`"),
    }
}

impl WireError {
    fn here(problem: &'static str) -> Self {
        Self {
            problem,
            path: String::new(),
        }
    }

    fn inside(mut self, name: &str) -> Self {
        self.path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{}", self.path)
        };
        self
    }
}

#[cfg(test)]
mod tests;
