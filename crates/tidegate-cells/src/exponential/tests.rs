use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn words(max_scale: i8) -> Vec<AtomicU64> {
    let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (word, shape) = empty(max_scale);
    words[word].store(shape, Ordering::Relaxed);
    words
}

fn read(words: &[AtomicU64]) -> ExponentialValue {
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

/// What the buckets at the scale that was reached must be.
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
        .map(|(at, count)| (buckets.first + at as i32, *count))
        .collect()
}

proptest! {
    #[test]
    fn a_value_is_in_its_bucket(value in 1e-300..1e300_f64, scale in MIN_SCALE..=MAX_SCALE) {
        let bucket = bucket_of(value, scale);
        let close = 1.0 + 1e-9;
        prop_assert!(bound(bucket, scale) <= value * close && value <= bound(bucket.saturating_add(1), scale) * close);
        // What falls with the scale is the bucket alone.
        if scale > MIN_SCALE {
            prop_assert_eq!(bucket >> 1, bucket_of(value, scale - 1));
        }
    }

    #[test]
    fn buckets_are_those_of_the_model(values in values(), max_scale in -10..=20_i8) {
        let words = words(max_scale);
        for (done, value) in values.iter().enumerate() {
            observe(&words, *value);
            let now = read(&words);
            prop_assert_eq!(now.count(), done as u64 + 1);
        }
        let value = read(&words);
        let [positive, negative] = model(&values, value.scale);
        prop_assert_eq!((counts(&value.positive), counts(&value.negative)), (positive, negative));
        prop_assert_eq!(value.zero, values.iter().filter(|value| **value == 0.0).count() as u64);
        prop_assert!(value.scale <= i32::from(max_scale));
    }

    #[test]
    fn merged_buckets_are_those_of_all(a in values(), b in values(), scales in (-10..=20_i8, -10..=20_i8)) {
        let (words_a, words_b) = (words(scales.0), words(scales.1));
        a.iter().for_each(|value| observe(&words_a, *value));
        b.iter().for_each(|value| observe(&words_b, *value));
        let mut merged = read(&words_a);
        merged.merge(&read(&words_b));
        add(&words_a, &read(&words_b));
        prop_assert!(read(&words_a) == merged || merged.sum.is_nan());
        let all: Vec<f64> = a.into_iter().chain(b).collect();
        let [positive, negative] = model(&all, merged.scale);
        prop_assert_eq!((counts(&merged.positive), counts(&merged.negative)), (positive, negative));
        prop_assert_eq!(merged.count(), all.len() as u64);
    }

    #[test]
    fn what_a_reader_sees_amid_a_switch_is_whole(values in values()) {
        // As if killed before each switch: the buffer that does not count may hold anything.
        let words = words(20);
        for value in values {
            observe(&words, value);
            let before = read(&words);
            let spare = words[0].load(Ordering::Relaxed) + 1;
            buffer(&words, spare).iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            prop_assert!(read(&words) == before || before.sum.is_nan());
        }
    }
}
