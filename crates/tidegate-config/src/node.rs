// SPDX-License-Identifier: Apache-2.0

//! The spanned YAML tree that every part of the configuration is decoded from.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Number, Value as Json};

use super::id::Class;
use super::secret;
use super::source::Span;

/// Longest piece of a value that a message quotes, in characters.
const QUOTED_CHARS: usize = 60;

/// A YAML value that knows where it was written and under which path.
///
/// Comparing two nodes compares their values, never their places. `Debug` shows places, never
/// values, since values may be secrets.
///
/// ```
/// use tidegate_config::Problems;
/// let mut problems = Problems::default();
/// let root = tidegate_config::parse_text("a.yaml", "limits: {mib: 512}", &mut problems).unwrap();
/// let mib = root.get("limits").unwrap().get("mib").unwrap();
/// assert_eq!((mib.span().line, mib.span().column), (1, 15));
/// assert_eq!(mib.path().to_string(), "limits::mib");
/// ```
#[derive(Clone)]
pub struct Node {
    pub(super) value: NodeValue,
    pub(super) span: Span,
    pub(super) key_span: Option<Span>,
    pub(super) path: Path,
    pub(super) origin: Origin,
}

/// Whether a value stands in the configuration text or came out of `${...}`.
#[derive(Clone, Default)]
pub(super) enum Origin {
    #[default]
    Written,
    /// In place of a reference that failed, which has been reported.
    Broken,
    /// Part of a substituted value.
    Substituted,
    /// A whole substituted value with its text before YAML typing.
    Whole(Box<str>),
}

/// The content of a [`Node`].
#[derive(Clone, PartialEq)]
pub enum NodeValue {
    /// Null, a boolean, a number or a string.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in written order, without duplicate keys.
    Map(Vec<Entry>),
}

/// A scalar with the text it was written as.
#[derive(Clone, PartialEq)]
pub struct Scalar {
    /// The resolved kind.
    pub kind: ScalarKind,
    /// The text after YAML escapes, before any typing: `0660` stays `0660`.
    pub text: String,
    /// Whether it was quoted or a block scalar (then it is always a string).
    pub quoted: bool,
}

/// The YAML 1.2 core schema types; `yes`, `no`, `on` and `off` are strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarKind {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Decimal, `0x` or `0o`.
    Int(i128),
    /// A number with a fraction or an exponent, `.inf`, `.nan`.
    Float(f64),
    /// Everything else.
    Str,
}

/// A key of a map with its value.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// The value, which also knows where its key stands.
    pub value: Node,
}

/// Position in the tree, shown as `receivers::nixl::directories[0]`.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct Path(Option<Arc<PathSegment>>);

#[derive(Eq, Hash, PartialEq)]
struct PathSegment {
    parent: Path,
    name: Name,
}

#[derive(Eq, Hash, PartialEq)]
enum Name {
    Key(String),
    Index(usize),
}

impl Node {
    /// Where the value stands (for a substituted value: where `${...}` stands).
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the key stands that names this value; `None` for list items and the root.
    pub fn key_span(&self) -> Option<Span> {
        self.key_span
    }

    /// The path from the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value.
    pub fn value(&self) -> &NodeValue {
        &self.value
    }

    /// Whether the value came out of `${...}`, so that it must not be quoted in messages.
    pub fn is_substituted(&self) -> bool {
        !matches!(self.origin, Origin::Written)
    }

    /// Whether it is null, which means "all defaults" nearly everywhere.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, NodeValue::Scalar(scalar) if scalar.kind == ScalarKind::Null)
    }

    /// The scalar, if it is one.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            NodeValue::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// The text of a string (a number or boolean is none).
    pub fn as_str(&self) -> Option<&str> {
        self.scalar()
            .filter(|scalar| scalar.kind == ScalarKind::Str)
            .map(|scalar| scalar.text.as_str())
    }

    /// The text of any scalar but null as a string option takes it: numbers as they were written,
    /// substituted values as the environment or the file has them.
    pub fn as_text(&self) -> Option<&str> {
        let scalar = self.scalar().filter(|scalar| scalar.kind != ScalarKind::Null);
        match (&self.origin, scalar) {
            (_, Some(scalar)) if scalar.quoted => Some(&scalar.text),
            (Origin::Whole(raw), _) if !self.is_null() => Some(raw),
            (_, scalar) => scalar.map(|scalar| scalar.text.as_str()),
        }
    }

    /// The items of a sequence.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            NodeValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a map.
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.value {
            NodeValue::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.iter().find(|entry| entry.key == key)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The value of a key, or this node where the key is absent: the best place to point at.
    pub fn child(&self, key: &str) -> &Node {
        self.get(key).unwrap_or(self)
    }

    /// The value as JSON. Numbers that JSON can't express become strings.
    pub fn to_json(&self) -> Json {
        match &self.value {
            NodeValue::Scalar(scalar) => scalar.to_json(),
            NodeValue::List(items) => items.iter().map(Node::to_json).collect(),
            NodeValue::Map(entries) => {
                let pair = |entry: &Entry| (entry.key.clone(), entry.value.to_json());
                Json::Object(entries.iter().map(pair).collect::<Map<_, _>>())
            }
        }
    }

    /// Its description for messages: `the string "abc"`, `a map`. It does not quote secrets and substituted values.
    pub fn describe(&self) -> String {
        let kind = self.describe_kind();
        let (Some(scalar), Some(noun)) = (self.scalar(), kind.strip_prefix("a ")) else {
            return kind.to_owned();
        };
        if self.hides_value() {
            kind.to_owned()
        } else if scalar.kind == ScalarKind::Str {
            format!("the {noun} {}", quoted(&scalar.text))
        } else {
            format!("the {noun} {}", shortened(&scalar.text))
        }
    }

    /// Its description for messages, without the value: `a string`.
    pub(super) fn describe_kind(&self) -> &'static str {
        match &self.value {
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a map",
            NodeValue::Scalar(scalar) => match scalar.kind {
                ScalarKind::Null => "null",
                ScalarKind::Bool(_) => "a boolean",
                ScalarKind::Int(_) | ScalarKind::Float(_) => "a number",
                ScalarKind::Str => "a string",
            },
        }
    }

    /// Whether it stands for a failed `${...}`: there is nothing more to say about it.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.origin, Origin::Broken)
    }

    /// The value in quotes for a message, or `the value` where it must not be shown.
    pub fn shown(&self) -> String {
        match self.scalar() {
            Some(scalar) if !self.hides_value() => quoted(&scalar.text),
            _ => "the value".to_owned(),
        }
    }

    pub(super) fn new(value: NodeValue, span: Span) -> Self {
        Self {
            value,
            span,
            key_span: None,
            path: Path::default(),
            origin: Origin::Written,
        }
    }

    pub(super) fn null(span: Span) -> Self {
        Self::plain(ScalarKind::Null, "", span)
    }

    pub(super) fn string(text: &str, span: Span) -> Self {
        Self::plain(ScalarKind::Str, text, span)
    }

    fn plain(kind: ScalarKind, text: &str, span: Span) -> Self {
        let scalar = Scalar {
            kind,
            text: text.to_owned(),
            quoted: false,
        };
        Self::new(NodeValue::Scalar(scalar), span)
    }

    /// Writes the paths of a finished tree.
    pub(super) fn set_paths(&mut self, path: Path) {
        match &mut self.value {
            NodeValue::Scalar(_) => {}
            NodeValue::List(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    item.set_paths(path.index(i));
                }
            }
            NodeValue::Map(entries) => {
                for entry in entries {
                    entry.value.set_paths(path.key(&entry.key));
                }
            }
        }
        self.path = path;
    }

    pub(super) fn hides_value(&self) -> bool {
        self.is_substituted() || secret::is_secret_path(&self.path) || self.has_credentials()
    }

    fn has_credentials(&self) -> bool {
        self.scalar()
            .is_some_and(|scalar| secret::has_url_credentials(&scalar.text))
    }
}

impl Scalar {
    fn to_json(&self) -> Json {
        let text = || Json::String(self.text.clone());
        match self.kind {
            ScalarKind::Null => Json::Null,
            ScalarKind::Bool(truth) => truth.into(),
            ScalarKind::Int(number) => Number::from_i128(number).map_or_else(text, Json::Number),
            ScalarKind::Float(number) => Number::from_f64(number).map_or_else(text, Json::Number),
            ScalarKind::Str => text(),
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { line, column, .. } = self.span;
        write!(f, "Node({} at {line}:{column})", self.path)
    }
}

impl Path {
    /// The path of a key below this one.
    pub fn key(&self, key: &str) -> Path {
        self.step(Name::Key(key.to_owned()))
    }

    /// The path of an item below this one.
    pub fn index(&self, index: usize) -> Path {
        self.step(Name::Index(index))
    }

    /// Whether the value here is at or below the key of an option that matches. Ids are not options: users choose them.
    pub(super) fn has_option(&self, matches: fn(&str) -> bool) -> bool {
        self.steps_upwards()
            .enumerate()
            .any(|(above, step)| match &step.name {
                Name::Key(key) => matches(key) && !step.parent.has_ids_as_keys(above == 0),
                Name::Index(_) => false,
            })
    }

    /// Whether the value here is the `name` of an item in a list whose key matches.
    pub(super) fn is_name_in_list(&self, matches: fn(&str) -> bool) -> bool {
        let mut names = self.steps_upwards().map(|step| &step.name);
        match [names.next(), names.next(), names.next()] {
            [Some(Name::Key(key)), Some(Name::Index(_)), Some(Name::Key(list))] => {
                key == "name" && matches(list)
            }
            _ => false,
        }
    }

    /// Whether the keys below it are ids. Where components and pipelines are expected, the key of a value is an option at a
    /// wrong place.
    fn has_ids_as_keys(&self, of_values: bool) -> bool {
        let path = self.to_string();
        let is_section = || Class::ALL.iter().any(|class| class.section() == path);
        path == "service::telemetry::logs::levels"
            || (!of_values && (path == "service::pipelines" || is_section()))
    }

    /// This path and all those above it, the root's excepted.
    pub(super) fn with_parents(&self) -> impl Iterator<Item = &Path> {
        std::iter::successors(Some(self), |path| path.0.as_deref().map(|step| &step.parent))
            .filter(|path| path.0.is_some())
    }

    fn steps_upwards(&self) -> impl Iterator<Item = &PathSegment> {
        std::iter::successors(self.0.as_deref(), |step| step.parent.0.as_deref())
    }

    fn step(&self, name: Name) -> Path {
        let parent = self.clone();
        Path(Some(Arc::new(PathSegment { parent, name })))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps: Vec<_> = self.steps_upwards().collect();
        steps.reverse();
        for (i, step) in steps.into_iter().enumerate() {
            match &step.name {
                Name::Index(index) => write!(f, "[{index}]")?,
                Name::Key(key) if i == 0 => f.write_str(&shortened(key))?,
                Name::Key(key) => write!(f, "::{}", shortened(key))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

/// Text in double quotes, shortened, control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// Text cut to what a message can bear, control characters escaped.
fn shortened(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(QUOTED_CHARS) {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(QUOTED_CHARS).is_some() {
        out.push_str("...");
    }
    out
}
