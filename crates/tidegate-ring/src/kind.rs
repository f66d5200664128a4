// SPDX-License-Identifier: Apache-2.0

//! Event kinds: the table of NIXL's event types, their names, units and categories, and the bounded
//! table of names that only come up at run time (versions 1 and 2a carry names as strings).
//!
//! A kind is a dense `u16`: 0 to 20 are NIXL's event types, [`UNKNOWN`] and [`OVERFLOW`] collect what
//! has no kind of its own, and from [`FIRST_OWN`] on follow the names of one ring.

use std::collections::HashMap;
use std::fmt;

use crate::layout::NAME_SIZE;

mod table;

pub use table::KINDS;

/// Number of event types that NIXL defines (version 4).
pub const KNOWN_KINDS: usize = 21;

/// Kind of every numeric event type beyond the table; NIXL's reader calls them `unknown_event` too.
pub const UNKNOWN: u16 = 21;

/// Kind of every event whose name came after a ring's table of own names was full.
pub const OVERFLOW: u16 = 22;

/// First kind that stands for a name of the ring's own.
pub const FIRST_OWN: u16 = 23;

/// How many own names a ring may bring. In-tree NIXL brings none; a bound keeps a hostile ring from
/// growing our memory and our series.
pub const MAX_OWN_NAMES: usize = 256;

/// NIXL's event categories. From version 3 on they are derived from the kind.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Category {
    /// Registration and deregistration of memory.
    Memory,
    /// Bytes and requests transferred.
    Transfer,
    /// Connections (no in-tree producer).
    Connection,
    /// Back-end specific (no in-tree producer).
    Backend,
    /// Errors by status.
    Error,
    /// Times.
    Performance,
    /// The telemetry itself.
    System,
    /// Anything else.
    Custom,
}

impl Category {
    /// Every category in the order of its number.
    pub const ALL: [Category; 8] = [
        Category::Memory,
        Category::Transfer,
        Category::Connection,
        Category::Backend,
        Category::Error,
        Category::Performance,
        Category::System,
        Category::Custom,
    ];

    /// The name without NIXL's prefix `NIXL_TELEMETRY_`: `MEMORY`, `TRANSFER`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Category::Memory => "MEMORY",
            Category::Transfer => "TRANSFER",
            Category::Connection => "CONNECTION",
            Category::Backend => "BACKEND",
            Category::Error => "ERROR",
            Category::Performance => "PERFORMANCE",
            Category::System => "SYSTEM",
            Category::Custom => "CUSTOM",
        }
    }

    /// The category with this name, with or without NIXL's prefix, in any case.
    pub fn by_name(name: &str) -> Option<Category> {
        let name = name.strip_prefix("NIXL_TELEMETRY_").unwrap_or(name);
        let mut all = Category::ALL.into_iter();
        all.find(|category| category.name().eq_ignore_ascii_case(name))
    }

    fn by_number(number: i32) -> Category {
        let found = usize::try_from(number).ok().and_then(|n| Category::ALL.get(n));
        found.copied().unwrap_or(Category::Custom)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of the table of event kinds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NixlKind {
    /// Dense index, equal to NIXL's event type below [`KNOWN_KINDS`].
    pub id: u16,
    /// NIXL's event name.
    pub name: &'static str,
    /// Unit of the value in UCUM: `By`, `us` or `1`.
    pub unit: &'static str,
    /// Category, as versions 1 and 2 write it and as it is derived for the others.
    pub category: Category,
    /// For errors, the value of the label `status` of NIXL's own exporter.
    pub status: Option<&'static str>,
    /// The counter that NIXL's own Prometheus exporter (1.5) keeps of the values, or for errors of all of them by
    /// `status`. It is exposed with `_total`.
    pub total: Metric,
    /// The gauge that the exporter keeps of the last value.
    pub last: Option<Metric>,
    /// The histogram that the exporter keeps of the values.
    pub histogram: Option<Metric>,
}

/// A metric of NIXL's own Prometheus exporter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Metric {
    /// The name, without `_total`.
    pub name: &'static str,
    /// A description of the number that it counts or shows.
    pub help: &'static str,
}

impl NixlKind {
    /// The row of a kind that is not a ring's own.
    pub fn by_id(id: u16) -> Option<&'static NixlKind> {
        KINDS.get(usize::from(id))
    }

    /// The row with this event name, or with the status string `NIXL_ERR_*` that version 1 and 2a
    /// write for errors.
    pub fn by_name(name: &str) -> Option<&'static NixlKind> {
        match name.strip_prefix("NIXL_ERR_") {
            Some(status) => KINDS
                .iter()
                .find(|kind| kind.status.is_some_and(|s| s.eq_ignore_ascii_case(status))),
            None => KINDS.iter().find(|kind| kind.name == name),
        }
    }

    /// The name of [`last`](Self::last) where a gauge can't be named like a counter, as in OpenMetrics.
    pub fn unambiguous_last(&self) -> Option<String> {
        self.last.map(|last| {
            if last.name == self.total.name {
                format!("{}_last", last.name)
            } else {
                last.name.to_owned()
            }
        })
    }

    /// The name as versions 1 and 2a write it: `NIXL_ERR_*` for errors, else the event name.
    pub fn string_name(&self) -> String {
        match self.status {
            Some(status) => format!("NIXL_ERR_{}", status.to_ascii_uppercase()),
            None => self.name.to_owned(),
        }
    }
}

/// An event name as it stands in a slot: cut at the first NUL and zero from there on.
pub(crate) type NameKey = [u8; NAME_SIZE];

/// The names of one ring: the table of [`KINDS`] plus up to [`MAX_OWN_NAMES`] of its own, which keep
/// their kinds as long as this value lives.
#[derive(Debug)]
pub struct Names {
    by_name: HashMap<NameKey, u16, foldhash::fast::RandomState>,
    own: Vec<OwnName>,
    /// By [`place`], what stood in a slot last and its kind. Agents write few names over and over: nearly every event
    /// is found here, by a comparison.
    last: Box<[LastName; PLACES]>,
}

/// How many names are kept at hand.
const PLACES: usize = 256;

/// A slot's name as it stood there, padding and all. Empty ones are `UNKNOWN`, as in `admit`.
#[derive(Clone, Copy, Debug)]
struct LastName {
    words: NameWords,
    kind: u16,
}

/// A slot's name by the word.
type NameWords = [u64; NAME_SIZE / 8];

#[derive(Debug)]
struct OwnName {
    name: String,
    category: Category,
}

impl Default for Names {
    fn default() -> Self {
        let by_name = KINDS.iter().flat_map(|kind| {
            [kind.name.to_owned(), kind.string_name()].map(|name| (slot_name(name.as_bytes()), kind.id))
        });
        Names {
            by_name: by_name.collect(),
            own: Vec::new(),
            last: Box::new(
                [LastName {
                    words: [0; _],
                    kind: UNKNOWN,
                }; PLACES],
            ),
        }
    }
}

impl Names {
    /// The name of a kind; that of [`UNKNOWN`] for a kind that this ring never gave out.
    pub fn name(&self, kind: u16) -> &str {
        match self.own(kind) {
            Some(own) => &own.name,
            None => known(kind).name,
        }
    }

    /// The category of a kind; an own name has the category it first came with.
    pub fn category(&self, kind: u16) -> Category {
        match self.own(kind) {
            Some(own) => own.category,
            None => known(kind).category,
        }
    }

    /// The unit of a kind in UCUM; `1` for own names.
    pub fn unit(&self, kind: u16) -> &'static str {
        NixlKind::by_id(kind).map_or("1", |row| row.unit)
    }

    /// The `status` of an error kind.
    pub fn status(&self, kind: u16) -> Option<&'static str> {
        NixlKind::by_id(kind).and_then(|row| row.status)
    }

    /// One more than the largest kind given out so far: the length of a dense array by kind.
    pub fn len(&self) -> usize {
        KINDS.len() + self.own.len()
    }

    /// Never: the table of known kinds is always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The kind of a slot's name, giving out a new one while there is room.
    #[inline]
    pub(crate) fn resolve(&mut self, name: &NameKey, category: i32) -> u16 {
        let words = words(name);
        let last = &self.last[slot_of(words)];
        if is_same(last.words, words) {
            last.kind
        } else {
            self.look_up(name, category)
        }
    }

    #[cold]
    fn look_up(&mut self, slot_name: &NameKey, category: i32) -> u16 {
        let name = key(slot_name);
        let kind = match self.by_name.get(&name) {
            Some(kind) => *kind,
            None => self.admit(name, category),
        };
        let words = words(slot_name);
        self.last[slot_of(words)] = LastName { words, kind };
        kind
    }

    fn admit(&mut self, name: NameKey, category: i32) -> u16 {
        if name[0] == 0 {
            return UNKNOWN;
        }
        if self.own.len() >= MAX_OWN_NAMES {
            return OVERFLOW;
        }
        let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let kind = FIRST_OWN + self.own.len() as u16; // own.len() < MAX_OWN_NAMES
        self.own.push(OwnName {
            name: String::from_utf8_lossy(text).into_owned(),
            category: Category::by_number(category),
        });
        self.by_name.insert(name, kind);
        kind
    }

    fn own(&self, kind: u16) -> Option<&OwnName> {
        self.own.get(usize::from(kind.checked_sub(FIRST_OWN)?))
    }
}

fn known(kind: u16) -> &'static NixlKind {
    NixlKind::by_id(kind).unwrap_or(&KINDS[UNKNOWN as usize])
}

/// The text as it stands in a slot: at most 32 bytes, cut at a NUL.
pub(crate) fn slot_name(text: &[u8]) -> NameKey {
    let mut name = [0; NAME_SIZE];
    let length = text.len().min(NAME_SIZE);
    name[..length].copy_from_slice(&text[..length]);
    key(&name)
}

fn words(slot_name: &NameKey) -> NameWords {
    let word = |at: usize| u64::from_le_bytes(*slot_name[at..].first_chunk().expect("eight of its 32 bytes"));
    [word(0), word(8), word(16), word(24)]
}

/// Word by word in registers: a comparison of arrays goes through memory, where it waits for what was stored in other
/// pieces.
fn is_same([a, b, c, d]: NameWords, [e, f, g, h]: NameWords) -> bool {
    (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
}

/// Where [`Names`] keeps a name at hand. No two of the known names share a place, nor any with the empty one.
fn slot_of([a, b, c, d]: NameWords) -> usize {
    let mixed = a ^ b.rotate_left(17) ^ c.rotate_left(34) ^ d.rotate_left(51);
    (mixed.wrapping_mul(SCATTER) >> (u64::BITS - PLACES.ilog2())) as usize
}

/// An odd number that sends the known names to places of their own; found by trying.
const SCATTER: u64 = 0xb9d1_79e0_6c0f_d4f5;

/// A slot's name with everything from the first NUL on zeroed: that is padding, whatever stands
/// there. Eight bytes at a time.
fn key(slot_name: &NameKey) -> NameKey {
    let mut name = [0; NAME_SIZE];
    let (from, _) = slot_name.as_chunks::<8>();
    for (to, from) in name.as_chunks_mut::<8>().0.iter_mut().zip(from) {
        let word = u64::from_le_bytes(*from);
        // The classic test for a zero byte: its high bit is the lowest one set.
        let zeros = word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
        if zeros != 0 {
            let bits_before = zeros.trailing_zeros() & !7;
            *to = (word & ((1 << bits_before) - 1)).to_le_bytes();
            break;
        }
        *to = *from;
    }
    name
}

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGH_BITS: u64 = LOW_BITS << 7;

#[cfg(test)]
mod tests;
