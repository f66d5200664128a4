// SPDX-License-Identifier: Apache-2.0

//! `${env:VAR}`, `${VAR:-default}`, `${file:path}` and `${yaml:...}` in values.
//!
//! Messages never show the result: places stay those of the `${...}` in the text.

use std::io::{self, Read};
use std::path::Path as FilePath;

use super::node::{Node, NodeValue, Origin};
use super::problems::Problems;
use super::source::Span;
use super::yaml::{self, MAX_DEPTH};

/// Most bytes of one configuration file or one `${file:...}`.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// How deep substituted values may refer to further ones.
const MAX_NESTING: usize = 16;

/// References followed in one load, which bounds what crossed references can cost.
const MAX_EXPANSIONS: usize = 10_000;

/// Bytes that references may yield in one load.
const MAX_EXPANDED_BYTES: usize = 16 << 20;

/// Looks up environment variables; tests pass their own.
pub(super) type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads the text of a file; see [`Loader::reader`](super::Loader::reader).
pub(super) type ReadFile<'a> = dyn Fn(&FilePath) -> io::Result<String> + 'a;

/// Replaces all references below a node whose paths are written.
pub(super) fn substitute(root: &mut Node, env: &Env<'_>, read: &ReadFile<'_>, problems: &mut Problems) {
    let mut expander = Expander {
        env,
        read,
        problems,
        expansions: 0,
        bytes: 0,
    };
    expander.node(root, 1, 0);
}

struct Expander<'a> {
    env: &'a Env<'a>,
    read: &'a ReadFile<'a>,
    problems: &'a mut Problems,
    expansions: usize,
    bytes: usize,
}

/// The failure of a reference: message and help.
type ReferenceFailure = (String, &'static str);

/// The text that a reference stands for, `None` when its variable is unset.
type ResolvedText = Result<Option<String>, ReferenceFailure>;

impl Expander<'_> {
    fn node(&mut self, node: &mut Node, depth: usize, nesting: usize) {
        if depth > MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            self.problems.at(node).error(message);
            *node = self.broken_in_place_of(node);
            return;
        }
        match &mut node.value {
            NodeValue::List(items) => {
                for item in items {
                    self.node(item, depth + 1, nesting);
                }
            }
            NodeValue::Map(entries) => {
                for entry in entries {
                    self.node(&mut entry.value, depth + 1, nesting);
                }
            }
            NodeValue::Scalar(scalar) if scalar.text.contains('$') => {
                self.scalar(node, depth, nesting);
            }
            NodeValue::Scalar(_) => {}
        }
    }

    fn scalar(&mut self, node: &mut Node, depth: usize, nesting: usize) {
        let text = node.scalar().map_or("", |scalar| &scalar.text).to_owned();
        let pieces = match split(&text) {
            Ok(pieces) => pieces,
            Err(failure) => return self.fail(node, &text, failure),
        };
        if let [Piece::Reference(body)] = pieces.as_slice() {
            return self.whole(node, body, depth, nesting);
        }
        let references = pieces.iter().any(|piece| matches!(piece, Piece::Reference(_)));
        match self.join(node, &pieces, nesting) {
            Ok(joined) => {
                if let NodeValue::Scalar(scalar) = &mut node.value {
                    scalar.text = joined;
                    scalar.kind = super::ScalarKind::Str;
                }
                if references {
                    node.origin = Origin::Substituted;
                }
            }
            Err((body, failure)) => self.fail(node, body, failure),
        }
    }

    /// The value is one reference and nothing else: what it yields keeps its YAML type.
    fn whole(&mut self, node: &mut Node, body: &str, depth: usize, nesting: usize) {
        let raw = match self.resolve(node, body, nesting) {
            Ok(raw) => raw,
            Err(failure) => return self.fail(node, body, failure),
        };
        let mut value = match &raw {
            None => Node::null(node.span),
            Some(raw) if raw.is_empty() && body.ends_with(":-") => Node::string("", node.span),
            Some(raw) => typed(raw, node.span),
        };
        value.key_span = node.key_span;
        value.path = node.path.clone();
        *node = value;
        if raw.is_some_and(|raw| raw.contains('$')) {
            node.set_paths(node.path.clone());
            self.node(node, depth, nesting + 1);
        }
    }

    /// Joins text and references to one string; an error names the reference it is about.
    fn join<'t>(
        &mut self,
        node: &Node,
        pieces: &[Piece<'t>],
        nesting: usize,
    ) -> Result<String, (&'t str, ReferenceFailure)> {
        let mut joined = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => joined.push_str(text),
                Piece::Reference(body) => {
                    let text = self.embedded(node, body, nesting);
                    joined.push_str(&text.map_err(|failure| (*body, failure))?);
                }
            }
        }
        Ok(joined)
    }

    /// The text that a reference inside a longer string yields.
    fn embedded(&mut self, node: &Node, body: &str, nesting: usize) -> Result<String, ReferenceFailure> {
        let Some(raw) = self.resolve(node, body, nesting)? else {
            return Ok(String::new());
        };
        if typed(&raw, node.span).scalar().is_none() {
            let message = "a map or list can't stand inside a longer string".to_owned();
            return Err((message, "let the reference be the whole value"));
        }
        self.text(node, raw.trim_end_matches(['\n', '\r']), nesting + 1)
    }

    /// A text with all its references replaced.
    fn text(&mut self, node: &Node, text: &str, nesting: usize) -> Result<String, ReferenceFailure> {
        let pieces = split(text)?;
        let joined = self.join(node, &pieces, nesting);
        joined.map_err(|(_, failure)| failure)
    }

    fn resolve(&mut self, node: &Node, body: &str, nesting: usize) -> ResolvedText {
        self.spend(0)?;
        self.expansions += 1;
        if nesting > MAX_NESTING || self.expansions > MAX_EXPANSIONS {
            let message = "references lead to too many further references".to_owned();
            return Err((message, "look for variables that refer to each other"));
        }
        let found = match scheme(body) {
            ("env", name) => self.variable(node, body, name, nesting),
            ("file", path) => {
                let path = self.text(node, path, nesting + 1)?;
                (self.read)(FilePath::new(&path)).map(Some).map_err(unreadable)
            }
            ("yaml", text) => Ok(Some(text.to_owned())),
            _ => {
                let message = "unknown scheme in `${...}`".to_owned();
                Err((message, "known schemes: env, file, yaml; `$$` is a literal `$`"))
            }
        }?;
        self.spend(found.as_ref().map_or(0, String::len))?;
        Ok(found)
    }

    /// `body` is the whole reference, for pointing at it; `variable` is without its scheme.
    fn variable(&mut self, node: &Node, body: &str, variable: &str, nesting: usize) -> ResolvedText {
        let (name, default) = match split_default(variable) {
            Some((name, default)) => (name, Some(default)),
            None => (variable, None),
        };
        let name = self.text(node, name, nesting + 1)?;
        if !is_variable(&name) {
            let message = "a bad name of an environment variable".to_owned();
            return Err((message, "use letters, digits and `_`, not a digit first"));
        }
        match ((self.env)(&name), default) {
            (Some(value), Some(default)) if value.is_empty() => Ok(Some(default.to_owned())),
            (Some(value), _) => Ok(Some(value)),
            (None, Some(default)) => Ok(Some(default.to_owned())),
            (None, None) => {
                self.at_reference(node, body)
                    .help(format!("set it, or write `${{env:{name}:-default}}`"))
                    .unset(&name);
                Ok(None)
            }
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), ReferenceFailure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_EXPANDED_BYTES {
            let message = format!("references yield more than {MAX_EXPANDED_BYTES} bytes");
            return Err((message, "look for variables that refer to each other"));
        }
        Ok(())
    }

    fn fail(&mut self, node: &mut Node, body: &str, (message, help): ReferenceFailure) {
        self.at_reference(node, body).help(help).error(message);
        *node = self.broken_in_place_of(node);
    }

    fn broken_in_place_of(&self, node: &Node) -> Node {
        let mut null = Node::null(node.span);
        null.key_span = node.key_span;
        null.path = node.path.clone();
        null.origin = Origin::Broken;
        null
    }

    /// Points at `${body}` within the text of the value, or at the value when it is not there.
    fn at_reference(&mut self, node: &Node, body: &str) -> super::At<'_> {
        let Span { file, start, end, .. } = node.span;
        let written = self.problems.sources.text(file);
        let written = written.get(start as usize..end as usize).unwrap_or_default();
        let reference = format!("${{{body}}}");
        let span = match written.find(&reference) {
            Some(at) if !node.is_substituted() => {
                let at = start as usize + at;
                self.problems.sources.span(file, at..at + reference.len())
            }
            _ => node.span,
        };
        self.problems.at_span(Some(span), node.path.to_string())
    }
}

/// Reads a UTF-8 text of at most 4 MiB, which is more than any configuration has.
///
/// # Errors
/// The file can't be read, is larger, or is not UTF-8.
pub fn read_file(path: &FilePath) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_FILE_BYTES {
        let message = format!("larger than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

fn unreadable(error: io::Error) -> ReferenceFailure {
    let message = format!("can't read this file: {error}");
    (message, "relative paths start at the working directory")
}

/// A value read as YAML, or as a string where it is none.
fn typed(raw: &str, span: Span) -> Node {
    let raw = raw.trim_end_matches(['\n', '\r']);
    let mut node = yaml::parse_unseen(raw, span).unwrap_or_else(|| Node::string(raw, span));
    node.origin = if raw.contains('$') {
        Origin::Substituted
    } else {
        Origin::Whole(raw.into())
    };
    node
}

/// `VAR` is short for `env:VAR`.
fn scheme(body: &str) -> (&str, &str) {
    match body.split_once(':') {
        Some((scheme, rest)) if !rest.starts_with('-') => (scheme, rest),
        _ => ("env", body),
    }
}

/// `^[a-zA-Z_][a-zA-Z0-9_]*$`, the Collector's rule.
fn is_variable(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Splits `NAME:-default` outside of nested references.
fn split_default(body: &str) -> Option<(&str, &str)> {
    let nested = body.find("${").unwrap_or(body.len());
    let at = match body.find(":-") {
        Some(at) if at < nested => at,
        _ => closing_brace(body.get(nested + 2..)?).and_then(|end| {
            let after = nested + 2 + end;
            body.get(after..)?.find(":-").map(|at| after + at)
        })?,
    };
    Some((&body[..at], &body[at + 2..]))
}

/// Whether a text has a `${...}`, which is not `$${...}`.
pub fn has_reference(text: &str) -> bool {
    let pieces = split(text).unwrap_or_default();
    pieces.iter().any(|piece| matches!(piece, Piece::Reference(_)))
}

enum Piece<'a> {
    Text(&'a str),
    /// The text between `${` and its `}`.
    Reference(&'a str),
}

/// Cuts a text at its references; `$$` becomes `$`, a lone `$` stays.
fn split(text: &str) -> Result<Vec<Piece<'_>>, ReferenceFailure> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        pieces.push(Piece::Text(&rest[..at]));
        let after = &rest[at + 1..];
        if let Some(literal) = after.strip_prefix('$') {
            pieces.push(Piece::Text("$"));
            rest = literal;
        } else if let Some(body) = after.strip_prefix('{') {
            let end = closing_brace(body).ok_or_else(unclosed)?;
            pieces.push(Piece::Reference(&body[..end]));
            rest = &body[end + 1..];
        } else {
            pieces.push(Piece::Text("$"));
            rest = after;
        }
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| !matches!(piece, Piece::Text("")));
    Ok(pieces)
}

fn unclosed() -> ReferenceFailure {
    let message = "`${` without its `}`".to_owned();
    (message, "write `$$` for a literal `$`")
}

/// Position of the `}` that closes a reference begun before the text.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1usize;
    let mut before = b' ';
    for (at, c) in text.bytes().enumerate() {
        match c {
            b'{' if before == b'$' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
        before = c;
    }
    None
}
