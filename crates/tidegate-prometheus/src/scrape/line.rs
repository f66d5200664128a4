// SPDX-License-Identifier: Apache-2.0

//! Lines by their bytes, and their order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::family::FamilyRef;
use super::series::LineRole;

/// The number of lines that are kept beyond twice the seen ones.
const SPARE: usize = 1024;

/// Pages after which a line that was not on them may be forgotten.
const MAX_AWAY: u32 = 3;

/// No line.
const NONE: u32 = u32::MAX;

/// The role of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Relabelling dropped it.
    Dropped,
    /// OpenTelemetry has no such kind.
    Unusable,
    /// The line describes a resource.
    Info { info: u32 },
    /// The line is part of a series.
    Part { slot: u32, role: LineRole },
}

#[derive(Debug)]
struct ScrapedLine {
    raw: Box<[u8]>,
    hash: u64,
    /// The next line.
    next: u32,
    /// The page that it was on last.
    page: u32,
    family: FamilyRef,
    what: What,
}

/// The lines of a target.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Option<ScrapedLine>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: RandomState,
    /// The first line of the last page.
    first: u32,
    /// The line before.
    last: u32,
    /// The line that should come now.
    expected: u32,
    /// The number of lines on this page.
    seen: usize,
    /// Bytes of all lines.
    bytes: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: RandomState::default(),
            first: NONE,
            last: NONE,
            expected: NONE,
            seen: 0,
            bytes: 0,
        }
    }
}

impl Lines {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.table.len() * (size_of::<Option<ScrapedLine>>() + 16) + self.bytes
    }

    /// The bytes of their text on a page.
    pub(super) fn text_bytes(&self) -> usize {
        self.bytes
    }

    /// A page begins.
    pub(super) fn begin(&mut self) {
        (self.last, self.expected, self.seen) = (NONE, self.first, 0);
    }

    fn get(&self, at: u32) -> Option<&ScrapedLine> {
        self.lines.get(at as usize)?.as_ref()
    }

    /// The bytes of the expected next line; empty if unknown.
    #[inline]
    pub(super) fn expected(&self) -> &[u8] {
        self.get(self.expected).map_or(&[], |line| &line.raw)
    }

    /// The line with these bytes, if it is known.
    #[inline]
    pub(super) fn find(&self, raw: &[u8]) -> Option<u32> {
        if self.expected() == raw && self.expected != NONE {
            return Some(self.expected);
        }
        let hash = self.hasher.hash_one(raw);
        let is_it = |at: &u32| self.get(*at).is_some_and(|line| *line.raw == *raw);
        self.table.find(hash, is_it).copied()
    }

    /// Sets the role of a new or known line.
    pub(super) fn put(&mut self, raw: &[u8], family: FamilyRef, what: What) -> u32 {
        if let Some(at) = self.find(raw) {
            if let Some(Some(line)) = self.lines.get_mut(at as usize) {
                (line.family, line.what) = (family, what);
            }
            return at;
        }
        self.bytes += raw.len();
        let hash = self.hasher.hash_one(raw);
        let line = ScrapedLine {
            raw: raw.into(),
            hash,
            next: NONE,
            // No page, or one of long ago.
            page: 0,
            family,
            what,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.lines[at as usize] = Some(line);
                at
            }
            None => {
                self.lines.push(Some(line));
                // A page is far shorter than 4 GiB.
                (self.lines.len() - 1) as u32
            }
        };
        let lines = &self.lines;
        let hash_of = |at: &u32| lines[*at as usize].as_ref().map_or(0, |line| line.hash);
        self.table.insert_unique(hash, at, hash_of);
        at
    }

    pub(super) fn family(&self, at: u32) -> FamilyRef {
        self.get(at).map_or(FamilyRef::ANY, |line| line.family)
    }

    pub(super) fn what(&self, at: u32) -> What {
        self.get(at).map_or(What::Unusable, |line| line.what)
    }

    /// Marks a line as seen on this page, after the previous one. Returns whether it was already seen there.
    #[inline]
    pub(super) fn mark_seen(&mut self, at: u32, page: u32) -> bool {
        match self.lines.get_mut(self.last as usize) {
            Some(Some(last)) => last.next = at,
            _ if self.last == NONE => self.first = at,
            _ => {}
        }
        self.last = at;
        let Some(Some(line)) = self.lines.get_mut(at as usize) else {
            return false;
        };
        let is_again = std::mem::replace(&mut line.page, page) == page;
        self.expected = line.next;
        self.seen += usize::from(!is_again);
        is_again
    }

    /// Whether enough lines are unseen to search for them.
    pub(super) fn is_crowded(&self) -> bool {
        self.table.len() > 2 * self.seen + SPARE
    }

    /// Forgets lines that have been away, and those whose slot is `crowded`.
    pub(super) fn sweep(&mut self, page: u32, crowded: impl Fn(u32) -> bool) {
        let (lines, free, bytes) = (&mut self.lines, &mut self.free, &mut self.bytes);
        self.table.retain(|at| {
            let Some(place) = lines.get_mut(*at as usize) else {
                return false;
            };
            let stays = place.as_ref().is_some_and(|line| {
                let is_crowded = matches!(line.what, What::Part { slot, .. } if crowded(slot));
                page.wrapping_sub(line.page) < MAX_AWAY && !is_crowded
            });
            if !stays {
                let gone = place.take();
                *bytes -= gone.map_or(0, |line| line.raw.len());
                free.push(*at);
            }
            stays
        });
    }

    /// The slots that lines lead to, some more than once.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let lines = self.lines.iter().flatten();
        lines.filter_map(|line| match line.what {
            What::Part { slot, .. } => Some(slot),
            _ => None,
        })
    }

    /// The lines of `target_info` that lines lead to.
    pub(super) fn infos(&self) -> impl Iterator<Item = u32> + '_ {
        let lines = self.lines.iter().flatten();
        lines.filter_map(|line| match line.what {
            What::Info { info } => Some(info),
            _ => None,
        })
    }
}
