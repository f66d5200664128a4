// SPDX-License-Identifier: Apache-2.0

//! Names of things in the configuration: classes, component ids and pipeline ids.

use std::fmt;
use std::str::FromStr;

use super::signal::Signal;

/// Longest name after the slash, as in the Collector.
const MAX_NAME_CHARS: usize = 1024;

/// Longest component type; those of the Collector are far shorter.
const MAX_TYPE_CHARS: usize = 63;

/// The five sections in which components are defined.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// Takes telemetry in.
    Receiver,
    /// Works on it.
    Processor,
    /// Hands it out.
    Exporter,
    /// Ends one pipeline and begins another.
    Connector,
    /// Serves the process and not a pipeline.
    Extension,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 5] = [
        Class::Receiver,
        Class::Processor,
        Class::Exporter,
        Class::Connector,
        Class::Extension,
    ];

    /// The singular: `receiver`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Receiver => "receiver",
            Class::Processor => "processor",
            Class::Exporter => "exporter",
            Class::Connector => "connector",
            Class::Extension => "extension",
        }
    }

    /// The name of its section: `receivers`.
    pub const fn section(self) -> &'static str {
        match self {
            Class::Receiver => "receivers",
            Class::Processor => "processors",
            Class::Exporter => "exporters",
            Class::Connector => "connectors",
            Class::Extension => "extensions",
        }
    }
}

/// `type` or `type/name`.
///
/// ```
/// use tidegate_config::ComponentId;
/// let id: ComponentId = "otlp/edge".parse().unwrap();
/// assert_eq!((id.kind.as_str(), id.name.as_str()), ("otlp", "edge"));
/// assert_eq!(id.to_string(), "otlp/edge");
/// assert!("otlp/".parse::<ComponentId>().is_err());
/// ```
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ComponentId {
    /// The type as written, which may be an alias.
    pub kind: String,
    /// The name after the slash, empty without one.
    pub name: String,
}

/// `signal` or `signal/name`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PipelineId {
    /// The signal that it carries.
    pub signal: Signal,
    /// The name after the slash, empty without one.
    pub name: String,
}

/// The reason why a text is not an id.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IdError {
    /// Nothing stands where the type belongs.
    #[error("the part before `/` must not be empty")]
    EmptyType,
    /// The type holds something else than letters, digits and `_`, or begins otherwise than by a letter.
    #[error(
        "a type is made of ASCII letters, digits and `_`, begins with a letter and has at most {MAX_TYPE_CHARS} characters"
    )]
    BadType,
    /// A slash without a name.
    #[error("the part after `/` must not be empty")]
    EmptyName,
    /// The name has characters that can't be printed, or too many.
    #[error("a name after `/` is made of printable characters, at most {MAX_NAME_CHARS} of them")]
    BadName,
    /// Pipelines do not carry this signal.
    #[error("unknown signal; pipelines carry metrics, traces or logs")]
    UnknownSignal,
}

impl FromStr for ComponentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (kind, name) = split(text)?;
        let begins_well = kind.starts_with(|c: char| c.is_ascii_alphabetic());
        let good = kind.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        if !begins_well || !good || kind.len() > MAX_TYPE_CHARS {
            return Err(IdError::BadType);
        }
        Ok(Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl FromStr for PipelineId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (word, name) = split(text)?;
        let signal = Signal::ALL.into_iter().find(|s| s.name() == word);
        Ok(Self {
            signal: signal.ok_or(IdError::UnknownSignal)?,
            name: name.to_owned(),
        })
    }
}

fn split(text: &str) -> Result<(&str, &str), IdError> {
    let (head, name) = match text.split_once('/') {
        None => (text.trim(), ""),
        Some((_, name)) if name.trim().is_empty() => return Err(IdError::EmptyName),
        Some((head, name)) => (head.trim(), name.trim()),
    };
    if head.is_empty() {
        return Err(IdError::EmptyType);
    }
    let printable = !name.chars().any(char::is_control);
    if !printable || name.chars().count() > MAX_NAME_CHARS {
        return Err(IdError::BadName);
    }
    Ok((head, name))
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, &self.kind, &self.name)
    }
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, self.signal.name(), &self.name)
    }
}

fn write_id(f: &mut fmt::Formatter<'_>, head: &str, name: &str) -> fmt::Result {
    match name {
        "" => f.write_str(head),
        name => write!(f, "{head}/{name}"),
    }
}
