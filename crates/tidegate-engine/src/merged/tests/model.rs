// SPDX-License-Identifier: Apache-2.0

//! Merged series against a model that knows all observations of all runs.

use proptest::prelude::*;

use super::*;

const PRODUCERS: u8 = 3;
const RUNS: usize = 4;

/// The starts of the runs of each producer: clocks were set back, and runs overlap.
const STARTS: [[u64; RUNS]; PRODUCERS as usize] = [[700, 20, 300, 21], [5, 6, 9000, 7], [400, 300, 200, 100]];

/// How observations become a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Whole,
    Double,
    Histogram,
    UnequalHistogram,
    Exponential,
    Summary,
}

pub(super) fn form() -> impl Strategy<Value = Form> {
    use Form::{Double, Exponential, Histogram, Summary, UnequalHistogram, Whole};
    prop::sample::select(vec![
        Whole,
        Double,
        Histogram,
        UnequalHistogram,
        Exponential,
        Summary,
    ])
}

impl Form {
    /// The value of a run after these observations.
    pub(super) fn value(self, start: u64, observed: &[f64]) -> Value {
        let sum = observed.iter().sum();
        match self {
            Self::Whole => Value::Int(observed.len() as i64),
            Self::Double => Value::Double(sum),
            Self::Histogram => histogram(&[1.0, 2.0, 3.0], observed),
            Self::UnequalHistogram if start.is_multiple_of(2) => histogram(&[2.0], observed),
            Self::UnequalHistogram => histogram(&[1.0, 2.0, 3.0], observed),
            Self::Exponential => {
                let scale = (start % 3) as i32;
                let mut counts = vec![0; 16];
                for value in observed {
                    counts[(value * 2.0) as usize] += 1;
                }
                exponential(scale, 1 - scale, &counts, sum)
            }
            Self::Summary => summary(observed.len() as u64, sum),
        }
    }
}

/// Count and sum of a value: a number is only one of them.
pub(super) fn moments(value: &Value) -> (Option<u64>, Option<f64>) {
    match value {
        Value::Int(count) => (Some(*count as u64), None),
        Value::Double(sum) => (None, Some(*sum)),
        Value::Histogram(histogram) => {
            assert!(histogram.is_sound());
            (Some(histogram.count), histogram.sum)
        }
        Value::ExponentialHistogram(histogram) => {
            assert!(histogram.is_sound());
            (Some(histogram.count), histogram.sum)
        }
        Value::Summary(summary) => (Some(summary.count), Some(summary.sum)),
        Value::NoRecordedValue => panic!("no value"),
    }
}

/// An event at a replica, or at both.
#[derive(Clone, Debug)]
enum Act {
    /// The replica reads a report, perhaps again.
    Take(prop::sample::Index),
    /// The replica is the leader for this moment and folds a run, alive or not.
    Fold(u8, usize, bool),
    /// It publishes the retained total of a producer.
    Publish(u8),
    /// It reads a published total, perhaps an old one.
    Read(prop::sample::Index),
    Show,
}

fn act() -> impl Strategy<Value = (bool, Act)> {
    let act = prop_oneof![
        8 => any::<prop::sample::Index>().prop_map(Act::Take),
        2 => (0..PRODUCERS, 0..RUNS, any::<bool>()).prop_map(|(of, run, over)| Act::Fold(of, run, over)),
        2 => (0..PRODUCERS).prop_map(Act::Publish),
        3 => any::<prop::sample::Index>().prop_map(Act::Read),
        2 => Just(Act::Show),
    ];
    (any::<bool>(), act)
}

/// All reports of a history, and the last observations of each run.
struct History {
    reports: Vec<RunReport>,
    runs: BTreeMap<(u8, usize), Vec<f64>>,
}

fn history(form: Form, said: &[(u8, usize, Vec<u8>)]) -> History {
    let (mut reports, mut runs) = (Vec::new(), BTreeMap::<_, Vec<f64>>::new());
    for (at, (producer, run, more)) in said.iter().enumerate() {
        let observed = runs.entry((*producer, *run)).or_default();
        observed.extend(more.iter().map(|tenths| f64::from(*tenths) * 0.1));
        let start = STARTS[usize::from(*producer)][*run];
        reports.push(report(*producer, start, at as u64, form.value(start, observed)));
    }
    History { reports, runs }
}

pub(super) type Record = (Key, Arc<Series>, RetainedTotal);

pub(super) fn records(from: &Merged, producer: u8) -> Vec<Record> {
    let mut all = Vec::new();
    from.retained(id(producer), &mut |key, series, total| {
        all.push((key, series.clone(), total));
    });
    all
}

pub(super) fn read(to: &mut Merged, (key, series, total): &Record) {
    to.take_retained(*key, series, total.clone()).unwrap();
}

/// The same shown value, to the bit.
pub(super) fn bits(merged: &mut Merged) -> String {
    format!("{:?}", shown(merged))
}

/// Checks that nothing that was shown falls.
pub(super) fn grows(before: &mut (u64, f64), merged: &mut Merged) {
    let Some(value) = value(merged) else { return };
    let (count, sum) = moments(&value);
    assert!(
        count.is_none_or(|count| count >= before.0),
        "{count:?} {before:?}"
    );
    assert!(sum.is_none_or(|sum| sum >= before.1), "{sum:?} {before:?}");
    *before = (count.unwrap_or(0), sum.unwrap_or(0.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Reports come late, repeated, to one of two replicas or never. Both replicas fold at any moment.
    #[test]
    fn two_leaders_lose_nothing_and_count_nothing_twice(
        form in form(),
        said in prop::collection::vec(
            (0..PRODUCERS, 0..RUNS, prop::collection::vec(1u8..70, 0..4)), 1..40,
        ),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let History { reports, runs } = history(form, &said);
        let mut replicas = [Merged::new(limits()), Merged::new(limits())];
        let mut before = [(0, 0.0); 2];
        let mut published = Vec::new();
        for (is_second, act) in acts {
            let merged = &mut replicas[usize::from(is_second)];
            match act {
                Act::Take(which) => {
                    take(merged, "x", which.get(&reports).clone()).unwrap();
                }
                Act::Fold(producer, run, is_over) => {
                    let before = bits(merged);
                    merged.fold(id(producer), STARTS[usize::from(producer)][run], is_over);
                    prop_assert_eq!(bits(merged), before, "a fold changes nothing that is shown");
                }
                Act::Publish(producer) => published.extend(records(merged, producer)),
                Act::Read(which) if !published.is_empty() => read(merged, which.get(&published)),
                Act::Read(_) => {}
                Act::Show => {}
            }
            // Two sets of bounds have no order of their own: the sums stay in any case.
            grows(&mut before[usize::from(is_second)], merged);
        }
        // In the end the first hears the last report of each run, and folds all but the third runs.
        let [first, second] = &mut replicas;
        let mut last = BTreeMap::new();
        reports.iter().for_each(|report| drop(last.insert(report.order_key(), report.clone())));
        take_all(first, last.values().rev().cloned());
        for (producer, starts) in (0..).zip(STARTS) {
            for run in [0, 1, 3] {
                first.fold(id(producer), starts[run], true);
            }
        }
        // The second has only what the first publishes, and what is left of the stream. So has one that starts now.
        let mut third = Merged::new(limits());
        for merged in [&mut *second, &mut third] {
            for producer in 0..PRODUCERS {
                records(first, producer).iter().rev().for_each(|record| read(merged, record));
            }
            for (producer, starts) in (0..).zip(STARTS) {
                let live = last.get(&(id(producer), starts[2], true));
                take_all(merged, live.cloned());
            }
        }
        let mut whole = Merged::new(limits());
        take_all(&mut whole, reports);
        let expected = bits(&mut whole);
        for merged in [first, second, &mut third] {
            prop_assert_eq!(bits(merged), expected.clone());
            audit(merged);
        }
        // The model.
        let all: Vec<f64> = runs.values().flatten().copied().collect();
        let (start, value) = shown(&mut whole).remove("x").unwrap();
        let starts = runs.keys().map(|(producer, run)| STARTS[usize::from(*producer)][*run]);
        prop_assert_eq!(Some(start), starts.min());
        let (count, sum) = moments(&value);
        prop_assert!(count.is_none_or(|count| count == all.len() as u64));
        prop_assert!(sum.is_none_or(|sum| (sum - all.iter().sum::<f64>()).abs() < 1e-6));
        if let (Form::Histogram, Value::Histogram(shown), Value::Histogram(naive)) =
            (form, &value, histogram(&[1.0, 2.0, 3.0], &all))
        {
            prop_assert_eq!((&shown.counts, &shown.bounds), (&naive.counts, &naive.bounds));
            prop_assert_eq!((shown.min, shown.max), (naive.min, naive.max));
        }
        if let Value::Histogram(shown) = &value {
            let first = runs.keys().map(|(producer, run)| (STARTS[usize::from(*producer)][*run], *producer)).min();
            let Some(Value::Histogram(first)) = first.map(|(start, _)| form.value(start, &[])) else { panic!() };
            prop_assert_eq!(&shown.bounds, &first.bounds);
        }
    }

    /// Runs of a producer that end one after the other; both leaders know them when they compact.
    #[test]
    fn compacting_keeps_the_bits_and_ignores_what_it_contains(
        form in form(),
        kept_runs in 0usize..3,
        said in prop::collection::vec((0..2u8, prop::collection::vec(1u8..70, 0..4)), 1..40),
        acts in prop::collection::vec(
            (any::<bool>(), any::<bool>(), prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..4)),
            40,
        ),
    ) {
        // Sums of unequal bounds have other bits after compaction, which adds up only equal ones.
        let form = if matches!(form, Form::UnequalHistogram) { Form::Histogram } else { form };
        let compaction = MergedLimits { kept_runs, ..limits() };
        let mut replicas = [Merged::new(compaction), Merged::new(compaction)];
        let mut whole = Merged::new(MergedLimits { kept_runs: 100, ..compaction });
        let mut reports = Vec::new();
        for (at, ((producer, observed), (folds, exchanges, repeated))) in said.iter().zip(acts).enumerate() {
            let start = 3 * (at as u64 + 1);
            let observed: Vec<f64> = observed.iter().map(|tenths| f64::from(*tenths) * 0.1).collect();
            reports.push(report(*producer, start, 1, form.value(start, &observed)));
            take(&mut whole, "x", reports[at].clone()).unwrap();
            let [first, second] = &mut replicas;
            for merged in [&mut *first, &mut *second] {
                take(merged, "x", reports[at].clone()).unwrap();
                if folds {
                    merged.fold(id(*producer), start, true);
                }
            }
            first.fold(id(*producer), start, true);
            if exchanges {
                publish(first, *producer, second);
                publish(second, *producer, first);
            }
            for (is_second, index) in repeated {
                let merged = if is_second { &mut *second } else { &mut *first };
                let taken = take(merged, "x", index.get(&reports).clone());
                prop_assert!(matches!(taken, Ok(_) | Err(MergeRefusal::FinalRun(_))));
            }
            prop_assert_eq!(bits(first), bits(&mut whole));
            prop_assert_eq!(bits(second), bits(&mut whole));
            audit(first);
            prop_assert_eq!(second.stats().unequal_compactions, 0);
        }
        let mut fresh = Merged::new(limits());
        (0..2).for_each(|producer| publish(&replicas[0], producer, &mut fresh));
        prop_assert_eq!(bits(&mut fresh), bits(&mut whole));
    }

    /// The model of levels: a list of runs with their leases.
    #[test]
    fn levels_are_those_of_runs_with_a_lease(
        acts in prop::collection::vec((0u8..3, 1u64..4, 0u64..8, 0u8..8, 0i64..100), 1..60),
    ) {
        let mut merged = Merged::new(MergedLimits { hidden_ns: HIDDEN, ..limits() });
        let mut leases = BTreeMap::<(u8, u64), ModelLease>::new();
        let mut levels = BTreeMap::<(u8, u64), (u64, i64)>::new();
        let mut now = 100;
        for (producer, epoch, elapsed, act, value) in acts {
            now += elapsed;
            let run = (producer, epoch);
            match act {
                0 => {
                    merged.end(id(producer), epoch, now).unwrap();
                    let lease = leases.entry(run).or_default();
                    (lease.touched, lease.is_ended) = (now, true);
                    levels.remove(&run);
                }
                1..4 => {
                    merged.touch(id(producer), epoch, now, now).unwrap();
                    let lease = leases.entry(run).or_default();
                    (lease.touched, lease.hidden_at) = (now, None);
                }
                _ => {
                    let sequence = value as u64;
                    let taken = take(&mut merged, "x", level(MergeMode::Level, producer, epoch, sequence, value));
                    let counts = leases.get(&run).is_some_and(|lease| !lease.is_ended);
                    prop_assert_eq!(taken.is_ok(), counts);
                    if counts {
                        let known = levels.entry(run).or_insert((sequence, value));
                        *known = (*known).max((sequence, value));
                    }
                }
            }
            merged.sweep(now, now);
            for (run, lease) in &mut leases {
                if now - lease.touched > TERM && (lease.hidden_at.is_none() || !levels.contains_key(run)) {
                    lease.hidden_at = Some(now);
                }
            }
            let is_kept = |lease: &ModelLease| lease.hidden_at.is_none_or(|at| now - at <= HIDDEN);
            levels.retain(|run, _| is_kept(&leases[run]));
            // Producers without series are forgotten after a term.
            leases.retain(|run, lease| {
                levels.keys().any(|(producer, _)| *producer == run.0) || now - lease.touched <= TERM
            });
            for producer in 0..3 {
                let is_known = leases.keys().any(|(known, _)| *known == producer);
                prop_assert_eq!(merged.producers.get(id(producer)).is_some(), is_known);
            }
            let counting = levels.iter().filter(|(run, _)| leases[run].hidden_at.is_none());
            let counting: Vec<i64> = counting.map(|(_, (_, value))| *value).collect();
            let expected = (!counting.is_empty()).then(|| Value::Int(counting.iter().sum()));
            prop_assert_eq!(self::value(&mut merged), expected);
            audit(&merged);
        }
    }
}

/// How long the levels of a silent run are kept.
const HIDDEN: u64 = 20;

/// A lease of the model.
#[derive(Default)]
struct ModelLease {
    touched: u64,
    is_ended: bool,
    hidden_at: Option<u64>,
}
