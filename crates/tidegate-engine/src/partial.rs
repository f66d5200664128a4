// SPDX-License-Identifier: Apache-2.0

//! Partials: the counts of many producers for one series, in a form that tolerates repetition, delay and any order.
//!
//! A producer sends its running total, its epoch (the time of its start) and a sequence number. The partial with the
//! highest sequence of an epoch counts, and the total is the sum over all epochs. The merge of two sets of partials is
//! commutative, associative and idempotent.
//!
//! The state does not grow with the restarts of a producer. [`Partials::fold`] adds up its epochs into one retained
//! sum, with the number of the highest folded epoch. Later partials of that epoch or an older one add nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};

use crate::saved::StreamId;
use crate::stream_tracker::{Change, Increase, LastValue};
use crate::{UnixNanos, Value};

/// A running total of one producer.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// The producer.
    pub producer: StreamId,
    /// The start of its epoch.
    pub epoch: UnixNanos,
    /// A number that grows with each partial of an epoch.
    pub sequence: u64,
    /// The total of this epoch: a number, a histogram of either kind, or a summary.
    pub value: Value,
}

/// The totals of all producers of a series.
#[derive(Clone, Debug, Default)]
pub struct Partials {
    producers: BTreeMap<StreamId, Producer>,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    /// The sum of the folded epochs, up to this one.
    retained: Option<(UnixNanos, EpochTotal)>,
    /// The epochs after it.
    epochs: BTreeMap<UnixNanos, EpochTotal>,
}

/// The newest total of an epoch.
#[derive(Clone, Debug)]
struct EpochTotal {
    sequence: u64,
    total: LastValue,
}

impl EpochTotal {
    /// The order of two totals of an epoch: the later one wins, and between two that differ always the same
    /// one.
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

    fn take(&mut self, epoch: UnixNanos, entry: EpochTotal) {
        if self.floor().is_some_and(|folded| epoch <= folded) {
            return;
        }
        match self.epochs.entry(epoch) {
            Occupied(mut known) => known.get_mut().prefer(entry),
            Vacant(new) => drop(new.insert(entry)),
        }
    }

    fn retain(&mut self, epoch: UnixNanos, entry: EpochTotal) {
        match &mut self.retained {
            Some((known, _)) if *known > epoch => {}
            Some((known, mine)) if *known == epoch => mine.prefer(entry),
            retained => *retained = Some((epoch, entry)),
        }
        let floor = self.floor();
        self.epochs.retain(|epoch, _| Some(*epoch) > floor);
    }

    fn totals(&self) -> impl Iterator<Item = &EpochTotal> {
        let retained = self.retained.iter().map(|(_, entry)| entry);
        retained.chain(self.epochs.values())
    }
}

impl Partials {
    /// Takes a partial. It adds nothing if it is known, older than a known one, of a folded epoch, or
    /// without a value.
    pub fn take(&mut self, partial: &Partial) {
        if let Some(total) =
            LastValue::of(&partial.value).filter(|total| !matches!(total, LastValue::Nothing))
        {
            let entry = EpochTotal {
                sequence: partial.sequence,
                total,
            };
            let producer = self.producers.entry(partial.producer).or_default();
            producer.take(partial.epoch, entry);
        }
    }

    /// Merges another set into this one.
    pub fn merge(&mut self, other: &Self) {
        for (id, theirs) in &other.producers {
            let mine = self.producers.entry(*id).or_default();
            if let Some((epoch, entry)) = &theirs.retained {
                mine.retain(*epoch, entry.clone());
            }
            for (epoch, entry) in &theirs.epochs {
                mine.take(*epoch, entry.clone());
            }
        }
    }

    /// Folds all epochs of a producer that has ended, or all but the last of a living one.
    pub fn fold(&mut self, producer: StreamId, is_over: bool) {
        let Some(producer) = self.producers.get_mut(&producer) else {
            return;
        };
        let keep = usize::from(!is_over);
        while producer.epochs.len() > keep {
            let Some((epoch, entry)) = producer.epochs.pop_first() else {
                break;
            };
            let sum = match producer.retained.take() {
                Some((_, retained)) => EpochTotal {
                    sequence: entry.sequence,
                    total: sum(retained.total, entry.total),
                },
                None => entry,
            };
            producer.retained = Some((epoch, sum));
        }
    }

    /// The sum over all producers; `None`: no producer has sent a partial.
    pub fn total(&self) -> Option<Value> {
        let totals = self.producers.values().flat_map(Producer::totals);
        totals.map(|entry| entry.total.clone()).reduce(sum)?.value()
    }

    /// The highest epoch of a producer that was folded.
    pub fn folded(&self, producer: StreamId) -> Option<UnixNanos> {
        self.producers.get(&producer)?.floor()
    }

    /// Number of totals.
    pub fn len(&self) -> usize {
        self.producers
            .values()
            .map(|producer| producer.totals().count())
            .sum()
    }

    /// Whether no producer has sent a partial.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    fn state(&self) -> Vec<tests::Known> {
        let of = |(id, producer): (&StreamId, &Producer)| {
            (
                *id,
                producer.floor(),
                producer.totals().map(EpochTotal::rank).collect(),
            )
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

    /// A producer, its folded epoch, and its totals by rank.
    pub(super) type Known = (StreamId, Option<UnixNanos>, Vec<(u64, Vec<u8>)>);

    fn id(number: u8) -> StreamId {
        let mut id = StreamId::default();
        id[0] = number;
        id
    }

    fn partial() -> impl Strategy<Value = Partial> {
        (0u8..3, 1u64..4, 0u64..4, 0i64..100).prop_map(|(producer, epoch, sequence, value)| Partial {
            producer: id(producer),
            epoch,
            sequence,
            value: Value::Int(value),
        })
    }

    /// A set as it may have come about: partials and folds.
    fn set() -> impl Strategy<Value = Partials> {
        let step = prop_oneof![
            5 => partial().prop_map(Ok),
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

        /// The model: producers that count, restart and end; their partials come to two gateways in any
        /// order, repeated, some only to one of them; one of the two folds.
        #[test]
        fn the_total_is_what_was_counted_and_never_falls(
            acts in prop::collection::vec((0u8..4, 0i64..50, 0u8..8), 1..60),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..120),
        ) {
            let mut epochs: HashMap<u8, (u64, u64, i64)> = HashMap::new();
            let (mut partials, mut counted) = (Vec::new(), 0);
            for (at, (producer, more, restarts)) in acts.into_iter().enumerate() {
                let epoch = epochs.entry(producer).or_insert((1, 0, 0));
                if restarts == 0 {
                    *epoch = (at as u64 + 2, 0, 0);
                }
                (epoch.1, epoch.2) = (epoch.1 + 1, epoch.2 + more);
                counted += more;
                let (producer, value) = (id(producer), Value::Int(epoch.2));
                partials.push(Partial { producer, epoch: epoch.0, sequence: epoch.1, value });
            }
            let (mut left, mut right) = (Partials::default(), Partials::default());
            let mut last = 0;
            for (index, is_left) in order {
                let partial = index.get(&partials);
                if is_left { left.take(partial) } else { right.take(partial) }
                let total = left.total().and_then(|total| total.as_f64()).unwrap_or(0.0);
                prop_assert!(total >= last as f64);
                last = total as i64;
            }
            // In the end the left one hears everything, folds, and hears it all again, as do both of each other.
            partials.iter().for_each(|partial| left.take(partial));
            let whole = Some(Value::Int(counted));
            prop_assert_eq!(left.total(), whole.clone());
            for producer in 0..4 {
                left.fold(id(producer), producer % 2 == 0);
            }
            partials.iter().rev().for_each(|partial| left.take(partial));
            left.merge(&right);
            right.merge(&left);
            prop_assert_eq!((left.total(), right.total()), (whole.clone(), whole));
            prop_assert!(left.len() <= 4 * 2);
        }
    }
}
