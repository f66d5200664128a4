// SPDX-License-Identifier: Apache-2.0

//! Random steps, bytes and slots.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::kind::{Category, KINDS, UNKNOWN};

#[derive(Clone, Debug)]
enum Step {
    Push { events: Vec<(u16, u64)>, named: bool },
    Drain { accept: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = prop::collection::vec((0..40_u16, any::<u64>()), 0..40);
    let push = (events, any::<bool>()).prop_map(|(events, named)| Step::Push { events, named });
    let drain = any::<bool>().prop_map(|accept| Step::Drain { accept });
    prop::collection::vec(prop_oneof![push, drain], 1..30)
}

/// An event as a reader gives it: its name, value and time.
type Seen = (String, u64, Option<u64>);

fn seen(reader: &Reader, batch: &Batch) -> Vec<Seen> {
    let times = &batch.timestamps_us;
    let one = |i: usize| {
        let name = reader.names().name(batch.kinds[i]).to_owned();
        (name, batch.values[i], times.get(i).copied())
    };
    (0..batch.len()).map(one).collect()
}

proptest! {
    #[test]
    fn what_a_writer_pushes_a_reader_sees_once_and_in_order(
        layout in prop::sample::select(Layout::ALL.to_vec()),
        capacity_log in 0..7_u32,
        max_events in 1..20_usize,
        steps in steps(),
    ) {
        let mut ring = Ring::new(layout, 1 << capacity_log);
        ring.reader.max_events = max_events as u64;
        let usable = (1 << capacity_log) - 1;
        let mut model: VecDeque<Seen> = VecDeque::new();
        for step in steps {
            match step {
                Step::Push { events, named } => for (kind, value) in events {
                    let event = Event { kind, value, timestamp_us: value ^ 1 };
                    let own = named && layout.has_names();
                    let pushed = if own {
                        ring.writer.push_named("own", Category::Custom, event)
                    } else {
                        ring.writer.push(event)
                    };
                    ring.writer.flush();
                    prop_assert_eq!(pushed, model.len() < usable);
                    if pushed {
                        let name = if own {
                            "own"
                        } else {
                            KINDS[usize::from(kind.min(UNKNOWN))].name
                        };
                        let time = layout.has_timestamps().then_some(value ^ 1);
                        model.push_back((name.to_owned(), value, time));
                    }
                },
                Step::Drain { accept } => {
                    let poll = ring.read();
                    let count = model.len().min(max_events);
                    let expected: Vec<Seen> = model.iter().take(count).cloned().collect();
                    prop_assert_eq!(seen(&ring.reader, &ring.batch), expected);
                    let fill = Fill {
                        readable: model.len() as u64,
                        capacity: usable as u64 + 1,
                        full: model.len() == usable,
                    };
                    let idle = model.is_empty();
                    prop_assert_eq!(poll, if idle { Poll::Idle } else { Poll::Events(fill) });
                    if accept {
                        prop_assert!(ring.reader.commit());
                        model.drain(..count);
                    }
                }
            }
        }
        let stats = ring.reader.stats();
        prop_assert_eq!((stats.resets, stats.lost), (0, 0));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        size in 0..600_usize,
        noise in prop::collection::vec((0..600_usize, any::<[u8; 8]>()), 0..20),
        version in 0..7_i32,
        capacity_log in 0..6_u32,
        header in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let capacity = 1_u64 << capacity_log;
        let mut bytes = vec![0; size];
        if header {
            let at = HeaderFields::of_version(version);
            put(&mut bytes, VERSION_OFFSET, &version.to_le_bytes());
            put(&mut bytes, at.capacity, &capacity.to_le_bytes());
            put(&mut bytes, at.mask, &(capacity - 1).to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        let _ = open::inspect(&path).unwrap();
        let mut batch = Batch::default();
        let Ok(mut reader) = Reader::open(&path, Options::default()) else { return Ok(()) };
        for (offset, word) in noise {
            reader.read(&mut batch).unwrap();
            prop_assert!(batch.len() as u64 <= capacity);
            reader.commit();
            put(&mut bytes, offset, &word);
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
    }

    #[test]
    fn random_slots_decode_to_something_in_every_layout(
        layout in prop::sample::select(Layout::ALL.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 64 * 56),
    ) {
        let mut ring = Ring::new(layout, 64);
        ring.push(0..63);
        let slots = &bytes[..64 * layout.event_size()];
        ring.overwrite(layout.header_size() as u64, slots);
        let all = matches!(ring.read(), Poll::Events(fill) if fill.readable == 63);
        prop_assert!(all);
        let dense = ring.reader.names().len() as u16;
        prop_assert!(ring.batch.kinds.iter().all(|kind| *kind < dense));
    }
}

fn put(bytes: &mut [u8], offset: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(offset..offset + new.len()) {
        place.copy_from_slice(new);
    }
}
