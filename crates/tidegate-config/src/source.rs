// SPDX-License-Identifier: Apache-2.0

//! Where configuration text came from: files, inline YAML and `--set` arguments, and places in them.

use std::ops::Range;

/// Number of a text in [`Sources`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub(super) u32);

/// A place in a configuration text.
///
/// Lines and columns count from 1, columns in characters; `start..end` are bytes of the text.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Span {
    /// Which text.
    pub file: FileId,
    /// Line of the first character.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// One configuration text with the index that turns bytes into lines.
#[derive(Clone, Debug)]
struct SourceText {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    masks: Vec<Range<usize>>,
}

/// All texts that one load has read; a [`Span`] is meaningful only with them.
#[derive(Clone, Default)]
pub struct Sources {
    list: Vec<SourceText>,
}

/// The text that replaces a masked value wherever configuration is printed.
pub const REDACTED: &str = "[REDACTED]";

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.list.iter().map(|source| &source.name))
            .finish()
    }
}

impl Sources {
    /// Adds a text under the name that messages show for it.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let text = text.into();
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        self.list.push(SourceText {
            name: name.into(),
            text,
            line_starts,
            masks: Vec::new(),
        });
        FileId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
    }

    /// The names of all texts, in the order of their addition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|source| source.name.as_str())
    }

    /// The name under which a text was added; empty for a foreign id.
    pub fn name(&self, file: FileId) -> &str {
        self.get(file).map_or("", |source| &source.name)
    }

    /// The text itself, unmasked; empty for a foreign id.
    pub fn text(&self, file: FileId) -> &str {
        self.get(file).map_or("", |source| &source.text)
    }

    /// The place of a byte range, which is clipped to the text.
    pub fn span(&self, file: FileId, range: Range<usize>) -> Span {
        let Some(source) = self.get(file) else {
            return Span {
                file,
                ..Span::default()
            };
        };
        let start = floor_char(&source.text, range.start);
        let end = floor_char(&source.text, range.end).max(start);
        let line = source.line_starts.partition_point(|at| *at <= start);
        let line_start = line.checked_sub(1).map_or(0, |i| source.line_starts[i]);
        let column = source.text[line_start..start].chars().count() + 1;
        Span {
            file,
            line: clip(line),
            column: clip(column),
            start: clip(start),
            end: clip(end),
        }
    }

    /// Never show the bytes of this place again.
    pub(super) fn mask(&mut self, span: Span) {
        if let Some(source) = self.list.get_mut(span.file.0 as usize) {
            source.masks.push(span.start as usize..span.end as usize);
        }
    }

    /// The byte range of the line that holds a place, without its line break.
    pub(super) fn line(&self, span: Span) -> Range<usize> {
        let text = self.text(span.file);
        let at = floor_char(text, span.start as usize);
        let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
        start..end
    }

    /// The masked parts of a line, in order, not overlapping.
    pub(super) fn masks_in(&self, file: FileId, line: &Range<usize>) -> Vec<Range<usize>> {
        let mut hits: Vec<_> = self
            .get(file)
            .into_iter()
            .flat_map(|source| &source.masks)
            .filter(|mask| mask.start < line.end && mask.end > line.start)
            .map(|mask| mask.start.max(line.start)..mask.end.min(line.end))
            .collect();
        hits.sort_by_key(|mask| (mask.start, mask.end));
        hits.dedup_by(|next, kept| {
            let overlaps = next.start < kept.end;
            if overlaps {
                kept.end = kept.end.max(next.end);
            }
            overlaps
        });
        hits
    }

    fn get(&self, file: FileId) -> Option<&SourceText> {
        self.list.get(file.0 as usize)
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at.min(text.len()))
}

fn clip(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
