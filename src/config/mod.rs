//! YAML to checked configuration, with the file, line and column of everything that is wrong.
//!
//! Texts become [`Node`] trees, `${...}` is substituted, files and `--set` are merged, and the
//! result is checked as a whole. Components then turn their node into typed options with
//! [`Decode`]; nearly always by declaring the options with [`options!`](crate::options) and
//! [`choices!`](crate::choices). All findings go to one [`Problems`].

mod decode;
mod id;
mod node;
mod options;
mod problems;
mod scalar;
mod secret;
mod source;
mod suggest;
mod units;
mod yaml;

pub use decode::{Decode, TypeHelp, wrong_type};
pub use id::{Class, ComponentId, IdError, PipelineId, Signal};
pub use node::{Entry, Kind, Node, Path, Scalar, Value};
pub use options::OptionDoc;
#[doc(hidden)]
pub use options::{Fields, Names, decode_choice, show_fields};
pub use problems::{At, Problem, Problems, Severity};
pub use secret::Secret;
pub use source::{FileId, REDACTED, Sources, Span};
pub use units::{ByteSize, NotASize, Ordered};
pub use yaml::parse_text;
