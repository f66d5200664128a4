// SPDX-License-Identifier: Apache-2.0

//! The kinds of a StatsD sender: every combination of name, type and tags gets an index once and keeps it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use tidegate_engine::{AttributeValue, Attributes, EventKind, Instrument, Schema};

use super::statsd::{Line, Type};
use crate::component::{Account, Held};

/// Spellings remembered for each kind: the order of tags makes several of one kind.
const SPELLINGS_PER_KIND: usize = 4;

/// The most bytes of one sender's kinds and spellings. 4,096 kinds of usual lines take half of it.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// The approximate overhead of a kind, in bytes.
const KIND_BYTES: usize = 300;

/// The approximate overhead of a tag, in bytes.
const TAG_BYTES: usize = 100;

/// The approximate overhead of a spelling, in bytes.
const SPELLING_BYTES: usize = 48;

/// The reason why a line has no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKind {
    /// The kind is new, and the sender has its maximum.
    TooMany,
    /// The kind is new, and the sender's kinds take [`MAX_BYTES`] already.
    TooLarge,
    /// The kind is new, and memory is short.
    NoRoom,
}

/// The kinds of one sender. Bounded by number and by bytes.
pub(super) struct Kinds {
    schema: Arc<Schema>,
    /// By the bytes of the line: no canonical ordering for a line seen before.
    by_spelling: HashMap<Box<[u8]>, u16>,
    by_meaning: HashMap<(Arc<str>, Type, Attributes), u16>,
    /// The last value of each gauge, which `+1` and `-1` change.
    gauges: Vec<f64>,
    max: u16,
    counter: Instrument,
    spelling: Vec<u8>,
    /// The reservation of `schema`, `by_meaning` and `gauges`.
    kinds_held: Held,
    /// The reservation of `by_spelling`.
    spellings_held: Held,
}

impl Kinds {
    /// At most `max` kinds; counters are of that instrument.
    pub(super) fn new(max: u16, counter: Instrument, account: &Arc<Account>) -> Self {
        Self {
            schema: Arc::default(),
            by_spelling: HashMap::new(),
            by_meaning: HashMap::new(),
            gauges: Vec::new(),
            max,
            counter,
            spelling: Vec::new(),
            kinds_held: Held::new(account.clone()),
            spellings_held: Held::new(account.clone()),
        }
    }

    /// The bytes of all of it.
    pub(super) fn bytes(&self) -> usize {
        self.kinds_held.bytes() + self.spellings_held.bytes()
    }

    /// The most kinds.
    pub(super) fn max(&self) -> u16 {
        self.max
    }

    /// Sets the most kinds. Returns false if there are more already.
    pub(super) fn set_max(&mut self, max: u16) -> bool {
        self.max = max;
        self.schema.kinds.len() <= usize::from(max)
    }

    /// The instrument of counters.
    pub(super) fn counter(&self) -> Instrument {
        self.counter
    }

    /// The kinds of the indexes.
    pub(super) fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }

    /// The index of a line's kind.
    ///
    /// # Errors
    /// The kind is new, and exceeds a limit or memory.
    pub(super) fn index_of(&mut self, line: &Line<'_>) -> Result<u16, NoKind> {
        self.spell(line);
        if let Some(known) = self.by_spelling.get(self.spelling.as_slice()) {
            return Ok(*known);
        }
        let index = self.by_meaning(line)?;
        self.remember(index);
        Ok(index)
    }

    /// Remembers the spelling of a line if memory allows. If necessary, it forgets the others first.
    fn remember(&mut self, index: u16) {
        let bytes = SPELLING_BYTES + self.spelling.len();
        if self.by_spelling.len() >= usize::from(self.max) * SPELLINGS_PER_KIND
            || self.bytes() + bytes > MAX_BYTES
        {
            self.forget_spellings();
        }
        if self.bytes() + bytes > MAX_BYTES || self.spellings_held.try_grow(bytes).is_err() {
            return;
        }
        self.spellings_held.fill(bytes);
        self.by_spelling.insert(self.spelling.as_slice().into(), index);
    }

    /// Forgets all spellings and releases the map's memory.
    fn forget_spellings(&mut self) {
        self.by_spelling = HashMap::new();
        self.spellings_held.keep(0);
    }

    /// Sets or changes a gauge and gives its value.
    pub(super) fn gauge(&mut self, index: u16, number: f64, is_change: bool) -> f64 {
        let Some(value) = self.gauges.get_mut(usize::from(index)) else {
            return number;
        };
        *value = if is_change { *value + number } else { number };
        *value
    }

    fn spell(&mut self, line: &Line<'_>) {
        self.spelling.clear();
        self.spelling.extend_from_slice(line.name.as_bytes());
        // A name has no `|`, so that the parts can't run into each other.
        self.spelling.extend_from_slice(&[b'|', line.metric_type as u8]);
        self.spelling.extend_from_slice(line.tags.as_bytes());
    }

    fn by_meaning(&mut self, line: &Line<'_>) -> Result<u16, NoKind> {
        let text = line.name.len() + line.tags.len();
        let name: Arc<str> = line.name.into();
        let attributes: Attributes = line
            .tags()
            .map(|(key, value)| (key, AttributeValue::from(value)))
            .collect();
        let meaning = (name.clone(), line.metric_type, attributes.clone());
        if let Some(known) = self.by_meaning.get(&meaning) {
            return Ok(*known);
        }
        let index = u16::try_from(self.schema.kinds.len())
            .ok()
            .filter(|index| *index < self.max)
            .ok_or(NoKind::TooMany)?;
        self.reserve(KIND_BYTES + text + TAG_BYTES * line.tags().count())?;
        let (instrument, unit) = match line.metric_type {
            Type::Counter => (self.counter, ""),
            Type::Gauge => (Instrument::Gauge, ""),
            Type::Timer => (Instrument::Histogram, "ms"),
            Type::Histogram | Type::Distribution => (Instrument::Histogram, ""),
        };
        let kind = EventKind {
            name,
            description: Arc::default(),
            unit: unit.into(),
            instrument,
            attributes,
        };
        Arc::make_mut(&mut self.schema).kinds.push(kind);
        self.gauges.push(0.0);
        self.by_meaning.insert(meaning, index);
        Ok(index)
    }

    /// Room for a kind; spellings make room for it.
    fn reserve(&mut self, bytes: usize) -> Result<(), NoKind> {
        if self.kinds_held.bytes() + bytes > MAX_BYTES {
            return Err(NoKind::TooLarge);
        }
        if self.bytes() + bytes > MAX_BYTES {
            self.forget_spellings();
        }
        self.kinds_held.try_grow(bytes).map_err(|_| NoKind::NoRoom)?;
        self.kinds_held.fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receivers::uds::statsd::parse;

    fn kinds(max: u16) -> Kinds {
        Kinds::new(max, Instrument::Counter, &Arc::default())
    }

    fn index(kinds: &mut Kinds, line: &str) -> Result<u16, NoKind> {
        kinds.index_of(&parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn name_type_and_tags_make_a_kind_and_the_order_of_tags_does_not() {
        let mut kinds = kinds(10);
        assert_eq!(index(&mut kinds, "a:1|c|#x:1,y:2"), Ok(0));
        assert_eq!(index(&mut kinds, "a:7|c|#x:1,y:2|@0.5"), Ok(0));
        assert_eq!(index(&mut kinds, "a:1|c|#y:2,x:1"), Ok(0));
        assert_eq!(index(&mut kinds, "a:1|ms|#x:1,y:2"), Ok(1));
        assert_eq!(index(&mut kinds, "b:1|c|#x:1,y:2"), Ok(2));
        let schema = kinds.schema();
        assert_eq!(&*schema.kinds[1].unit, "ms");
        assert_eq!(schema.kinds[1].instrument, Instrument::Histogram);
    }

    #[test]
    fn a_full_table_keeps_what_it_has_and_takes_nothing_new() {
        let mut kinds = kinds(2);
        assert_eq!(index(&mut kinds, "a:1|c"), Ok(0));
        assert_eq!(index(&mut kinds, "b:1|c"), Ok(1));
        assert_eq!(index(&mut kinds, "c:1|c"), Err(NoKind::TooMany));
        assert_eq!(index(&mut kinds, "a:1|c"), Ok(0));
        for spelling in 0..100 {
            assert_eq!(
                index(&mut kinds, &format!("a:1|c|#{}", ",".repeat(spelling))),
                Ok(0)
            );
        }
        assert!(kinds.by_spelling.len() <= 2 * SPELLINGS_PER_KIND);
    }

    #[test]
    fn another_maximum_fits_if_it_is_not_below_the_known_kinds() {
        let mut kinds = kinds(1);
        assert_eq!(index(&mut kinds, "a:1|c"), Ok(0));
        assert_eq!(index(&mut kinds, "b:1|c"), Err(NoKind::TooMany));
        assert!(kinds.set_max(2));
        assert_eq!(index(&mut kinds, "b:1|c"), Ok(1));
        assert!(!kinds.set_max(1));
    }

    #[test]
    fn spellings_take_bounded_memory_that_is_on_the_account() {
        let account = Arc::<Account>::default();
        let mut kinds = Kinds::new(4096, Instrument::Counter, &account);
        for spelling in 0..300 {
            // One meaning: empty tags say nothing.
            let line = format!("a:1|c|#x:1{}", ",".repeat(60_000 + spelling));
            assert_eq!(index(&mut kinds, &line), Ok(0));
            assert!(kinds.bytes() <= MAX_BYTES, "{}", kinds.bytes());
            assert_eq!(account.reserved_bytes(), kinds.bytes());
        }
        let held: usize = kinds.by_spelling.keys().map(|spelling| spelling.len()).sum();
        assert!(held > 0 && held <= kinds.spellings_held.bytes());
        drop(kinds);
        assert_eq!(account.reserved_bytes(), 0);
    }

    #[test]
    fn long_kinds_fill_the_room_and_known_ones_stay() {
        let mut kinds = kinds(4096);
        let line = |number: usize| format!("{number}.{}:1|c", "n".repeat(60_000));
        let refused = (0..).find(|number| index(&mut kinds, &line(*number)).is_err());
        let refused = refused.unwrap();
        assert!((60..70).contains(&refused), "{refused}");
        assert_eq!(index(&mut kinds, &line(refused)), Err(NoKind::TooLarge));
        assert_eq!(index(&mut kinds, &line(3)), Ok(3));
        assert!(index(&mut kinds, "short:1|c").is_ok());
        assert!(kinds.bytes() <= MAX_BYTES);
    }

    #[test]
    fn without_room_in_the_gateway_nothing_new_is_learned() {
        let account = Arc::<Account>::default();
        account.set_default_limit(1000);
        let mut kinds = Kinds::new(4096, Instrument::Counter, &account);
        assert_eq!(index(&mut kinds, "a:1|c"), Ok(0));
        assert_eq!(
            index(&mut kinds, &format!("{}:1|c", "b".repeat(1000))),
            Err(NoKind::NoRoom)
        );
        assert_eq!(index(&mut kinds, "a:1|c"), Ok(0));
    }
}
