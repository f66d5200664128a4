// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn words(max_scale: i8) -> Vec<AtomicU64> {
    words_of(max_scale, 0)
}

fn words_of(max_scale: i8, generation: u64) -> Vec<AtomicU64> {
    let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (first, content) = empty(max_scale, generation);
    for (word, content) in words[first..].iter().zip(content) {
        word.store(content, Ordering::Relaxed);
    }
    words
}

fn read(words: &[AtomicU64]) -> ExponentialHistogram {
    decode(|word| words[word].load(Ordering::Relaxed))
}

/// Lower bound of a bucket.
fn bound(bucket: i32, scale: i32) -> f64 {
    (f64::from(bucket) * (-f64::from(scale)).exp2()).exp2()
}

#[test]
fn powers_of_two_are_the_last_of_their_bucket() {
    for scale in MIN_SCALE..=MAX_SCALE {
        for exponent in [-1022, -7, -1, 0, 1, 10, 1023] {
            let value = f64::from(exponent).exp2();
            let expected = match scale {
                0.. => (exponent << scale) - 1,
                _ => (exponent - 1) >> -scale,
            };
            assert_eq!(bucket_of(value, scale), expected, "2^{exponent} at scale {scale}");
        }
    }
    assert_eq!(bucket_of(1e-310, 0), bucket_of(f64::MIN_POSITIVE, 0));
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        (-1e3..1e3_f64),
        (0.99..1.01_f64),
        any::<f64>().prop_filter("finite", |value| value.is_finite()),
        Just(0.0),
        Just(f64::MAX),
        Just(-f64::MIN_POSITIVE),
    ];
    prop::collection::vec(value, 0..60)
}

/// The expected buckets at the scale that was reached.
fn model(values: &[f64], scale: i32) -> [BTreeMap<i32, u64>; 2] {
    let mut sides = [BTreeMap::new(), BTreeMap::new()];
    for value in values.iter().filter(|value| **value != 0.0) {
        *sides[usize::from(*value < 0.0)]
            .entry(bucket_of(value.abs(), scale))
            .or_insert(0) += 1;
    }
    sides
}

fn counts(buckets: &Buckets) -> BTreeMap<i32, u64> {
    let counts = buckets
        .counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count != 0);
    counts
        .map(|(at, count)| (buckets.offset + at as i32, *count))
        .collect()
}

proptest! {
    #[test]
    fn a_value_is_in_its_bucket(value in 1e-300..1e300_f64, scale in MIN_SCALE..=MAX_SCALE) {
        let bucket = bucket_of(value, scale);
        let close = 1.0 + 1e-9;
        prop_assert!(bound(bucket, scale) <= value * close && value <= bound(bucket.saturating_add(1), scale) * close);
        // Only the bucket falls with the scale.
        if scale > MIN_SCALE {
            prop_assert_eq!(bucket >> 1, bucket_of(value, scale - 1));
        }
    }

    #[test]
    fn buckets_are_those_of_the_model(values in values(), max_scale in -10..=20_i8) {
        let words = words(max_scale);
        for (done, value) in values.iter().enumerate() {
            assert!(observe(&words, *value));
            let now = read(&words);
            prop_assert_eq!(now.count, done as u64 + 1);
        }
        let value = read(&words);
        let [positive, negative] = model(&values, value.scale);
        prop_assert_eq!((counts(&value.positive), counts(&value.negative)), (positive, negative));
        prop_assert_eq!(value.zero_count, values.iter().filter(|value| **value == 0.0).count() as u64);
        prop_assert!(value.scale <= i32::from(max_scale));
    }

    #[test]
    fn merged_buckets_are_those_of_all(a in values(), b in values(), scales in (-10..=20_i8, -10..=20_i8)) {
        let (words_a, words_b) = (words(scales.0), words(scales.1));
        a.iter().for_each(|value| assert!(observe(&words_a, *value)));
        b.iter().for_each(|value| assert!(observe(&words_b, *value)));
        let mut merged = read(&words_a);
        merged.merge_within(&read(&words_b), BUCKETS, MIN_SCALE);
        add(&words_a, &read(&words_b));
        let added = read(&words_a);
        // The scale of buckets that are all empty says nothing.
        if b.iter().any(|value| *value != 0.0) {
            prop_assert!(added == merged || merged.sum.is_some_and(f64::is_nan));
        }
        prop_assert_eq!(added.count, merged.count);
        let all: Vec<f64> = a.into_iter().chain(b).collect();
        let [positive, negative] = model(&all, merged.scale);
        prop_assert_eq!((counts(&merged.positive), counts(&merged.negative)), (positive, negative));
        prop_assert_eq!(merged.count, all.len() as u64);
    }

    #[test]
    fn a_value_is_whole_wherever_a_switch_stops(values in values(), steps in 0..700_usize) {
        let words = words(20);
        for value in values {
            assert!(observe(&words, value));
            // As if killed, or kept from going on, anywhere in a switch for another value.
            let before = read(&words);
            switch_for(&words, 1e-9, steps);
            prop_assert!(read(&words).count == before.count);
            if words[GENERATION].load(Ordering::Relaxed) == 0 {
                prop_assert!(read(&words) == before || before.sum.is_some_and(f64::is_nan));
            }
        }
    }

    #[test]
    fn a_late_writer_leaves_a_later_generation_alone(values in values()) {
        let words = words_of(20, AHEAD);
        values.iter().for_each(|value| assert!(observe(&words, *value)));
        let before: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        for generation in [0, 1, AHEAD - 1] {
            switch::switch(&words, generation, Wanted { side: 0, bucket: 7, finest: 3 });
            let place = &words[FIRST_BUFFER + HEAD];
            prop_assert!(!count_in(place, generation, 1));
        }
        let after: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        prop_assert_eq!(before, after);
    }
}

#[test]
fn a_count_too_large_for_64_bits_keeps_its_sum_in_a_merge() {
    let (sound, hostile) = (words(20), words(20));
    assert!(observe(&sound, 3.0) && observe(&hostile, 2.0));
    // With the one observation above zero there are 2^64.
    hostile[ZERO].store(u64::MAX, Ordering::Relaxed);
    for (first, second) in [(&sound, &hostile), (&hostile, &sound)] {
        let mut merged = read(first);
        merged.merge_within(&read(second), BUCKETS, MIN_SCALE);
        assert_eq!((merged.count, merged.sum), (u64::MAX, Some(5.0)));
        assert_eq!((merged.zero_count, merged.positive.count()), (u64::MAX, 2));
    }
}

/// Makes the first `steps` steps of a switch that a value wants.
fn switch_for(words: &[AtomicU64], value: f64, steps: usize) {
    let generation = generation(words);
    let Some(shape) = Shape::load(buffer(words, generation), generation) else {
        return;
    };
    let wanted = Wanted {
        side: 0,
        bucket: bucket_of(value, shape.scale),
        finest: MAX_SCALE,
    };
    switch::stopped_after(words, generation, wanted, steps);
}

#[test]
fn values_of_many_threads_are_all_counted() {
    const THREADS: u64 = 4;
    const ROUNDS: usize = 30;
    for round in 0..ROUNDS {
        let words = words(20);
        let value = |thread: u64, at: u64| {
            // Each goes its own way, so that all want other switches.
            let exponent = (at as i32 / 10) * (thread as i32 - 1);
            (1.0 + at as f64 / 1000.0)
                * f64::from(exponent).exp2()
                * if at.is_multiple_of(5) { -1.0 } else { 1.0 }
        };
        let values = |thread: u64| (0..400 + round as u64).map(move |at| value(thread, at));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let words = &words;
                scope.spawn(move || values(thread).for_each(|value| assert!(observe(words, value))));
            }
            let mut before = 0;
            for _ in 0..200 {
                let now = load(&words).count;
                assert!(now >= before, "fell from {before} to {now}");
                before = now;
            }
        });
        let all: Vec<f64> = (0..THREADS).flat_map(values).collect();
        let value = load(&words);
        let [positive, negative] = model(&all, value.scale);
        assert_eq!(
            (counts(&value.positive), counts(&value.negative)),
            (positive, negative)
        );
    }
}

/// The sequence with the most switches: the bucket beside the range, on each end of each side, at each scale.
#[test]
fn generations_suffice() {
    let words = words(20);
    for turn in 0.. {
        let now = generation(&words);
        let shape = Shape::load(buffer(&words, now), now).unwrap();
        if shape.scale == MIN_SCALE {
            break;
        }
        let (side, is_above) = (turn % 2, turn % 4 < 2);
        let beside = shape.first[side] + if is_above { BUCKETS as i32 } else { -1 };
        assert!(count(&words, side, MAX_SCALE, 1, |scale| beside
            >> (shape.scale - scale)));
        assert_eq!(generation(&words), now + 1);
    }
    assert!(generation(&words) <= 496, "{}", generation(&words));
}
