// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn series_beyond_the_limits_are_refused_and_counted() {
    let mut merged = Merged::new(MergedLimits {
        max_series: 3,
        max_series_per_producer: 2,
        ..limits()
    });
    let mut taken = |name: &str, producer| take(&mut merged, name, report(producer, 1, 1, 1));
    assert_eq!([taken("a", 1), taken("b", 1)], [Ok(true), Ok(true)]);
    assert_eq!(taken("c", 1), Err(MergeRefusal::ProducerSeries(id(1))));
    assert_eq!([taken("c", 2), taken("a", 2)], [Ok(true), Ok(true)]);
    assert_eq!(taken("d", 3), Err(MergeRefusal::Series(id(3))));
    assert_eq!(taken("a", 1), Ok(false), "the known goes on");
    let stats = merged.stats();
    assert_eq!((stats.producer_limits, stats.limits, merged.len()), (1, 1, 3));
    audit(&merged);
}

#[test]
fn a_producer_with_too_many_runs_is_refused_until_they_are_compacted() {
    let mut merged = Merged::new(MergedLimits {
        max_runs: 4,
        kept_runs: 1,
        ..limits()
    });
    take_all(&mut merged, (1..=4).map(|start| report(1, start, 1, 10)));
    let more = report(1, 5, 1, 10);
    assert_eq!(
        take(&mut merged, "x", more.clone()),
        Err(MergeRefusal::ProducerRuns(id(1)))
    );
    for epoch in 1..=3 {
        merged.fold(id(1), epoch, true);
    }
    assert_eq!(take(&mut merged, "x", more), Ok(true));
    assert_eq!(shown(&mut merged)["x"], (1, Value::Int(50)));
    audit(&merged);
}

#[test]
fn a_full_memory_takes_nothing_new_and_lets_the_known_grow_a_little() {
    let mut merged = Merged::new(limits());
    take_all(&mut merged, [report(1, 1, 1, histogram(&[1.0], &[0.5]))]);
    merged.set_max_bytes(merged.bytes());
    let refused = take(&mut merged, "x", report(2, 1, 1, histogram(&[1.0], &[])));
    assert_eq!(refused, Err(MergeRefusal::Memory(id(2))));
    assert_eq!(
        take(&mut merged, "y", report(1, 1, 1, 5)),
        Err(MergeRefusal::Memory(id(1)))
    );
    assert_eq!(
        take(&mut merged, "x", report(1, 1, 2, histogram(&[1.0, 2.0], &[0.5]))),
        Ok(true)
    );
    let many: Vec<f64> = (0..1000).map(f64::from).collect();
    let refused = take(&mut merged, "x", report(1, 1, 3, histogram(&many, &[0.5])));
    assert_eq!(refused, Err(MergeRefusal::Memory(id(1))));
    assert_eq!(merged.stats().limits, 3);
    audit(&merged);
}

#[test]
fn a_reader_computes_values_in_memory_that_was_counted() {
    let bounds: Vec<f64> = (0..50).map(f64::from).collect();
    for value in [
        histogram(&bounds, &[0.5]),
        exponential(0, 0, &[1; 50], 3.0),
        summary(1, 1.0),
    ] {
        let mut merged = Merged::new(limits());
        merged.set_max_bytes(100_000);
        for name in 0..1000 {
            let _ = take(&mut merged, &name.to_string(), report(1, 1, 1, value.clone()));
        }
        assert!(merged.stats().limits > 0);
        let before = merged.bytes();
        shown(&mut merged);
        assert_eq!(merged.bytes(), before);
        assert!(before <= 100_000, "{before}");
        audit(&merged);
    }
}

#[test]
fn a_summary_counts_as_the_bytes_that_it_allocates() {
    let bytes = |value: Value| {
        let mut merged = Merged::new(limits());
        take_all(&mut merged, [report(1, 1, 1, value)]);
        merged.bytes()
    };
    // The report, and the merged value that a reader computes.
    let more = bytes(summary(1, 1.0)) - bytes(Value::Int(1));
    assert_eq!(more, 2 * size_of::<Summary>());
}

#[test]
fn a_full_memory_takes_compacted_totals_that_free_it() {
    let mut leader = Merged::new(MergedLimits {
        kept_runs: 0,
        ..limits()
    });
    let mut reader = Merged::new(limits());
    let bounds: Vec<f64> = (0..20).map(f64::from).collect();
    let runs = (1..=40).map(|start| report(1, start, 1, histogram(&bounds, &[0.5])));
    for merged in [&mut leader, &mut reader] {
        take_all(merged, runs.clone());
    }
    for epoch in 1..=40 {
        leader.fold(id(1), epoch, true);
    }
    let before = (reader.bytes(), value(&mut reader));
    reader.set_max_bytes(reader.bytes());
    publish(&leader, 1, &mut reader);
    assert!(reader.bytes() < before.0);
    assert_eq!(value(&mut reader), before.1);
    audit(&reader);
    // The same total takes nothing.
    reader.set_max_bytes(0);
    publish(&leader, 1, &mut reader);
    assert_eq!(reader.stats().limits, 0);
}

#[test]
fn refusals_at_a_limit_say_what_to_do() {
    for (refusal, remedy) in [
        (
            MergeRefusal::ProducerSeries(id(1)),
            "raise it, or send fewer series",
        ),
        (
            MergeRefusal::ProducerRuns(id(1)),
            "give each process a producer name of its own",
        ),
        (MergeRefusal::Series(id(1)), "raise it, or send fewer series"),
        (MergeRefusal::Producers(id(1)), "raise it"),
        (
            MergeRefusal::Memory(id(1)),
            "raise the memory limit, or send fewer series",
        ),
    ] {
        let text = refusal.to_string();
        assert!(text.ends_with(&format!(": {remedy}")), "{text}");
        assert!(!text.contains("max_runs"), "no option has this name: {text}");
    }
}

#[test]
fn leases_are_bounded_and_dead_ones_make_room() {
    let mut merged = Merged::new(MergedLimits {
        max_runs: 2,
        ..limits()
    });
    merged.touch(id(1), 1, 100, 100).unwrap();
    merged.touch(id(1), 2, 105, 105).unwrap();
    assert_eq!(
        merged.touch(id(1), 3, 106, 106),
        Err(MergeRefusal::ProducerRuns(id(1)))
    );
    assert_eq!(merged.touch(id(1), 3, 111, 111), Ok(()));
    assert_eq!(merged.lapsed(120, 0), [(id(1), 2)]);
}

#[test]
fn producers_are_bounded_and_those_without_series_are_forgotten() {
    let mut merged = Merged::new(MergedLimits {
        max_producers: 2,
        ..limits()
    });
    merged.touch(id(1), 1, 100, 100).unwrap();
    take_all(&mut merged, [report(2, 1, 1, 5)]);
    let refused = MergeRefusal::Producers(id(3));
    assert_eq!(merged.touch(id(3), 1, 100, 100), Err(refused.clone()));
    assert_eq!(take(&mut merged, "x", report(3, 1, 1, 5)), Err(refused));
    assert_eq!(merged.stats().limits, 2);
    merged.touch(id(2), 1, 100, 100).unwrap();
    merged.sweep(110, 110);
    assert_eq!(merged.lapsed(111, 0), [(id(1), 1), (id(2), 1)]);
    merged.sweep(111, 111);
    assert_eq!(merged.lapsed(111, 0), [(id(2), 1)], "it has series to fold");
    assert_eq!(take(&mut merged, "x", report(3, 1, 1, 5)), Ok(true));
    audit(&merged);
}

#[test]
fn an_ended_run_is_forgotten_after_its_late_messages() {
    let mut merged = Merged::new(limits());
    merged.end(id(1), 1, 100).unwrap();
    merged.sweep(110, 110);
    merged.touch(id(1), 1, 99, 110).unwrap();
    let late = level(MergeMode::Level, 1, 1, 1, 5);
    let refused = Err(MergeRefusal::LeaseEnded(id(1)));
    assert_eq!(take(&mut merged, "x", late), refused);
    merged.sweep(111, 111);
    assert_eq!(merged.producers.len(), 0);
}

#[test]
fn a_state_does_not_grow_with_restarts_of_a_producer() {
    let mut merged = Merged::new(limits());
    let mut most = 0;
    for run in 1..=1000u64 {
        take_all(&mut merged, [report(1, run, 1, 1)]);
        merged.fold(id(1), run, true);
        if run == 200 {
            most = merged.bytes();
        }
    }
    assert_eq!(merged.bytes(), most);
    assert_eq!(shown(&mut merged)["x"], (1, Value::Int(1000)));
    let refused = take(&mut merged, "x", report(1, 2, 9, 100));
    assert_eq!(refused, Err(MergeRefusal::FinalRun(id(1))));
    let text = refused.unwrap_err().to_string();
    assert!(text.ends_with("check the clock of the producer"), "{text}");
    assert_eq!(merged.stats().final_runs, 1);
}

#[test]
fn values_that_no_producer_may_send_are_refused() {
    let mut merged = Merged::new(limits());
    let mut unsound = Histogram::empty([2.0, 1.0].as_slice().into());
    unsound.count = 7;
    let bad = [
        report(1, 0, 1, 5),
        report(1, 1, 1, -5),
        report(1, 1, 1, Value::Double(f64::NAN)),
        report(1, 1, 1, Value::NoRecordedValue),
        report(1, 1, 1, summary(1, f64::NAN)),
        report(1, 1, 1, summary(1, f64::INFINITY)),
        report(1, 1, 1, Value::Histogram(Box::new(unsound))),
        level(MergeMode::Level, 1, 1, 1, histogram(&[], &[])),
    ];
    for report in bad {
        assert_eq!(take(&mut merged, "x", report), Err(MergeRefusal::Invalid(id(1))));
    }
    assert_eq!((merged.stats().invalid, merged.len()), (8, 0));
}

#[test]
fn counts_beyond_the_largest_number_stay_there_and_come_back() {
    let of = |count: u64| {
        let mut histogram = Histogram::empty([1.0].as_slice().into());
        histogram.observe(0.5, count);
        Value::Histogram(Box::new(histogram))
    };
    let count = |merged: &mut Merged| match value(merged) {
        Some(Value::Histogram(histogram)) => (histogram.count, histogram.counts[0]),
        other => panic!("{other:?}"),
    };
    let mut merged = Merged::new(limits());
    take_all(&mut merged, [report(1, 1, 1, of(5))]);
    assert_eq!(count(&mut merged), (5, 5));
    take_all(&mut merged, [report(2, 1, 1, of(u64::MAX - 2))]);
    assert_eq!(count(&mut merged), (u64::MAX, u64::MAX));
    take_all(&mut merged, [report(2, 1, 2, of(7))]);
    assert_eq!(count(&mut merged), (12, 12));
    take_all(&mut merged, [report(3, 1, 1, of(1))]);
    assert_eq!(count(&mut merged), (13, 13));
}

#[test]
fn a_number_of_compacted_runs_beyond_the_largest_stays_there() {
    let mut merged = Merged::new(MergedLimits {
        kept_runs: 0,
        ..limits()
    });
    let hostile = RetainedTotal {
        producer: id(1),
        compacted: Some(CompactedTotal {
            start: 1,
            starts: vec![1],
            runs: u64::MAX,
            parts: vec![CompactedPart {
                start: 1,
                time: 1,
                value: Value::Int(5),
            }],
        }),
        runs: Vec::new(),
    };
    let series = identity("x");
    merged.take_retained(Key::of(&series), &series, hostile).unwrap();
    take_all(&mut merged, [report(1, 2, 1, 7)]);
    assert_eq!(merged.fold(id(1), 2, true), 1);
    assert_eq!(value(&mut merged), Some(Value::Int(12)));
    audit(&merged);
}

#[test]
fn quantiles_of_compacted_summaries_are_removed() {
    let mut merged = Merged::new(limits());
    let with_quantiles = Summary {
        count: 3,
        sum: 6.0,
        quantiles: vec![crate::Quantile {
            quantile: 0.5,
            value: 2.0,
        }],
    };
    let total = RetainedTotal {
        producer: id(1),
        compacted: Some(CompactedTotal {
            start: 1,
            starts: vec![1],
            runs: 1,
            parts: vec![CompactedPart {
                start: 1,
                time: 1,
                value: Value::Summary(Box::new(with_quantiles)),
            }],
        }),
        runs: Vec::new(),
    };
    let series = identity("x");
    merged.take_retained(Key::of(&series), &series, total).unwrap();
    let mut published = Vec::new();
    merged.retained(id(1), &mut |_, _, total| published.push(total));
    let parts = &published[0].compacted.as_ref().unwrap().parts;
    assert_eq!(parts[0].value, summary(3, 6.0));
    audit(&merged);
}

#[test]
fn modes_have_names() {
    for mode in MergeMode::ALL {
        assert_eq!(MergeMode::named(mode.name()), Some(mode));
    }
    assert_eq!(MergeMode::named("sum"), None);
}
