//! Partials: what many producers have counted of one series, in a form that may be sent twice, late and in any order.
//!
//! A producer says its running total together with an epoch (when its run began) and a sequence number. Of each run the
//! word with the highest sequence counts, and the total is the sum over all runs. Merging two sets of partials is
//! commutative, associative and idempotent: it does not matter who heard what first, or how often.
//!
//! What is kept does not grow with the restarts of a producer: [`Partials::fold`] adds its runs up into one that is
//! retained and names the highest folded epoch. Words of that epoch or an older one add nothing any more.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};

use crate::saved::StreamId;
use crate::stream_tracker::{Change, Increase, LastValue};
use crate::{UnixNanos, Value};

/// One word of a producer.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// Who.
    pub producer: StreamId,
    /// When its run began.
    pub epoch: UnixNanos,
    /// Grows with every word of a run.
    pub sequence: u64,
    /// What it has counted in this run: a number, a histogram of either kind, or a summary.
    pub value: Value,
}

/// What all producers of a series have said.
#[derive(Clone, Debug, Default)]
pub struct Partials {
    producers: BTreeMap<StreamId, Producer>,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    /// The runs that were folded, up to this epoch.
    retained: Option<(UnixNanos, Word)>,
    /// Later runs.
    runs: BTreeMap<UnixNanos, Word>,
}

#[derive(Clone, Debug)]
struct Word {
    sequence: u64,
    total: LastValue,
}

impl Word {
    /// Which of two words counts: the later one; of two that contradict each other always the same.
    fn rank(&self) -> (u64, Vec<u8>) {
        let mut bytes = Vec::new();
        self.total.save(&mut bytes);
        (self.sequence, bytes)
    }

    fn prefer(&mut self, other: Self) {
        if other.sequence > self.sequence || (other.sequence == self.sequence && other.rank() > self.rank()) {
            *self = other;
        }
    }
}

impl Producer {
    fn floor(&self) -> Option<UnixNanos> {
        self.retained.as_ref().map(|(epoch, _)| *epoch)
    }

    fn take(&mut self, epoch: UnixNanos, word: Word) {
        if self.floor().is_some_and(|folded| epoch <= folded) {
            return;
        }
        match self.runs.entry(epoch) {
            Occupied(mut known) => known.get_mut().prefer(word),
            Vacant(new) => drop(new.insert(word)),
        }
    }

    fn retain(&mut self, epoch: UnixNanos, word: Word) {
        match &mut self.retained {
            Some((known, _)) if *known > epoch => {}
            Some((known, mine)) if *known == epoch => mine.prefer(word),
            retained => *retained = Some((epoch, word)),
        }
        let floor = self.floor();
        self.runs.retain(|epoch, _| Some(*epoch) > floor);
    }

    fn words(&self) -> impl Iterator<Item = &Word> {
        let retained = self.retained.iter().map(|(_, word)| word);
        retained.chain(self.runs.values())
    }
}

impl Partials {
    /// Takes a word. One that was heard before, is older than what was heard, or of a folded run adds nothing; nor does
    /// a value that is none.
    pub fn take(&mut self, partial: &Partial) {
        if let Some(total) =
            LastValue::of(&partial.value).filter(|total| !matches!(total, LastValue::Nothing))
        {
            let word = Word {
                sequence: partial.sequence,
                total,
            };
            let producer = self.producers.entry(partial.producer).or_default();
            producer.take(partial.epoch, word);
        }
    }

    /// Takes everything that another set holds.
    pub fn merge(&mut self, other: &Self) {
        for (id, theirs) in &other.producers {
            let mine = self.producers.entry(*id).or_default();
            if let Some((epoch, word)) = &theirs.retained {
                mine.retain(*epoch, word.clone());
            }
            for (epoch, word) in &theirs.runs {
                mine.take(*epoch, word.clone());
            }
        }
    }

    /// Adds up all runs of a producer that has ended, or all but its last of one that lives.
    pub fn fold(&mut self, producer: StreamId, is_over: bool) {
        let Some(producer) = self.producers.get_mut(&producer) else {
            return;
        };
        let keep = usize::from(!is_over);
        while producer.runs.len() > keep {
            let Some((epoch, run)) = producer.runs.pop_first() else {
                break;
            };
            let sum = match producer.retained.take() {
                Some((_, retained)) => Word {
                    sequence: run.sequence,
                    total: sum(retained.total, run.total),
                },
                None => run,
            };
            producer.retained = Some((epoch, sum));
        }
    }

    /// What all producers have counted; `None` before any has said anything.
    pub fn total(&self) -> Option<Value> {
        let words = self.producers.values().flat_map(Producer::words);
        words.map(|word| word.total.clone()).reduce(sum)?.value()
    }

    /// The highest epoch of a producer that was folded.
    pub fn folded(&self, producer: StreamId) -> Option<UnixNanos> {
        self.producers.get(&producer)?.floor()
    }

    /// How many totals are kept.
    pub fn len(&self) -> usize {
        self.producers
            .values()
            .map(|producer| producer.words().count())
            .sum()
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    fn state(&self) -> Vec<tests::Known> {
        let of = |(id, producer): (&StreamId, &Producer)| {
            (*id, producer.floor(), producer.words().map(Word::rank).collect())
        };
        self.producers.iter().map(of).collect()
    }
}

/// Two totals as one; of totals of different kinds, which can't be added, the first.
fn sum(mut a: LastValue, b: LastValue) -> LastValue {
    let change = match b {
        LastValue::Nothing => return a,
        LastValue::Number(number) => Change::Number(number),
        LastValue::Histogram(histogram) => Change::Histogram(Increase::Part(histogram)),
        LastValue::Exponential(histogram) => Change::Exponential(Increase::Part(histogram)),
        LastValue::Summary(moments) => Change::Summary(*moments),
    };
    a.add(&change);
    a
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A producer, what was folded of it, and its words by rank.
    pub(super) type Known = (StreamId, Option<UnixNanos>, Vec<(u64, Vec<u8>)>);

    fn id(number: u8) -> StreamId {
        let mut id = StreamId::default();
        id[0] = number;
        id
    }

    fn word() -> impl Strategy<Value = Partial> {
        (0u8..3, 1u64..4, 0u64..4, 0i64..100).prop_map(|(producer, epoch, sequence, value)| Partial {
            producer: id(producer),
            epoch,
            sequence,
            value: Value::Int(value),
        })
    }

    /// A set as it may have come about: words and folds.
    fn set() -> impl Strategy<Value = Partials> {
        let step = prop_oneof![
            5 => word().prop_map(Ok),
            1 => (0u8..3, any::<bool>()).prop_map(Err),
        ];
        prop::collection::vec(step, 0..20).prop_map(|steps| {
            let mut partials = Partials::default();
            for step in steps {
                match step {
                    Ok(partial) => partials.take(&partial),
                    Err((producer, is_over)) => partials.fold(id(producer), is_over),
                }
            }
            partials
        })
    }

    fn merged(a: &Partials, b: &Partials) -> Partials {
        let mut all = a.clone();
        all.merge(b);
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn merging_is_commutative_associative_and_idempotent(a in set(), b in set(), c in set()) {
            prop_assert_eq!(merged(&a, &b).state(), merged(&b, &a).state());
            prop_assert_eq!(merged(&merged(&a, &b), &c).state(), merged(&a, &merged(&b, &c)).state());
            prop_assert_eq!(merged(&a, &a).state(), a.state());
            prop_assert_eq!(merged(&merged(&a, &b), &b).state(), merged(&a, &b).state());
        }

        /// The model: producers that count, restart and end; their words come to two gateways in any order, repeated,
        /// some only to one of them; one of the two folds.
        #[test]
        fn the_total_is_what_was_counted_and_never_falls(
            acts in prop::collection::vec((0u8..4, 0i64..50, 0u8..8), 1..60),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..120),
        ) {
            let mut runs: HashMap<u8, (u64, u64, i64)> = HashMap::new();
            let (mut words, mut counted) = (Vec::new(), 0);
            for (at, (producer, more, restarts)) in acts.into_iter().enumerate() {
                let run = runs.entry(producer).or_insert((1, 0, 0));
                if restarts == 0 {
                    *run = (at as u64 + 2, 0, 0);
                }
                (run.1, run.2) = (run.1 + 1, run.2 + more);
                counted += more;
                words.push(Partial { producer: id(producer), epoch: run.0, sequence: run.1, value: Value::Int(run.2) });
            }
            let (mut left, mut right) = (Partials::default(), Partials::default());
            let mut last = 0;
            for (index, is_left) in order {
                let word = index.get(&words);
                if is_left { left.take(word) } else { right.take(word) }
                let total = left.total().and_then(|total| total.as_f64()).unwrap_or(0.0);
                prop_assert!(total >= last as f64);
                last = total as i64;
            }
            // In the end the left one hears everything, folds, and hears it all again, as do both of each other.
            words.iter().for_each(|word| left.take(word));
            let whole = Some(Value::Int(counted));
            prop_assert_eq!(left.total(), whole.clone());
            for producer in 0..4 {
                left.fold(id(producer), producer % 2 == 0);
            }
            words.iter().rev().for_each(|word| left.take(word));
            left.merge(&right);
            right.merge(&left);
            prop_assert_eq!((left.total(), right.total()), (whole.clone(), whole));
            prop_assert!(left.len() <= 4 * 2);
        }
    }
}
