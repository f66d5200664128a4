// SPDX-License-Identifier: Apache-2.0

//! From YAML text to a [`Node`] tree, with every duplicate key found and every size bounded.
//!
//! Works on the event parser below serde-saphyr, since events carry exact byte spans and quoting.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput};

use super::node::{Entry, Node, NodeValue, Origin, quoted};
use super::problems::Problems;
use super::scalar::{is_core, scalar};
use super::secret;
use super::source::{FileId, Span};

/// Deepest nesting. Real configurations stay below ten levels.
pub(super) const MAX_DEPTH: usize = 48;

/// Most values in one file after aliases are expanded, which is what stops an alias bomb.
pub const MAX_NODES: usize = 100_000;

const BAD_TAG: &str = "a YAML tag that does not fit here";

/// Parses a text that has no substitution in it, for tests and for values given in code.
///
/// `None` when the text is not YAML, which `problems` then says, or is empty.
pub fn parse_text(name: &str, text: &str, problems: &mut Problems) -> Option<Node> {
    let file = problems.sources.add(name, text);
    let mut root = parse(file, 0..text.len(), problems)?;
    root.set_paths(super::Path::default());
    Some(root)
}

/// Parses part of a text that has been added to the sources. `None` after an error, or when there is
/// nothing but comments.
pub(super) fn parse(file: FileId, part: Range<usize>, problems: &mut Problems) -> Option<Node> {
    let text = problems.sources.text(file).get(part.clone())?.to_owned();
    let mut builder = Builder {
        events: events(&text),
        text: &text,
        base: part.start,
        file,
        problems,
        anchors: HashMap::new(),
        last_end: 0,
        nodes: 0,
        secret_from: None,
    };
    match builder.document() {
        Ok(root) => root,
        Err(stop) => {
            builder.report(stop);
            None
        }
    }
}

/// Parses a value that came out of `${...}`; `None` when it is not YAML of one document.
///
/// Its nodes carry the span of the reference, since their own text is not for showing.
pub(super) fn parse_unseen(text: &str, span: Span) -> Option<Node> {
    let mut scratch = Problems::default();
    let file = scratch.sources.add("", text);
    let root = parse(file, 0..text.len(), &mut scratch);
    if scratch.has_errors() {
        return None;
    }
    let mut root = root.unwrap_or_else(|| Node::null(span));
    borrow_span(&mut root, span);
    Some(root)
}

fn borrow_span(node: &mut Node, span: Span) {
    node.span = span;
    node.key_span = node.key_span.map(|_| span);
    node.origin = Origin::Substituted;
    match &mut node.value {
        NodeValue::Scalar(_) => {}
        NodeValue::List(items) => items.iter_mut().for_each(|item| borrow_span(item, span)),
        NodeValue::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| borrow_span(&mut entry.value, span)),
    }
}

/// The events of a text. Nesting is limited.
pub(super) fn events(text: &str) -> Parser<'_, StrInput<'_>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    Parser::new_from_str_with_options(text, options)
}

/// Why the rest of a text can't be read.
struct Stop {
    at: Range<usize>,
    message: String,
    help: Option<&'static str>,
}

/// An anchored value with what its copies cost.
struct Anchored {
    node: Node,
    nodes: usize,
    height: usize,
}

struct Builder<'a, 'p> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    base: usize,
    file: FileId,
    problems: &'p mut Problems,
    anchors: HashMap<usize, Anchored>,
    last_end: usize,
    nodes: usize,
    /// Start of the outermost secret value being read, to be masked if reading breaks off.
    secret_from: Option<usize>,
}

/// A node and the number of levels it has.
type Built = (Node, usize);

impl<'a> Builder<'a, '_> {
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut root = None;
        while let Some((event, at)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => return Err(stop(at, "a second YAML document in one file")),
                event => root = Some(self.node(event, at, 1)?.0),
            }
        }
        Ok(root.filter(|root| !is_nothing(root)))
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Range<usize>)>, Stop> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                let at = span.byte_range().unwrap_or(self.last_end..self.last_end);
                self.last_end = at.end.max(self.last_end);
                Ok(Some((event, at)))
            }
            Some(Err(error)) => {
                let at = error.marker().byte_offset().unwrap_or(self.last_end);
                let help = follows_reference(self.text, at)
                    .then_some("write \"${...}\" in quotes inside [ ] and { }");
                Err(Stop {
                    at: at..at,
                    message: format!("not valid YAML: {}", error.info()),
                    help,
                })
            }
        }
    }

    fn node(&mut self, event: Event<'a>, at: Range<usize>, depth: usize) -> Result<Built, Stop> {
        self.spend(1, &at)?;
        if depth > MAX_DEPTH {
            return Err(too_deep(at));
        }
        let before = self.nodes - 1;
        let (node, height, anchor) = match event {
            Event::Alias(id) => return self.alias(id, at, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = !matches!(style, ScalarStyle::Plain);
                // The parser's text for nothing at all is `~`.
                let text = if at.is_empty() { "".into() } else { text };
                let scalar = scalar(text.into_owned(), quoted, tag.as_deref())
                    .ok_or_else(|| stop(at.clone(), BAD_TAG))?;
                (Node::new(NodeValue::Scalar(scalar), self.span(at)), 1, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                if tag.is_some_and(|tag| !is_core(&tag, "seq")) {
                    return Err(stop(at, BAD_TAG));
                }
                let (value, height, end) = self.list(at.clone(), depth)?;
                let span = self.span(at.start..end);
                (Node::new(value, span), height, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                if tag.is_some_and(|tag| !is_core(&tag, "map")) {
                    return Err(stop(at, BAD_TAG));
                }
                let (value, height, end) = self.map(at.clone(), depth)?;
                let span = self.span(at.start..end);
                (Node::new(value, span), height, anchor)
            }
            _ => return Err(stop(at, "a value is missing here")),
        };
        if anchor != 0 {
            let nodes = self.nodes - before;
            let anchored = Anchored {
                node: node.clone(),
                nodes,
                height,
            };
            self.anchors.insert(anchor, anchored);
        }
        Ok((node, height))
    }

    fn alias(&mut self, id: usize, at: Range<usize>, depth: usize) -> Result<Built, Stop> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(stop(at, "an alias inside the value that it stands for"));
        };
        let (nodes, height) = (anchored.nodes, anchored.height);
        if depth + height - 1 > MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.spend(nodes, &at)?;
        let node = self.anchors.get(&id).map(|anchored| anchored.node.clone());
        node.map(|node| (node, height))
            .ok_or_else(|| stop(at, "an unknown alias"))
    }

    fn list(&mut self, at: Range<usize>, depth: usize) -> Result<(NodeValue, usize, usize), Stop> {
        let mut items = Vec::new();
        let mut tallest = 0;
        while let Some((event, item_at)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                return Ok((NodeValue::List(items), tallest + 1, item_at.end));
            }
            let (item, height) = self.node(event, item_at, depth + 1)?;
            tallest = tallest.max(height);
            items.push(item);
        }
        Err(stop(at, "a list without an end"))
    }

    fn map(&mut self, at: Range<usize>, depth: usize) -> Result<(NodeValue, usize, usize), Stop> {
        let mut entries = Entries::default();
        let mut tallest = 0;
        while let Some((event, key_at)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                return Ok((NodeValue::Map(entries.finish()), tallest + 1, key_at.end));
            }
            let (key, is_merge) = self.key(event, &key_at)?;
            let outermost = self.secret_from.is_none() && secret::is_secret_key(&key);
            if outermost {
                self.secret_from = Some(self.last_end);
            }
            let Some((event, value_at)) = self.next()? else {
                break;
            };
            let (mut value, height) = self.node(event, value_at, depth + 1)?;
            if outermost {
                self.secret_from = None;
                hide(&value, self.problems);
            } else if has_credentials(&value) {
                hide(&value, self.problems);
            }
            tallest = tallest.max(height);
            if is_merge {
                self.merge(&mut entries, value);
            } else {
                value.key_span = Some(self.span(key_at));
                self.add(&mut entries, Entry { key, value });
            }
        }
        Err(stop(at, "a map without an end"))
    }

    /// A key's text, and whether it is YAML's merge key.
    fn key(&mut self, event: Event<'a>, at: &Range<usize>) -> Result<(String, bool), Stop> {
        self.spend(1, at)?;
        match event {
            Event::Scalar(text, style, ..) => {
                let is_merge = text == "<<" && style == ScalarStyle::Plain;
                Ok((text.into_owned(), is_merge))
            }
            _ => Err(stop(at.clone(), "a key must be a plain word or a string")),
        }
    }

    fn add(&mut self, entries: &mut Entries, entry: Entry) {
        let Some(first) = entries.own(&entry.key) else {
            entries.insert(entry);
            return;
        };
        // No option reads the value, so nothing says later whether it is a secret.
        hide(&entry.value, self.problems);
        self.problems.at_span(entry.value.key_span, "").error(format!(
            "duplicate key {}, first given at line {}, column {}",
            quoted(&entry.key),
            first.line,
            first.column
        ));
    }

    fn merge(&mut self, entries: &mut Entries, value: Node) {
        let span = value.span;
        let maps = match value.value {
            NodeValue::List(items) => items,
            _ => vec![value],
        };
        for map in maps {
            match map.value {
                NodeValue::Map(more) => more.into_iter().for_each(|entry| entries.inherit(entry)),
                _ => self
                    .problems
                    .at_span(Some(span), "")
                    .error("`<<` merges maps; this is none"),
            }
        }
    }

    fn spend(&mut self, nodes: usize, at: &Range<usize>) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(Stop {
                at: at.clone(),
                message: format!("more than {MAX_NODES} values after aliases are expanded"),
                help: Some("write fewer nested aliases (`*name`)"),
            });
        }
        Ok(())
    }

    fn span(&self, at: Range<usize>) -> Span {
        let mut end = at.end.min(self.text.len()).max(at.start);
        // The end of a block collection is where the next thing begins.
        let written = self.text.get(at.start..end).unwrap_or_default();
        end = at.start + written.trim_end().len();
        let range = self.base + at.start..self.base + end;
        self.problems.sources.span(self.file, range)
    }

    fn report(&mut self, stop: Stop) {
        let Stop { at, message, help } = stop;
        if let Some(from) = self.secret_from {
            let rest = self.base + from..self.base + self.text.len();
            let rest = self.problems.sources.span(self.file, rest);
            self.problems.sources.mask(rest);
        }
        let span = self.span(at);
        self.problems
            .at_span(Some(span), "")
            .maybe_help(help.map(str::to_owned))
            .error(message);
    }
}

/// The entries of a map being read: own keys win over merged ones wherever `<<` stands.
#[derive(Default)]
struct Entries {
    list: Vec<(Entry, bool)>,
    index: HashMap<String, usize>,
}

impl Entries {
    /// Where a key was given in the map itself.
    fn own(&self, key: &str) -> Option<Span> {
        let (entry, inherited) = self.list.get(*self.index.get(key)?)?;
        entry.value.key_span.filter(|_| !inherited)
    }

    fn insert(&mut self, entry: Entry) {
        match self.index.get(&entry.key).and_then(|i| self.list.get_mut(*i)) {
            Some(inherited) => *inherited = (entry, false),
            None => self.push(entry, false),
        }
    }

    fn inherit(&mut self, entry: Entry) {
        if !self.index.contains_key(&entry.key) {
            self.push(entry, true);
        }
    }

    fn push(&mut self, entry: Entry, inherited: bool) {
        self.index.insert(entry.key.clone(), self.list.len());
        self.list.push((entry, inherited));
    }

    fn finish(self) -> Vec<Entry> {
        self.list.into_iter().map(|(entry, _)| entry).collect()
    }
}

/// Masks every scalar of a value, except those that are only a reference to a secret elsewhere.
fn hide(node: &Node, problems: &mut Problems) {
    match &node.value {
        NodeValue::Scalar(scalar) if is_reference(&scalar.text) => {}
        NodeValue::Scalar(_) => problems.sources.mask(node.span),
        NodeValue::List(items) => items.iter().for_each(|item| hide(item, problems)),
        NodeValue::Map(entries) => entries.iter().for_each(|entry| hide(&entry.value, problems)),
    }
}

fn is_reference(text: &str) -> bool {
    text.starts_with("${") && text.find('}') == Some(text.len() - 1) && !text.contains(":-")
}

fn has_credentials(node: &Node) -> bool {
    match &node.value {
        NodeValue::Scalar(scalar) => secret::has_url_credentials(&scalar.text),
        NodeValue::List(items) => items.iter().any(
            |item| matches!(&item.value, NodeValue::Scalar(scalar) if secret::has_url_credentials(&scalar.text)),
        ),
        NodeValue::Map(_) => false,
    }
}

fn is_nothing(root: &Node) -> bool {
    root.is_null() && root.scalar().is_some_and(|scalar| scalar.text.is_empty())
}

/// Whether an unquoted `${...}` stands before a place in its line; its braces are YAML's in flow style.
fn follows_reference(text: &str, at: usize) -> bool {
    // The parser gives up at the brace after `$`.
    let before = text.get(..=at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.contains("${") && !line.contains("\"${")
}

fn stop(at: Range<usize>, message: impl Into<String>) -> Stop {
    Stop {
        at,
        message: message.into(),
        help: None,
    }
}

fn too_deep(at: Range<usize>) -> Stop {
    stop(at, format!("nested deeper than {MAX_DEPTH} levels"))
}
