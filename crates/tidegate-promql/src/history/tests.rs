// SPDX-License-Identifier: Apache-2.0

//! Samples come out as they went in, take few bytes, and expire in time.

use proptest::prelude::*;

use super::*;
use crate::Steps;

fn limits(max_bytes: usize) -> HistoryLimits {
    HistoryLimits {
        interval_ms: 1000,
        span_ms: 600_000,
        max_bytes,
    }
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0..100i32).prop_map(f64::from),
        2 => any::<i32>().prop_map(f64::from),
        2 => any::<f64>(),
        1 => Just(f64::from_bits(Sample::STALE)),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => Just(-0.0),
    ]
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_bit_by_bit(steps in prop::collection::vec((1..4000i64, value()), 1..400), close in 1..6000i64) {
        let mut history = History::new(HistoryLimits { span_ms: i64::MAX / 4, ..limits(usize::MAX) });
        let id = history.add().unwrap();
        let mut tick = 1_700_000_000;
        let mut model = Vec::new();
        for (step, value) in steps {
            tick += if step > 3000 { close } else { step % 3 + 1 };
            history.append(id, tick * 1000 + 7, value);
            model.push((tick * 1000, value.to_bits()));
        }
        let read: Vec<_> = history.read(id, 0, Millis::MAX).iter().map(|s| (s.time, s.value.to_bits())).collect();
        prop_assert_eq!(&read, &model);
        let (from, to) = (model[model.len() / 3].0, model[model.len() * 2 / 3].0);
        let part: Vec<_> = model.iter().filter(|(time, _)| *time > from && *time <= to).copied().collect();
        let read: Vec<_> = history.read(id, from, to).iter().map(|s| (s.time, s.value.to_bits())).collect();
        let newest = history.newest(id, from, to).map(|s| (s.time, s.value.to_bits()));
        prop_assert_eq!(newest, part.last().copied());
        prop_assert_eq!(read, part);
        history.remove(id);
        prop_assert_eq!((history.bytes(), history.len()), (0, 0));
    }
}

#[test]
fn a_history_begins_at_its_first_sample_and_later_at_its_span() {
    let mut history = History::new(HistoryLimits {
        span_ms: 60_000,
        ..limits(usize::MAX)
    });
    assert_eq!(history.begins(5000), None);
    let id = history.add().unwrap();
    history.append(id, 100_000, 1.0);
    assert_eq!(history.begins(100_000), Some(100_000));
    assert_eq!(history.begins(150_000), Some(100_000));
    assert_eq!(history.begins(200_000), Some(140_000));
}

#[test]
fn a_span_that_grows_keeps_what_is_there_and_one_that_shrinks_frees_it() {
    const START: Millis = 1_700_000_000;
    let mut history = History::new(HistoryLimits {
        span_ms: 60_000,
        ..limits(usize::MAX)
    });
    let id = history.add().unwrap();
    let append = |history: &mut History, ticks: std::ops::Range<Millis>| {
        ticks.for_each(|tick| history.append(id, (START + tick) * 1000, tick as f64));
    };
    append(&mut history, 0..60);
    history.keep_for(3_600_000, (START + 59) * 1000);
    append(&mut history, 60..3600);
    assert_eq!(history.read(id, 0, Millis::MAX).len(), 3600);
    assert_eq!(history.begins((START + 3599) * 1000), Some(START * 1000));
    let bytes = history.bytes();
    history.keep_for(60_000, (START + 3599) * 1000);
    append(&mut history, 3600..3601);
    let kept = history.read(id, 0, Millis::MAX).len();
    assert!((61..=61 + usize::from(chunk::SAMPLES)).contains(&kept), "{kept}");
    assert!(history.bytes() < bytes / 2, "{} of {bytes}", history.bytes());
    let now = (START + 3600) * 1000;
    let begins = history.begins(now);
    assert_eq!(begins, Some(now - 60_000));
    history.keep_for(3_600_000, now);
    assert_eq!(history.begins(now), begins, "older samples do not come back");
    append(&mut history, 3601..3701);
    assert_eq!(history.begins(now + 100_000), begins);
}

fn histogram() -> impl Strategy<Value = ExponentialHistogram> {
    let side = || {
        (
            -40i32..40,
            prop::collection::vec(prop_oneof![0u64..3, any::<u64>()], 0..12),
        )
    };
    let sum = prop_oneof![Just(None), value().prop_map(Some)];
    (-3i32..9, 0u64..3, any::<u64>(), sum, side(), side()).prop_map(
        |(scale, zero_count, count, sum, positive, negative)| {
            let side = |(offset, counts)| tidegate_engine::Buckets { offset, counts };
            ExponentialHistogram {
                count,
                sum: sum.filter(|sum| !sum.is_nan()),
                scale,
                zero_count,
                zero_threshold: zero_count as f64 / 8.0,
                positive: side(positive),
                negative: side(negative),
                ..ExponentialHistogram::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn histograms_come_out_as_they_went_in(
        steps in prop::collection::vec((1..9i64, prop_oneof![3 => Just(None), 1 => histogram().prop_map(Some)]), 1..300),
        (from, to) in (-5i64..2000, -5i64..2000),
    ) {
        let mut history = History::new(HistoryLimits { span_ms: i64::MAX / 4, ..limits(usize::MAX) });
        let id = history.add().unwrap();
        let (mut tick, mut newest, mut model) = (0, ExponentialHistogram::default(), Vec::new());
        for (step, other) in steps {
            tick += step;
            match other {
                Some(other) => newest = other,
                None => {
                    newest.count = newest.count.wrapping_add(1);
                    newest.sum = newest.sum.map(|sum| sum + 0.5);
                    newest.positive.counts.iter_mut().take(1).for_each(|count| *count = count.wrapping_add(1));
                }
            }
            history.append_histogram(id, tick * 1000 + 7, &newest);
            model.push((tick * 1000, FloatHistogram::from(&newest)));
        }
        let bits = |histogram: &FloatHistogram| format!("{histogram:?}");
        let (from, to) = (from * 1000, to * 1000 + 5);
        let part: Vec<_> = model.iter().filter(|(time, _)| *time > from && *time <= to).map(|(time, h)| (*time, bits(h))).collect();
        let read = |samples: Vec<HistogramSample>| -> Vec<_> { samples.iter().map(|s| (s.time, bits(&s.value))).collect() };
        prop_assert_eq!(read(history.newest_histogram(id, from, to).into_iter().collect()).pop(), part.last().cloned());
        prop_assert_eq!(read(history.read_histograms(id, (from, to), Need::All)), part);
        prop_assert_eq!(history.read_histograms(id, (Millis::MIN, Millis::MAX), Need::All).len(), model.len());
        let before = model[0].0 - 1;
        prop_assert_eq!(history.newest_histogram(id, Millis::MIN, before), None);
        history.remove(id);
        prop_assert_eq!((history.bytes(), history.len()), (0, 0));
    }
}

#[test]
fn histograms_take_few_bytes_a_sample_however_many_buckets_they_have() {
    let mut history = History::new(limits(usize::MAX));
    let id = history.add().unwrap();
    let mut value = ExponentialHistogram {
        sum: Some(0.0),
        scale: 3,
        positive: tidegate_engine::Buckets {
            offset: -80,
            counts: vec![7; 160],
        },
        ..ExponentialHistogram::default()
    };
    for tick in 0..600i64 {
        for step in [7919, 104_729, 1_299_709] {
            value.positive.counts[(tick * step % 160) as usize] += 3;
        }
        value.count += 9;
        value.sum = value.sum.map(|sum| sum + 1.25);
        history.append_histogram(id, 1_700_000_000_000 + tick * 1000, &value);
    }
    let bytes = history.bytes() as f64 / 600.0;
    assert!(bytes < 24.0, "{bytes} bytes a sample");
}

#[test]
fn series_keep_a_shorter_past_when_memory_is_used_up() {
    let mut history = History::new(limits(2000));
    let ids = [history.add().unwrap(), history.add().unwrap()];
    let value = ExponentialHistogram::default();
    for tick in 0..3000i64 {
        history.append(ids[0], tick * 1000, (tick as f64).sqrt());
        history.append_histogram(ids[1], tick * 1000, &value);
    }
    assert!(history.bytes() < 4000, "{}", history.bytes());
    assert_eq!(history.newest(ids[0], 0, Millis::MAX).unwrap().time, 2_999_000);
    assert_eq!(
        history.newest_histogram(ids[1], 0, Millis::MAX).unwrap().time,
        2_999_000
    );
}

#[test]
fn samples_make_room_for_others_that_share_the_bound() {
    let mut history = History::new(limits(4000));
    let id = history.add().unwrap();
    let append = |history: &mut History, ticks: std::ops::Range<i64>| {
        for tick in ticks {
            history.append(id, tick * 1000, (tick as f64).sqrt());
        }
    };
    append(&mut history, 0..600);
    let (all, bytes) = (history.read(id, -1, Millis::MAX).len(), history.bytes());
    history.share(3000);
    assert_eq!(history.bytes(), bytes + 3000);
    assert!(history.add().is_none());
    append(&mut history, 600..700);
    assert!(history.bytes() < bytes + 3000, "{}", history.bytes());
    assert!(history.read(id, -1, Millis::MAX).len() < all / 2);
    history.share(0);
    assert!(history.add().is_some());
}

#[test]
fn counters_take_less_than_four_bytes_a_sample_all_included() {
    let mut history = History::new(limits(usize::MAX));
    let ids: Vec<_> = (0..100).map(|_| history.add().unwrap()).collect();
    let mut totals = vec![0f64; ids.len()];
    // Twice the span, so that what is old has gone.
    for tick in 0..1200i64 {
        for (n, id) in ids.iter().enumerate() {
            totals[n] += ((tick * 7919 + n as i64 * 104_729) % 1500) as f64;
            history.append(*id, 1_700_000_000_000 + tick * 1000, totals[n]);
        }
    }
    let samples: usize = ids.iter().map(|id| history.read(*id, 0, Millis::MAX).len()).sum();
    assert!(
        (60_000..=60_000 + 100 * usize::from(chunk::SAMPLES)).contains(&samples),
        "{samples}"
    );
    let bytes = history.bytes() as f64 / samples as f64;
    assert!(bytes < SAMPLE_BYTES as f64, "{bytes} bytes a sample");
    let hour = limits(usize::MAX).bytes_of(100, 3_600_000);
    assert_eq!(hour, 100 * 3600 * SAMPLE_BYTES);
}

#[test]
fn one_sample_a_tick_and_nothing_backwards() {
    let mut history = History::new(limits(usize::MAX));
    let id = history.add().unwrap();
    for (time, value) in [(5_000, 1.0), (5_400, 2.0), (4_000, 3.0), (6_999, 4.0), (-7, 5.0)] {
        history.append(id, time, value);
    }
    let read: Vec<_> = history
        .read(id, 0, 10_000)
        .iter()
        .map(|s| (s.time, s.value))
        .collect();
    assert_eq!(read, [(5_000, 1.0), (6_000, 4.0)]);
}

#[test]
fn a_new_series_has_no_past_when_memory_is_used_up() {
    let mut history = History::new(limits(3 * SERIES_BYTES));
    let ids: Vec<_> = (0..5).map(|_| history.add()).collect();
    assert_eq!(ids.iter().filter(|id| id.is_some()).count(), 3);
    assert_eq!(history.refused(), 2);
    history.remove(ids[0].unwrap());
    assert!(history.add().is_some());
}

/// At each step the newest of these that is not later.
fn seen<T: Clone>(samples: &[T], steps: Steps, time: impl Fn(&T) -> Millis) -> Vec<Option<T>> {
    let newest = |step| samples.iter().rfind(|sample| time(sample) <= step).cloned();
    steps.times().map(newest).collect()
}

proptest! {
    #[test]
    fn each_step_finds_its_newest_sample_among_few(
        gaps in prop::collection::vec(prop_oneof![6 => Just(1i64), 1 => 2..400i64], 1..700),
        (start, step, count) in (-50_000..400_000i64, 1..200_000i64, 1..40usize),
        look_back in prop_oneof![Just(300_000i64), 1..100_000i64],
    ) {
        let mut history = History::new(HistoryLimits { span_ms: i64::MAX / 4, ..limits(usize::MAX) });
        let (floats, natives) = (history.add().unwrap(), history.add().unwrap());
        let mut tick = 0;
        for (at, gap) in gaps.into_iter().enumerate() {
            tick += gap;
            history.append(floats, tick * 1000, at as f64);
            let native = ExponentialHistogram { count: at as u64, sum: Some(1.0), ..ExponentialHistogram::default() };
            history.append_histogram(natives, tick * 1000, &native);
        }
        let steps = Steps { start, step, count };
        let span = (start - look_back, steps.last());
        let need = Need::Steps(steps);
        let mut few = Vec::new();
        history.read_into(floats, span, need, &mut few);
        prop_assert!(few.len() <= count, "{} of {}", few.len(), count);
        let all = history.read(floats, span.0, span.1);
        prop_assert_eq!(seen(&few, steps, |s| s.time), seen(&all, steps, |s| s.time));
        let few = history.read_histograms(natives, span, need);
        prop_assert!(few.len() <= count, "{} of {}", few.len(), count);
        let all = history.read_histograms(natives, span, Need::All);
        prop_assert_eq!(seen(&few, steps, |s| s.time), seen(&all, steps, |s| s.time));
    }
}

proptest! {
    #[test]
    fn a_history_with_earlier_samples_reads_like_one_of_all(
        earlier in prop::collection::vec((0..5i64, value()), 0..400),
        own in prop::collection::vec((1..5i64, value()), 0..400),
        gap in 0..300i64,
    ) {
        let (mut history, mut model) = (History::new(limits(usize::MAX)), Vec::new());
        let ids = [history.add().unwrap(), history.add().unwrap()];
        let start = 1_700_000_000;
        let (mut tick, mut native) = (start, ExponentialHistogram { sum: Some(0.0), ..ExponentialHistogram::default() });
        for (step, value) in &own {
            tick += step;
            native.count += 1;
            history.append(ids[0], tick * 1000 + 7, *value);
            history.append_histogram(ids[1], tick * 1000 + 7, &native);
            model.push((tick, value.to_bits(), native.count));
        }
        let now = tick;
        let mut borrowed = Vec::new();
        let mut tick = start - gap - earlier.iter().map(|(step, _)| step).sum::<i64>();
        for (step, value) in &earlier {
            tick += step;
            native.count += 1;
            borrowed.push((tick, *value, native.clone()));
        }
        let end = model.first().map_or(now, |(tick, ..)| *tick);
        let mut kept: Vec<_> = borrowed.iter().filter(|(tick, ..)| (now - 600..end).contains(tick)).collect();
        kept.dedup_by_key(|(tick, ..)| *tick);
        let taken = history.prepend(ids[0], now * 1000, borrowed.iter().map(|(tick, value, _)| (tick * 1000, *value)));
        prop_assert_eq!(taken, kept.len());
        let natives = borrowed.iter().map(|(tick, _, native)| (tick * 1000, native.clone()));
        prop_assert_eq!(history.prepend_histograms(ids[1], now * 1000, natives), kept.len());
        model.splice(..0, kept.iter().map(|(tick, value, native)| (*tick, value.to_bits(), native.count)));
        // The history goes on behind them, also without a sample of its own before.
        native.count += 1;
        history.append(ids[0], (now + 1) * 1000, 7.0);
        history.append_histogram(ids[1], (now + 1) * 1000, &native);
        model.push((now + 1, 7f64.to_bits(), native.count));
        let read: Vec<_> = history.read(ids[0], 0, Millis::MAX).iter().map(|s| (s.time / 1000, s.value.to_bits())).collect();
        let natives: Vec<_> = history
            .read_histograms(ids[1], (0, Millis::MAX), Need::All)
            .iter()
            .map(|s| (s.time / 1000, s.value.count as u64))
            .collect();
        // The append drops chunks that are too old.
        let first = model.len() - read.len();
        prop_assert!(model[..first].iter().all(|(tick, ..)| *tick < now - 599));
        prop_assert_eq!(&read, &model[first..].iter().map(|(tick, value, _)| (*tick, *value)).collect::<Vec<_>>());
        let first = model.len() - natives.len();
        prop_assert!(model[..first].iter().all(|(tick, ..)| *tick < now - 599));
        prop_assert_eq!(&natives, &model[first..].iter().map(|(tick, _, count)| (*tick, *count)).collect::<Vec<_>>());
        let copy = history.copy(ids[0], 0).unwrap();
        let copied: Vec<_> = copy.samples(usize::MAX).map(|(time, value)| (time / 1000, value.to_bits())).collect();
        prop_assert_eq!(copied, read);
        ids.into_iter().for_each(|id| history.remove(id));
        prop_assert_eq!((history.bytes(), history.len()), (0, 0));
    }
}

#[test]
fn earlier_samples_stay_within_the_memory_of_the_history() {
    let mut history = History::new(limits(2000));
    let ids = [history.add().unwrap(), history.add().unwrap()];
    history.append(ids[0], 600_000, 1.0);
    let taken = history.prepend(
        ids[0],
        600_000,
        (0..600).map(|tick| (tick * 1000, (tick as f64).sqrt())),
    );
    assert!((1..600).contains(&taken), "{taken}");
    let read = history.read(ids[0], 0, 599_999);
    assert_eq!(
        read.last().map(|sample| sample.time),
        Some(599_000),
        "the newest ones"
    );
    let histograms = (0..600).map(|tick| (tick * 1000, ExponentialHistogram::default()));
    history.prepend_histograms(ids[1], 600_000, histograms);
    assert!(history.bytes() <= 2000, "{}", history.bytes());
    assert_eq!(history.begins(600_000), Some(600_000), "of its own samples");
}
