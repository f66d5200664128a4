//! What goes in comes out, in few bytes, and no longer than it should.

use proptest::prelude::*;

use super::*;

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
    assert!(bytes < 4.0, "{bytes} bytes a sample");
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
fn who_comes_when_the_memory_is_used_up_has_no_past() {
    let mut history = History::new(limits(3 * SERIES_BYTES));
    let ids: Vec<_> = (0..5).map(|_| history.add()).collect();
    assert_eq!(ids.iter().filter(|id| id.is_some()).count(), 3);
    assert_eq!(history.refused(), 2);
    history.remove(ids[0].unwrap());
    assert!(history.add().is_some());
}
