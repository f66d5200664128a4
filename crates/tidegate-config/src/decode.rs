// SPDX-License-Identifier: Apache-2.0

//! From [`Node`] to typed options: the [`Decode`] trait and its implementations for plain types.

mod containers;

use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::node::{Node, ScalarKind};
use super::problems::Problems;
use super::secret::Secret;
use super::source::REDACTED;
use super::table::OptionDoc;
use super::units::{ByteSize, parse_duration};
use super::yaml_type::YamlType;

/// Ends the names of types of secrets.
const SECRET: &str = "(secret)";

/// A type that can be read from configuration.
///
/// `None` means that at least one error went into `cx`; a decoder goes on after an error and
/// reports everything it finds. Structs get this from [`options!`](crate::options) and enums of
/// plain words from [`choices!`](crate::choices); write it by hand only for unions:
///
/// ```
/// use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType};
///
/// enum Rules { BuiltIn(String), Listed(Vec<String>) }
///
/// impl Decode for Rules {
///     fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
///         match node.as_list() {
///             Some(_) => Vec::decode(node, cx).map(Rules::Listed),
///             None => String::decode(node, cx).map(Rules::BuiltIn),
///         }
///     }
///     fn type_help() -> TypeHelp {
///         let list = YamlType::List(Box::new(YamlType::Text));
///         TypeHelp::plain("name of a rule set, or list of rules")
///             .accepting(YamlType::AnyOf(vec![YamlType::Text, list]))
///     }
/// }
/// ```
pub trait Decode: Sized {
    /// Whether null is a value of its own here; elsewhere a null option means its default.
    const TAKES_NULL: bool = false;

    /// The meaning of null as the value of a map, if it has one: an unset variable in a map of strings is an empty
    /// string, as in the Collector.
    fn of_null() -> Option<Self> {
        None
    }

    /// Reads a value, reporting all that is wrong with it.
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self>;

    /// Reads the value of an option whose default is `default`: a map takes the options that it does not name from it.
    fn decode_over(node: &Node, cx: &mut Problems, _default: Self) -> Option<Self> {
        Self::decode(node, cx)
    }

    /// The options inside an option whose default is this value, with the defaults that
    /// [`decode_over`](Self::decode_over) gives them. `None`: those of the type, or none.
    fn options_inside(&self) -> Option<Vec<OptionDoc>> {
        None
    }

    /// The kind of value that the option takes.
    fn type_help() -> TypeHelp;

    /// The value as one would write it in YAML, for the documentation of defaults.
    fn show(&self) -> String {
        String::new()
    }
}

/// The kind of value that an option takes, for messages and documentation.
#[derive(Clone, Debug)]
pub struct TypeHelp {
    /// A noun phrase without article: `duration`, `list of strings`.
    pub name: String,
    /// An example to follow, empty where the name says enough.
    pub example: &'static str,
    /// The YAML values that are accepted, as far as a schema can describe them.
    pub accepts: YamlType,
}

impl TypeHelp {
    /// A type that its name explains.
    pub fn plain(name: impl Into<String>) -> Self {
        Self::like(name, "")
    }

    /// A type with an example of its spelling.
    pub fn like(name: impl Into<String>, example: &'static str) -> Self {
        Self {
            name: name.into(),
            example,
            accepts: YamlType::Any,
        }
    }

    /// Says which YAML values the type accepts. Without this, a schema allows all.
    pub fn accepting(mut self, accepts: YamlType) -> Self {
        self.accepts = accepts;
        self
    }

    /// `a duration such as 10ms or 1h30m`.
    pub fn with_article(&self) -> String {
        let article = if self.name.starts_with(['a', 'e', 'i', 'o', 'u']) {
            "an"
        } else {
            "a"
        };
        match self.example {
            "" => format!("{article} {}", self.name),
            example => format!("{article} {} such as {example}", self.name),
        }
    }
}

/// Reports `expected a T, found ...` and gives `None`, for the end of a [`Decode::decode`].
pub fn wrong_type<T: Decode>(node: &Node, cx: &mut Problems) -> Option<T> {
    if node.is_broken() {
        return None;
    }
    cx.unread(node);
    let expected = T::type_help();
    let found = if expected.name.contains(SECRET) {
        // A value of another type in the place of a secret may be the secret.
        cx.hide(node);
        node.describe_kind().to_owned()
    } else {
        node.describe()
    };
    let help = as_list(node).filter(|_| expected.name == "list of strings");
    let expected = expected.with_article();
    cx.at(node)
        .maybe_help(help)
        .error(format!("expected {expected}, found {found}"));
    None
}

/// How to write a short string as a list. `None` for other values, and for a string that needs quotes.
fn as_list(node: &Node) -> Option<String> {
    const LONGEST: usize = 60;
    let scalar = node.scalar().filter(|scalar| scalar.kind == ScalarKind::Str)?;
    let text = &scalar.text;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_./-".contains(character);
    let is_shown = !text.is_empty() && text.len() <= LONGEST && !node.hides_value();
    (is_shown && text.chars().all(is_plain)).then(|| format!("write `[{text}]`"))
}

impl Decode for bool {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Bool(value)) => Some(value),
            _ => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("boolean (true or false)").accepting(YamlType::Boolean)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! decode_integers {
    ($($int:ty: $name:literal),* $(,)?) => {$(
        impl Decode for $int {
            fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
                let Some(ScalarKind::Int(value)) = node.scalar().map(|scalar| scalar.kind) else {
                    return wrong_type(node, cx);
                };
                let number = <$int>::try_from(value).ok();
                if number.is_none() {
                    let shown = node.shown();
                    let (min, max) = (<$int>::MIN, <$int>::MAX);
                    cx.at(node).error(format!("{shown} is out of range ({min} to {max})"));
                }
                number
            }

            #[allow(clippy::cast_lossless, reason = "usize has no `From` to i128")]
            fn type_help() -> TypeHelp {
                TypeHelp::plain($name).accepting(YamlType::Integer {
                    min: <$int>::MIN as i128,
                    max: <$int>::MAX as i128,
                })
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

decode_integers! {
    i32: "integer", i64: "integer",
    u8: "non-negative integer", u16: "non-negative integer", u32: "non-negative integer",
    u64: "non-negative integer", usize: "non-negative integer",
}

macro_rules! decode_positive_integers {
    ($($nonzero:ty: $int:ty),* $(,)?) => {$(
        impl Decode for $nonzero {
            fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
                let number = <$int>::decode(node, cx)?;
                let positive = Self::new(number);
                if positive.is_none() {
                    cx.at(node).error("must be greater than zero");
                }
                positive
            }

            #[allow(clippy::cast_lossless, reason = "usize has no `From` to i128")]
            fn type_help() -> TypeHelp {
                TypeHelp::plain("positive integer").accepting(YamlType::Integer {
                    min: 1,
                    max: <$int>::MAX as i128,
                })
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

decode_positive_integers! {
    NonZeroU16: u16, NonZeroU32: u32, NonZeroU64: u64, NonZeroUsize: usize,
}

impl Decode for f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of YAML is a double")]
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Float(value)) => Some(value),
            Some(ScalarKind::Int(value)) => Some(value as f64),
            _ => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("number").accepting(YamlType::Number)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A number where a string belongs is taken as it was written: `0660` stays `0660`. So is
/// whatever an environment variable holds.
impl Decode for String {
    fn of_null() -> Option<Self> {
        Some(Self::new())
    }

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_text() {
            Some(text) if !is_written_bool(node) => Some(text.to_owned()),
            _ => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("string").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        match self.as_str() {
            "" => "\"\"".to_owned(),
            text => text.to_owned(),
        }
    }
}

/// An unquoted `true` is not a string, but an environment variable that holds it is.
fn is_written_bool(node: &Node) -> bool {
    let kind = node.scalar().map(|scalar| scalar.kind);
    matches!(kind, Some(ScalarKind::Bool(_))) && !node.is_substituted()
}

impl Decode for PathBuf {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match String::decode(node, cx)? {
            text if text.is_empty() => wrong_type(node, cx),
            text => Some(Self::from(text)),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("path").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// The node itself, for parts that are decoded later or not at all.
impl Decode for Node {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, _: &mut Problems) -> Option<Self> {
        Some(node.clone())
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("any value")
    }
}

impl Decode for Duration {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let parsed = node.scalar().and_then(|scalar| parse_duration(&scalar.text));
        if parsed.is_some() {
            return parsed;
        }
        let unitless = matches!(node.scalar(), Some(scalar) if matches!(scalar.kind, ScalarKind::Int(_)));
        let help = unitless.then(|| "a duration needs a unit: ns, us, ms, s, m or h".to_owned());
        let expected = Self::type_help().with_article();
        let found = node.describe();
        cx.unread(node);
        cx.at(node)
            .maybe_help(help)
            .error(format!("expected {expected}, found {found}"));
        None
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("duration", "10ms or 1h30m").accepting(YamlType::duration())
    }

    fn show(&self) -> String {
        let spaced = humantime::format_duration(*self).to_string();
        spaced.replace(' ', "")
    }
}

impl Decode for ByteSize {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let scalar = node.scalar();
        match scalar.and_then(|scalar| scalar.text.parse().ok()) {
            Some(size) => Some(size),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        let bytes = YamlType::Integer {
            min: 0,
            max: u64::MAX.into(),
        };
        let with_unit = YamlType::Pattern("^[0-9]+ *[A-Za-z]*$");
        TypeHelp::like("size in bytes", "65536 or 64MiB").accepting(YamlType::AnyOf(vec![bytes, with_unit]))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Decode for Secret {
    fn of_null() -> Option<Self> {
        Some(Self::default())
    }

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        cx.hide(node);
        match node.as_text() {
            Some(text) => Some(Self::new(text)),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain(format!("string {SECRET}")).accepting(YamlType::Scalar)
    }

    fn show(&self) -> String {
        REDACTED.to_owned()
    }
}
