// SPDX-License-Identifier: Apache-2.0

//! Bounds on the number and the memory of streams.

use super::*;

#[test]
fn too_many_streams_are_refused_and_the_known_ones_go_on() {
    let limits = ConverterLimits {
        streams: 16,
        ..LIMITS
    };
    let converter = Converter::new(Temporality::Delta, 0, limits);
    let value = Value::Int(1);
    let say = |name: usize, time| {
        let series = series(counter(Temporality::Cumulative), &name.to_string());
        let sample = PointSample {
            start: 1,
            time,
            value: &value,
            exemplars: &[],
        };
        converter.convert(
            Key::of(&series),
            sample,
            sent(time),
            &mut || Some(series.clone()),
            &id,
            None,
        )
    };
    let refused = |converted| converted == Converted::Rejected(Rejection::Limit);
    let known: Vec<_> = (0..200).filter(|name| !refused(say(*name, 10))).collect();
    assert_eq!(known.len(), 16);
    assert!(known.into_iter().all(|name| !refused(say(name, 20))));
}

fn bounds(bytes: usize) -> Arc<Bounds> {
    let bounds = Arc::new(Bounds::default());
    bounds.set_bytes(bytes);
    bounds
}

/// Whether a total of the stream of this name, with a long label, is refused.
fn is_refused(converter: &Converter, name: usize, now: UnixNanos) -> bool {
    let (name, value) = (name.to_string(), Value::Int(1));
    let text = format!("{name}{}", "x".repeat(20_000));
    let series = Arc::new(Series {
        attributes: [("text", &*text)].into_iter().collect(),
        ..Series::clone(&series(counter(Temporality::Cumulative), &name))
    });
    let sample = PointSample {
        start: 1,
        time: now,
        value: &value,
        exemplars: &[],
    };
    let converted = converter.convert(
        Key::of(&series),
        sample,
        sent(now),
        &mut || Some(series.clone()),
        &id,
        None,
    );
    converted == Converted::Rejected(Rejection::Limit)
}

#[test]
fn streams_of_long_labels_stay_below_the_bound_and_their_bytes_come_back() {
    let limits = ConverterLimits {
        expiry_ns: 100,
        ..LIMITS
    };
    let bounds = bounds(1 << 20);
    let converter = Converter::new(Temporality::Delta, 0, limits).bounded_by(bounds.clone());
    let known: Vec<_> = (0..200)
        .filter(|name| !is_refused(&converter, *name, 10))
        .collect();
    assert!((45..53).contains(&known.len()), "{}", known.len());
    assert!(converter.bytes() > 900_000 && converter.bytes() <= 1 << 20);
    assert!(known.iter().all(|name| !is_refused(&converter, *name, 11)));
    // Memory is short, whatever the bound.
    bounds.set_bytes(1 << 30);
    bounds.set_tight(true);
    assert!(is_refused(&converter, 1000, 12));
    assert!(known.iter().all(|name| !is_refused(&converter, *name, 12)));
    bounds.set_tight(false);
    converter.expire(1000);
    assert_eq!((converter.len(), converter.bytes()), (0, 0));
    assert!(!is_refused(&converter, 1000, 1000));
}

#[test]
fn a_known_stream_with_a_too_large_histogram_is_refused_until_it_shrinks() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let mut reader = Reader::new(Temporality::Delta, data);
    reader.converter = Converter::new(Temporality::Delta, BORN, LIMITS).bounded_by(bounds(100_000));
    let mut say = |time: u64, buckets: u32| {
        let bounds: Arc<[f64]> = (0..buckets).map(f64::from).collect();
        let mut histogram = Histogram::empty(bounds);
        histogram.observe(0.5, time);
        reader.convert(1001, time, Value::Histogram(Box::new(histogram)))
    };
    assert!(matches!(say(1010, 2), Converted::Point(_)));
    assert_eq!(say(1020, 20_000), Converted::Rejected(Rejection::Limit));
    assert!(matches!(say(1030, 3000), Converted::Point(_)));
    assert!(matches!(say(1040, 2), Converted::Point(_)));
    assert!(reader.converter.bytes() < 2000, "{}", reader.converter.bytes());
}

#[test]
fn places_of_a_former_process_count_until_they_expire() {
    let limits = ConverterLimits {
        expiry_ns: 100,
        ..LIMITS
    };
    let former = Converter::new(Temporality::Delta, 0, limits);
    assert!((0..50).all(|name| !is_refused(&former, name, 1000)));
    let converter = Converter::new(Temporality::Delta, 1000, limits).bounded_by(bounds(1 << 20));
    assert_eq!(converter.restore(&former.save()), 50);
    let restored = converter.bytes();
    assert!(restored > 50 * 64, "{restored}");
    assert_eq!(converter.restore(&former.save()), 50);
    assert_eq!(converter.bytes(), restored, "the later ones stand for the former");
    converter.expire(1050);
    assert_eq!(converter.bytes(), restored);
    converter.expire(1200);
    assert_eq!(converter.bytes(), 0);
    let few = Converter::new(Temporality::Delta, 1000, limits).bounded_by(bounds(1000));
    let kept = few.restore(&former.save());
    assert!(kept < 10 && few.bytes() < 1200);
    assert_eq!((few.take_lost(), few.take_lost()), (50 - kept, 0));
    assert_eq!(converter.take_lost(), 0);
}
