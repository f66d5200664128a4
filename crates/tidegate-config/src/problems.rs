// SPDX-License-Identifier: Apache-2.0

//! Everything that is wrong with a configuration, collected in one run and shown with its place.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use super::expressions::Expressions;
use super::node::{Node, NodeValue, Path};
use super::secret;
use super::source::{REDACTED, Sources, Span};

/// Problems kept; a file with more of them is not helped by a longer list.
const MAX_PROBLEMS: usize = 200;

/// Widest piece of a source line shown, in characters.
const SNIPPET_CHARS: usize = 120;

/// Longest source line shown at all, in bytes; people do not write longer ones by hand.
const MAX_LINE_BYTES: usize = 4096;

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// The configuration can't be run.
    Error,
    /// It can be run, but probably does not say what was meant.
    Warning,
}

/// One finding, machine-readable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is, if anywhere.
    pub span: Option<Span>,
    /// Path of the culprit (`receivers::nixl::dir`), empty where none applies.
    pub path: String,
    /// The description of the mistake.
    pub message: String,
    /// How to put it right.
    pub help: Option<String>,
    /// The fact behind a warning that causes errors of the same option. They say it instead of the warning.
    cause: Option<String>,
}

/// The problems found so far, together with the texts that they point into.
///
/// Every decoder gets it as `cx` and reports into it instead of returning an error, so that one run
/// finds everything:
///
/// ```
/// # use tidegate_config::{parse_text, Problems};
/// let mut cx = Problems::default();
/// let root = parse_text("a.yaml", "limit_mib: 0", &mut cx).unwrap();
/// cx.at(root.child("limit_mib")).help("leave it out").error("must be greater than zero");
/// assert!(cx.has_errors());
/// assert_eq!(cx.to_string(), concat!(
///     "a.yaml:1:12: error: limit_mib: must be greater than zero\n",
///     "  1 | limit_mib: 0\n",
///     "    |            ^\n",
///     "  help: leave it out\n",
/// ));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Problems {
    pub(super) sources: Sources,
    list: Vec<Problem>,
    more: usize,
    errors: usize,
    secret_paths: HashSet<Path>,
    unread_paths: HashSet<Path>,
    pub(super) expressions: Expressions,
}

/// A place about to be complained about; see [`Problems::at`].
#[must_use = "nothing is reported before `error` or `warning` is called"]
pub struct At<'a> {
    cx: &'a mut Problems,
    span: Option<Span>,
    path: String,
    help: Option<String>,
}

impl Problems {
    /// Points at a value; at its key where the value is a map, a list or nothing at all.
    pub fn at(&mut self, node: &Node) -> At<'_> {
        let is_text = node.scalar().is_some_and(|scalar| !scalar.text.is_empty());
        let key = node.key_span().filter(|_| !is_text);
        self.at_span(Some(key.unwrap_or(node.span())), node.path().to_string())
    }

    /// Points at the key that names a value (at the value itself in a list).
    pub fn at_key(&mut self, node: &Node) -> At<'_> {
        let span = node.key_span().unwrap_or(node.span());
        self.at_span(Some(span), node.path().to_string())
    }

    /// Points at any place under any path; both may be absent.
    pub fn at_span(&mut self, span: Option<Span>, path: impl Into<String>) -> At<'_> {
        At {
            cx: self,
            span,
            path: path.into(),
            help: None,
        }
    }

    /// Whether anything found makes the configuration unusable.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many errors were found, to tell whether a step added one.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// The same texts and secrets, without what was found so far.
    pub fn without_findings(&self) -> Self {
        Self {
            list: Vec::new(),
            more: 0,
            errors: 0,
            ..self.clone()
        }
    }

    /// Whether nothing at all was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All problems, by file and line; those without a place come last.
    pub fn sorted(&self) -> Vec<&Problem> {
        let mut list: Vec<_> = self.list.iter().collect();
        list.sort_by_key(|problem| (problem.span.is_none(), problem.span, problem.severity));
        list
    }

    /// How many problems are in no list, because there are too many.
    pub fn omitted(&self) -> usize {
        self.more
    }

    /// The texts that the spans point into.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether it is reported that a variable in this value is not set.
    pub fn has_unset(&self, node: &Node) -> bool {
        let path = node.path().to_string();
        let mut list = self.list.iter();
        list.any(|known| known.cause.is_some() && known.path == path)
    }

    /// From now on the value of this node is shown nowhere: not in snippets, not in prints.
    /// Decoding a [`Secret`](super::Secret) calls this.
    pub fn hide(&mut self, node: &Node) {
        if !node.is_substituted() {
            self.sources.mask(node.span());
        }
        self.secret_paths.insert(node.path().clone());
    }

    /// No option reads this node and the values below it. So only their keys tell whether they are secrets.
    pub(super) fn unread(&mut self, node: &Node) {
        self.mask_suspicious(node);
        self.unread_paths.insert(node.path().clone());
    }

    /// Masks the values of a node in excerpts, where their keys may name secrets.
    fn mask_suspicious(&mut self, node: &Node) {
        match node.value() {
            NodeValue::Map(entries) => entries
                .iter()
                .for_each(|entry| self.mask_suspicious(&entry.value)),
            NodeValue::List(items) => items.iter().for_each(|item| self.mask_suspicious(item)),
            NodeValue::Scalar(_) => {
                let is_suspicious = node.path().has_option(secret::is_suspicious_key);
                if is_suspicious && !node.is_null() && !node.is_substituted() {
                    self.sources.mask(node.span());
                }
            }
        }
    }

    /// Whether an option expects a secret at a path.
    pub(super) fn expects_secret(&self, path: &Path) -> bool {
        self.secret_paths.contains(path)
    }

    /// Whether the value at a path must be masked in prints.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let hidden = |path: &Path| self.secret_paths.contains(path);
        let unread = |path: &Path| self.unread_paths.contains(path);
        secret::is_secret_path(path)
            || path.with_parents().any(hidden)
            || (path.has_option(secret::is_suspicious_key) && path.with_parents().any(unread))
    }

    /// Whether further problems are only counted, so that help for them would be wasted.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }

    fn push(&mut self, mut problem: Problem) {
        if problem.severity == Severity::Error && !problem.path.is_empty() {
            self.join_unset(&mut problem);
        }
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.is_full() {
            self.more += 1;
        } else {
            self.list.push(problem);
        }
    }

    /// Adds the warnings about unset variables of an option to its error: they are the cause.
    fn join_unset(&mut self, error: &mut Problem) {
        let path = error.path.clone();
        let is_cause = |known: &Problem| known.cause.is_some() && known.path == path;
        while let Some(at) = self.list.iter().position(is_cause) {
            let known = self.list.remove(at);
            let fact = known.cause.unwrap_or_default();
            error.message = format!("{}; {fact}", error.message);
            error.help = error.help.take().or(known.help);
        }
    }
}

impl At<'_> {
    /// Says how to put it right; shown under the source line.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// As [`At::help`] where there may be nothing to say.
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }

    /// Reports an error.
    pub fn error(self, message: impl Into<String>) {
        self.report(Severity::Error, message.into(), None);
    }

    /// Reports a warning.
    pub fn warning(self, message: impl Into<String>) {
        self.report(Severity::Warning, message.into(), None);
    }

    /// Reports a variable without a value: a warning, and the cause of errors of the same option.
    pub(super) fn unset(self, variable: &str) {
        let fact = format!("environment variable {variable} is not set");
        let message = format!("{fact}; nothing stands in its place");
        self.report(Severity::Warning, message, Some(fact));
    }

    fn report(self, severity: Severity, message: String, cause: Option<String>) {
        self.cx.push(Problem {
            severity,
            span: self.span,
            path: self.path,
            message,
            help: self.help,
            cause,
        });
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// All problems for people, each with its source line.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.sorted() {
            self.write_one(f, problem)?;
        }
        if self.more > 0 {
            writeln!(f, "... and {} more problems", self.more)?;
        }
        Ok(())
    }
}

impl Problems {
    fn write_one(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        if let Some(span) = problem.span {
            let name = self.sources.name(span.file);
            write!(f, "{name}:{}:{}: ", span.line, span.column)?;
        }
        write!(f, "{}: ", problem.severity)?;
        if !problem.path.is_empty() {
            write!(f, "{}: ", problem.path)?;
        }
        writeln!(f, "{}", problem.message)?;
        if let Some(span) = problem.span {
            self.write_snippet(f, span)?;
        }
        match &problem.help {
            Some(help) => writeln!(f, "  help: {help}"),
            None => Ok(()),
        }
    }

    fn write_snippet(&self, f: &mut fmt::Formatter<'_>, span: Span) -> fmt::Result {
        let snippet = Snippet::new(&self.sources, span);
        if snippet.text.trim().is_empty() {
            return Ok(());
        }
        let number = span.line.to_string();
        let blank = " ".repeat(number.len());
        let indent = " ".repeat(snippet.caret.start);
        let carets = "^".repeat(snippet.caret.len().max(1));
        writeln!(f, "  {number} | {}", snippet.text)?;
        writeln!(f, "  {blank} | {indent}{carets}")
    }
}

/// A source line as it may be shown, and the columns (from 0) of the caret under it.
struct Snippet {
    text: String,
    caret: Range<usize>,
}

impl Snippet {
    fn new(sources: &Sources, span: Span) -> Self {
        let source = sources.text(span.file);
        let mut line = sources.line(span);
        if line.len() > MAX_LINE_BYTES {
            line.end = line.start;
        }
        let mut masks = sources.masks_in(span.file, &line);
        let by_text = secrets_by_text(&source[line.clone()], &masks, line.start);
        masks.extend(by_text);
        masks.sort_unstable_by_key(|mask| mask.start);
        // A comment beside a secret may repeat it.
        if let Some(last) = masks.last() {
            let comment = source[last.end..line.end].find(" #");
            line.end = comment.map_or(line.end, |at| last.end + at);
        }
        let shown = Masked::new(source, &line, &masks);
        let start = shown.column(span.start as usize);
        let end = match span.end as usize {
            end if end > line.end => start,
            end => shown.end_column(end),
        };
        Self::windowed(shown.chars, start..end.max(start))
    }

    /// Cuts a long line to the part around the caret.
    fn windowed(chars: Vec<char>, caret: Range<usize>) -> Self {
        let last = chars
            .iter()
            .rposition(|c| !c.is_whitespace())
            .map_or(0, |i| i + 1);
        let first = caret.start.saturating_sub(SNIPPET_CHARS / 2);
        let first = if last <= SNIPPET_CHARS { 0 } else { first };
        let end = last.min(first + SNIPPET_CHARS).max(first);
        let text = chars.get(first..end).unwrap_or_default().iter().collect();
        let start = caret.start - first;
        let caret_end = caret.end.saturating_sub(first).min(SNIPPET_CHARS);
        Self {
            text,
            caret: start..caret_end.max(start),
        }
    }
}

/// A broken file has no tree that tells secrets apart, so a line is masked by its looks as well. `offset` is where the line
/// begins in its file.
fn secrets_by_text(line: &str, known: &[Range<usize>], offset: usize) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (colon, _) in line.match_indices(':') {
        if found.last().is_some_and(|last| offset + colon < last.end) {
            continue;
        }
        let Some(secret) = secret_after(line, colon) else {
            continue;
        };
        let (start, end) = (offset + secret.start, offset + secret.end);
        if !known.iter().any(|mask| mask.start < end && mask.end > start) {
            found.push(start..end);
        }
    }
    found
}

/// The value behind a colon, if its key promises a secret.
fn secret_after(line: &str, colon: usize) -> Option<Range<usize>> {
    let key = line[..colon].trim_end_matches([' ', '"', '\'']);
    let key = key.rsplit([' ', '{', ',', '"', '\'', '.', ':']).next();
    let key = key.filter(|key| secret::is_secret_key(key))?;
    let rest = &line[colon + 1..];
    let start = colon + 1 + (rest.len() - rest.trim_start().len());
    let value = &line[start..];
    let plain = value.trim_start_matches(['"', '\'']);
    let is_harmless = plain.is_empty() || plain.starts_with("${") || value.starts_with('#');
    // Below a secret map, whatever the line has there may be a secret.
    let length = if secret::is_secret_map(key) {
        value.len()
    } else {
        value_length(&line[..colon], value)
    };
    (!is_harmless).then_some(start..start + length)
}

/// How much of the rest of a line is the value: to its closing quote, in a map in braces to the next comma or brace, else
/// all of it.
fn value_length(before: &str, rest: &str) -> usize {
    match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => match closing_quote(rest, quote) {
            Some(end) if ends_value(&rest[end..]) => end,
            _ => rest.len(),
        },
        // A map or list below a secret key holds nothing but secrets.
        Some('{' | '[') => rest.len(),
        _ if before.matches('{').count() > before.matches('}').count() => {
            rest.find([',', '}']).unwrap_or(rest.len())
        }
        _ => rest.len(),
    }
}

/// Whether a quoted value may end before this text. Other text belongs to the value, whose quotes are wrong.
fn ends_value(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with([',', '}', ']', '#'])
}

/// Where a quoted text that begins a line ends; a quote in it is written `\"`, or `''`.
fn closing_quote(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let next_is_quote = chars.peek().is_some_and(|(_, next)| *next == quote);
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            '\'' if quote == '\'' && next_is_quote => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A line whose masked parts are replaced, with a map from source bytes to shown columns.
struct Masked {
    chars: Vec<char>,
    /// (source byte, shown column) of every shown character, and of the line's end.
    columns: Vec<(usize, usize)>,
}

impl Masked {
    fn new(source: &str, line: &Range<usize>, masks: &[Range<usize>]) -> Self {
        let mut chars = Vec::new();
        let mut columns = Vec::new();
        let mut masked_until = 0;
        for (offset, c) in source[line.clone()].char_indices() {
            let at = line.start + offset;
            if at < masked_until {
                continue;
            }
            columns.push((at, chars.len()));
            match masks.iter().find(|mask| mask.contains(&at)) {
                Some(mask) => {
                    masked_until = mask.end;
                    chars.extend(REDACTED.chars());
                }
                None => chars.push(if c.is_control() { ' ' } else { c }),
            }
        }
        columns.push((line.end, chars.len()));
        Self { chars, columns }
    }

    fn column(&self, at: usize) -> usize {
        let next = self.columns.partition_point(|(byte, _)| *byte <= at);
        next.checked_sub(1)
            .and_then(|i| self.columns.get(i))
            .map_or(0, |(_, column)| *column)
    }

    fn end_column(&self, at: usize) -> usize {
        let next = self.columns.partition_point(|(byte, _)| *byte < at);
        self.columns.get(next).map_or(self.chars.len(), |c| c.1)
    }
}
