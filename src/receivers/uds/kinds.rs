//! The kinds of a StatsD sender: every combination of name, type and tags gets an index once and keeps it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use tidegate_engine::{AttributeValue, Attributes, Instrument, Kind, Schema};

use super::statsd::{Line, Type};

/// Spellings remembered for each kind: the order of tags makes several of one kind.
const SPELLINGS_PER_KIND: usize = 4;

/// The kinds of one sender. Bounded.
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
}

impl Kinds {
    /// At most `max` kinds; counters are of that instrument.
    pub(super) fn new(max: u16, counter: Instrument) -> Self {
        Self {
            schema: Arc::default(),
            by_spelling: HashMap::new(),
            by_meaning: HashMap::new(),
            gauges: Vec::new(),
            max,
            counter,
            spelling: Vec::new(),
        }
    }

    /// How many kinds there may be.
    pub(super) fn max(&self) -> u16 {
        self.max
    }

    /// The instrument of counters.
    pub(super) fn counter(&self) -> Instrument {
        self.counter
    }

    /// What the indexes mean.
    pub(super) fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }

    /// The index of a line's kind; `None` when it is new and there is no room.
    pub(super) fn index_of(&mut self, line: &Line<'_>) -> Option<u16> {
        self.spell(line);
        if let Some(known) = self.by_spelling.get(self.spelling.as_slice()) {
            return Some(*known);
        }
        let index = self.by_meaning(line)?;
        if self.by_spelling.len() >= usize::from(self.max) * SPELLINGS_PER_KIND {
            self.by_spelling.clear();
        }
        self.by_spelling.insert(self.spelling.as_slice().into(), index);
        Some(index)
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

    fn by_meaning(&mut self, line: &Line<'_>) -> Option<u16> {
        let name: Arc<str> = line.name.into();
        let attributes: Attributes = line
            .tags()
            .map(|(key, value)| (key, AttributeValue::from(value)))
            .collect();
        let meaning = (name.clone(), line.metric_type, attributes.clone());
        if let Some(known) = self.by_meaning.get(&meaning) {
            return Some(*known);
        }
        let index = u16::try_from(self.schema.kinds.len())
            .ok()
            .filter(|index| *index < self.max)?;
        let (instrument, unit) = match line.metric_type {
            Type::Counter => (self.counter, ""),
            Type::Gauge => (Instrument::Gauge, ""),
            Type::Timer => (Instrument::Histogram, "ms"),
            Type::Histogram | Type::Distribution => (Instrument::Histogram, ""),
        };
        let kind = Kind {
            name,
            description: Arc::default(),
            unit: unit.into(),
            instrument,
            attributes,
        };
        Arc::make_mut(&mut self.schema).kinds.push(kind);
        self.gauges.push(0.0);
        self.by_meaning.insert(meaning, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receivers::uds::statsd::parse;

    fn index(kinds: &mut Kinds, line: &str) -> Option<u16> {
        kinds.index_of(&parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn name_type_and_tags_make_a_kind_and_the_order_of_tags_does_not() {
        let mut kinds = Kinds::new(10, Instrument::Counter);
        assert_eq!(index(&mut kinds, "a:1|c|#x:1,y:2"), Some(0));
        assert_eq!(index(&mut kinds, "a:7|c|#x:1,y:2|@0.5"), Some(0));
        assert_eq!(index(&mut kinds, "a:1|c|#y:2,x:1"), Some(0));
        assert_eq!(index(&mut kinds, "a:1|ms|#x:1,y:2"), Some(1));
        assert_eq!(index(&mut kinds, "b:1|c|#x:1,y:2"), Some(2));
        let schema = kinds.schema();
        assert_eq!(&*schema.kinds[1].unit, "ms");
        assert_eq!(schema.kinds[1].instrument, Instrument::Histogram);
    }

    #[test]
    fn a_full_table_keeps_what_it_has_and_takes_nothing_new() {
        let mut kinds = Kinds::new(2, Instrument::Counter);
        assert_eq!(index(&mut kinds, "a:1|c"), Some(0));
        assert_eq!(index(&mut kinds, "b:1|c"), Some(1));
        assert_eq!(index(&mut kinds, "c:1|c"), None);
        assert_eq!(index(&mut kinds, "a:1|c"), Some(0));
        for spelling in 0..100 {
            assert_eq!(
                index(&mut kinds, &format!("a:1|c|#{}", ",".repeat(spelling))),
                Some(0)
            );
        }
        assert!(kinds.by_spelling.len() <= 2 * SPELLINGS_PER_KIND);
    }
}
