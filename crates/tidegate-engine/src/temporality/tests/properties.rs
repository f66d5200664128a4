// SPDX-License-Identifier: Apache-2.0

//! Random counts, restarts and bytes.

use proptest::prelude::*;

use super::*;

/// A count of a producer, or a restart of it or of the reader.
#[derive(Clone, Debug)]
enum Event {
    Count(u8),
    ProducerRestarts,
    ReaderRestarts { from_cursor: bool },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => any::<u8>().prop_map(Event::Count),
        1 => Just(Event::ProducerRestarts),
        2 => any::<bool>().prop_map(|from_cursor| Event::ReaderRestarts { from_cursor }),
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    #[test]
    fn deltas_add_up_to_the_counts_after_any_restart(events in events(), whole: bool) {
        let data = if whole {
            counter(Temporality::Cumulative)
        } else {
            Data::Histogram { temporality: Temporality::Cumulative }
        };
        let mut reader = Reader::new(Temporality::Delta, data);
        let (mut start, mut time, mut count) = (BORN, BORN, 0u64);
        let (mut said, mut heard) = (0, 0);
        for event in events {
            time += 10;
            match event {
                Event::Count(more) => {
                    count += u64::from(more) + 1;
                    let value = if whole {
                        Value::Int(count as i64)
                    } else {
                        Value::Histogram(Box::new(histogram(count)))
                    };
                    said += u64::from(more) + 1;
                    match reader.convert(start, time, value) {
                        Converted::Point(Point { value: Value::Int(number), .. }) => heard += number as u64,
                        Converted::Point(Point { value: Value::Histogram(histogram), .. }) => {
                            prop_assert!(histogram.is_sound());
                            heard += histogram.counts[0];
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Event::ProducerRestarts => (start, count) = (time, 0),
                Event::ReaderRestarts { from_cursor } => {
                    let saved = if from_cursor {
                        reader.cursor.clone()
                    } else {
                        reader.converter.save()
                    };
                    let former = std::mem::replace(&mut reader, Reader::new(Temporality::Delta, data));
                    reader.converter.restore(&saved);
                    reader.cursor = former.cursor;
                }
            }
            prop_assert_eq!(heard, said);
        }
    }

    #[test]
    fn totals_come_back_as_the_deltas_they_are_made_of(counts in prop::collection::vec(0i64..1000, 1..50)) {
        let mut totals = Reader::new(Temporality::Cumulative, counter(Temporality::Delta));
        let mut deltas = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
        for (at, count) in counts.into_iter().enumerate() {
            let (start, time) = (BORN + at as u64 * 10, BORN + at as u64 * 10 + 10);
            let (since, until, total) = totals.number(start, time, count).unwrap();
            prop_assert_eq!(deltas.number(since, until, total), Ok((start, time, count)));
        }
    }

    #[test]
    fn places_are_the_same_as_bytes_and_no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut from = &bytes[..];
        while LastValue::load(&mut from).is_some() {}
        let converter = Converter::new(Temporality::Delta, BORN, LIMITS);
        converter.restore(&bytes);
        let again = Converter::new(Temporality::Delta, BORN, LIMITS);
        again.restore(&converter.save());
        prop_assert_eq!(converter.save().len(), again.save().len());
    }
}
