// SPDX-License-Identifier: Apache-2.0

//! YAML to checked configuration, with the file, line and column of everything that is wrong.
//!
//! Texts become [`Node`] trees, `${...}` is substituted, files and `--set` are merged, and the
//! result is checked as a whole. Components then turn their node into typed options with
//! [`Decode`]; nearly always by declaring the options with [`options!`](crate::options) and
//! [`choices!`](crate::choices). All findings go to one [`Problems`].
//!
//! The crate depends on no component. The gateway gives the names of its components through [`Registry`].

#![forbid(unsafe_code)]

mod check;
mod decode;
mod difference;
mod document;
mod edit;
mod expressions;
mod foreign;
mod format;
mod id;
mod load;
mod macros;
mod merge;
mod node;
mod print;
mod problems;
mod scalar;
mod secret;
mod signal;
mod source;
mod substitute;
mod suggest;
mod table;
mod units;
mod unresolved;
mod yaml;
mod yaml_type;

pub use check::Registry;
pub use decode::{Decode, TypeHelp, wrong_type};
pub use difference::differences;
pub use document::{Component, Document, Pipeline, Reference, Service};
pub use foreign::{foreign_components, instead};
pub use format::format_text;
pub use id::{Class, ComponentId, IdError, PipelineId};
pub use load::{Loaded, Loader};
pub use node::{Entry, Node, NodeValue, Path, Scalar, ScalarKind};
pub use print::{SubstitutedValues, print_redacted, print_yaml, redacted, without_references, yaml_text};
pub use problems::{At, Problem, Problems, Severity};
pub use secret::Secret;
pub use signal::Signal;
pub use source::{FileId, REDACTED, Sources, Span};
pub use substitute::{MAX_FILE_BYTES, has_reference, read_file};
pub use suggest::nearest;
#[doc(hidden)]
pub use table::{Fields, OptionNames, decode_choice, show_fields};
pub use table::{OptionDoc, WithoutEffect};
pub use units::{ByteSize, Headers, NotASize, Ordered};
pub use unresolved::check_unresolved;
pub use yaml::{MAX_NODES, parse_text};
pub use yaml_type::YamlType;

#[cfg(test)]
mod tests;
