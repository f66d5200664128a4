// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::kind::{Category, FIRST_OWN, KINDS, KNOWN_KINDS, MAX_OWN_NAMES, OVERFLOW, UNKNOWN};
use crate::layout::Layout;
use crate::writer::{Event, Writer};

const PEEK: Options = Options {
    consume: false,
    max_events: DEFAULT_MAX_EVENTS,
};

/// A ring in a directory of its own, with its writer and a consuming reader.
struct Ring {
    writer: Writer,
    reader: Reader,
    batch: Batch,
    directory: TempDir,
}

impl Ring {
    fn new(layout: Layout, capacity: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let writer = Writer::create(&path, layout, capacity).unwrap();
        Ring {
            writer,
            reader: Reader::open(path, Options::default()).unwrap(),
            batch: Batch::default(),
            directory,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    fn push(&mut self, values: std::ops::Range<u64>) {
        for value in values {
            assert!(self.writer.push(event(value)));
        }
        self.writer.flush();
    }

    fn read(&mut self) -> Poll {
        self.reader.read(&mut self.batch).unwrap()
    }

    /// Reads until the ring has something to say: an impossible header is given some patience.
    fn settled(&mut self) -> Poll {
        let first = self.read();
        (0..SETTLE_READS).fold(first, |poll, _| match poll {
            Poll::Settling => self.read(),
            settled => settled,
        })
    }

    fn drain(&mut self) -> Vec<u64> {
        match self.read() {
            Poll::Events(_) => assert!(self.reader.commit()),
            other => assert_eq!(other, Poll::Idle),
        }
        self.batch.values.clone()
    }

    /// Overwrites bytes of the file, as a stranger would.
    fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    fn resize(&self, size: u64) {
        let file = OpenOptions::new().write(true).open(self.path()).unwrap();
        file.set_len(size).unwrap();
    }
}

fn event(value: u64) -> Event {
    Event {
        kind: (value % KNOWN_KINDS as u64) as u16,
        value,
        timestamp_us: value + 1,
    }
}

fn reset(reason: Reset, lost: u64) -> Poll {
    Poll::Reset { reason, lost }
}

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

/// What a reader makes of an event: its name, value and time.
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

#[test]
fn refused_events_stay_in_the_ring() {
    let mut ring = Ring::new(Layout::V4, 8);
    ring.push(0..7);
    for _ in 0..3 {
        assert!(matches!(ring.read(), Poll::Events(_)));
        assert_eq!(ring.batch.values, (0..7).collect::<Vec<_>>());
        assert!(!ring.writer.push(event(9)), "a refused slot was handed back");
    }
    assert!(ring.reader.commit());
    ring.push(7..8);
    assert_eq!(ring.drain(), [7]);
    assert_eq!(ring.reader.stats().events, 8);
}

#[test]
fn a_ring_found_full_counts_as_suspected_loss() {
    let mut ring = Ring::new(Layout::V4, 8);
    ring.push(0..6);
    ring.drain();
    assert_eq!(ring.reader.stats().suspected_loss, 0);
    ring.push(0..7);
    let fill = Fill {
        readable: 7,
        capacity: 8,
        full: true,
    };
    assert_eq!(ring.read(), Poll::Events(fill));
    assert_eq!(ring.reader.stats().suspected_loss, 1);
}

#[test]
fn the_second_reader_peeks_until_the_first_is_gone() {
    let mut ring = Ring::new(Layout::V4, 8);
    let mut second = Reader::open(ring.path(), Options::default()).unwrap();
    assert_eq!(
        (ring.reader.mode(), second.mode()),
        (Mode::Consume, Mode::PeekLocked)
    );
    ring.push(0..7);
    let mut batch = Batch::default();
    assert!(matches!(second.read(&mut batch).unwrap(), Poll::Events(_)));
    assert!(second.commit());
    assert_eq!(second.read(&mut batch).unwrap(), Poll::Idle);
    assert!(!ring.writer.push(event(9)), "a peeking reader moved read_pos");
    assert!(!second.try_consume().unwrap());

    // What it saw while peeking it accepted, so on taking over it hands these slots back.
    ring.reader = Reader::open(ring.path(), PEEK).unwrap();
    assert!(second.try_consume().unwrap());
    assert_eq!(second.read(&mut batch).unwrap(), Poll::Idle);
    ring.push(7..9);
    assert!(matches!(second.read(&mut batch).unwrap(), Poll::Events(_)));
    assert_eq!(batch.values, [7, 8]);
    assert_eq!(second.stats().resets, 0);
}

#[test]
fn peeking_changes_nothing_in_the_file() {
    for layout in Layout::ALL {
        let mut ring = Ring::new(layout, 8);
        ring.push(0..5);
        let before = std::fs::read(ring.path()).unwrap();
        let mut peeker = Reader::open(ring.path(), PEEK).unwrap();
        assert_eq!(peeker.mode(), Mode::Peek);
        let mut batch = Batch::default();
        assert!(matches!(peeker.read(&mut batch).unwrap(), Poll::Events(_)));
        peeker.commit();
        assert!(!peeker.try_consume().unwrap());
        assert_eq!(open::inspect(&ring.path()).unwrap().readable(), 5);
        assert_eq!(std::fs::read(ring.path()).unwrap(), before);
    }
}

#[test]
fn a_peeker_that_is_overtaken_says_how_many_it_missed() {
    let mut ring = Ring::new(Layout::V4, 16);
    let mut peeker = Reader::open(ring.path(), PEEK).unwrap();
    ring.push(0..9);
    ring.drain();
    ring.push(9..12);
    let mut batch = Batch::default();
    assert_eq!(peeker.read(&mut batch).unwrap(), reset(Reset::Overtaken, 9));
    assert!(matches!(peeker.read(&mut batch).unwrap(), Poll::Events(_)));
    assert_eq!(batch.values, [9, 10, 11]);
}

#[test]
fn a_consumer_that_ignores_the_lock_is_noticed() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..9);
    ring.overwrite(8, &4_u64.to_le_bytes());
    assert_eq!(ring.read(), reset(Reset::Overtaken, 4));
    assert_eq!(ring.drain(), [4, 5, 6, 7, 8]);
}

#[test]
fn a_restart_in_place_is_noticed_and_followed() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..5);
    assert_eq!(ring.drain().len(), 5);
    ring.writer.restart(Layout::V4, 16).unwrap();
    ring.push(100..105);
    assert_eq!(ring.read(), reset(Reset::Restarted, 0));
    assert_eq!(ring.drain(), [100, 101, 102, 103, 104]);
}

#[test]
fn a_restart_counts_the_events_that_had_been_seen_and_refused() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..5);
    assert!(matches!(ring.read(), Poll::Events(_)));
    ring.writer.restart(Layout::V4, 16).unwrap();
    ring.push(100..102);
    assert_eq!(ring.read(), reset(Reset::Restarted, 5));
    assert_eq!(ring.drain(), [100, 101]);
    assert_eq!(ring.reader.stats().lost, 5);
}

#[test]
fn a_restart_between_read_and_commit_keeps_the_new_events() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..3);
    ring.drain();
    ring.push(3..8);
    assert!(matches!(ring.read(), Poll::Events(_)));
    ring.writer.restart(Layout::V4, 16).unwrap();
    ring.push(100..102);
    assert!(!ring.reader.commit());
    assert_eq!(ring.read(), reset(Reset::Restarted, 0));
    assert_eq!(ring.drain(), [100, 101]);
    assert_eq!(ring.reader.stats().lost, 0);
}

#[test]
fn another_version_or_capacity_is_a_reset_of_its_own() {
    let mut ring = Ring::new(Layout::V4, 16);
    let steps = [
        (Layout::V4, 4, Reset::CapacityChanged),
        (Layout::V4, 1024, Reset::CapacityChanged),
        (Layout::V1, 1024, Reset::VersionChanged),
        (Layout::V2a, 64, Reset::VersionChanged),
        (Layout::V2b, 64, Reset::VersionChanged),
        (Layout::V5, 64, Reset::VersionChanged),
        (Layout::V3, 64, Reset::VersionChanged),
    ];
    for (layout, capacity, reason) in steps {
        ring.writer.restart(layout, capacity).unwrap();
        ring.push(7..9);
        assert_eq!(ring.read(), reset(reason, 0), "{layout} {capacity}");
        assert_eq!(ring.drain(), [7, 8], "{layout} {capacity}");
        assert_eq!(ring.reader.geometry().layout, layout);
    }
}

/// A damage, and the reason under which it must be counted.
type Damage = (&'static str, fn(&Ring), Reset);

const DAMAGES: [Damage; 7] = [
    ("truncated to nothing", |ring| ring.resize(0), Reset::Truncated),
    (
        "truncated in the slots",
        |ring| ring.resize(100),
        Reset::Truncated,
    ),
    ("grown", |ring| ring.resize(100_000), Reset::Grown),
    ("zeroed", |ring| ring.overwrite(0, &[0; 296]), Reset::Zeroed),
    ("noise", |ring| ring.overwrite(0, &[0xa7; 296]), Reset::BadHeader),
    (
        "capacity 100",
        |ring| ring.overwrite(24, &100_u64.to_le_bytes()),
        Reset::BadHeader,
    ),
    (
        "far position",
        |ring| ring.overwrite(0, &77_u64.to_le_bytes()),
        Reset::BadPositions,
    ),
];

#[test]
fn each_damage_is_one_reset_under_its_own_reason_and_ends_with_a_restart() {
    for (name, damage, reason) in DAMAGES {
        let mut ring = Ring::new(Layout::V4, 16);
        ring.push(0..5);
        ring.drain();
        damage(&ring);
        assert_eq!(ring.settled(), reset(reason, 0), "{name}");
        assert!(matches!(ring.read(), Poll::Unreadable(_)), "{name}");
        ring.writer.restart(Layout::V4, 16).unwrap();
        ring.push(50..53);
        assert_eq!(ring.drain(), [50, 51, 52], "{name}");
        assert_eq!(ring.reader.stats().resets, 1, "{name}");
    }
}

#[test]
fn a_ring_that_is_just_being_remade_is_given_time() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..5);
    ring.drain();
    ring.overwrite(VERSION_OFFSET as u64, &0_i32.to_le_bytes());
    assert_eq!(ring.read(), Poll::Settling);
    ring.writer.restart(Layout::V4, 16).unwrap();
    assert_eq!(ring.read(), reset(Reset::Restarted, 0));
}

#[test]
fn a_replaced_file_is_drained_before_it_is_given_up() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..3);
    std::fs::remove_file(ring.path()).unwrap();
    assert_eq!(ring.drain(), [0, 1, 2]);
    assert_eq!(ring.read(), Poll::Gone(Reset::Removed));
    Writer::create(ring.path(), Layout::V4, 16).unwrap();
    assert_eq!(ring.read(), Poll::Gone(Reset::Replaced));
    assert_ne!(FileId::of_path(&ring.path()).unwrap(), ring.reader.id());
}

#[test]
fn what_is_no_ring_is_refused_with_its_reason_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let header = |write, read, version: i32, capacity: u64, mask: u64| {
        let mut bytes = [write, read, version as u64, capacity, mask]
            .map(u64::to_le_bytes)
            .concat();
        bytes.resize(40 + 16 * 16, 0);
        bytes
    };
    let cases = [
        (vec![], "being_created"),
        (header(0, 0, 0, 16, 15), "being_created"),
        (vec![1; 39], "too_small"),
        (header(0, 0, 9, 16, 15), "unknown_version"),
        (header(0, 0, 4, 15, 14), "bad_capacity"),
        (header(0, 0, 4, 0, u64::MAX), "bad_capacity"),
        (header(0, 0, 4, 16, 7), "bad_capacity"),
        (header(0, 0, 4, 1 << 40, (1 << 40) - 1), "too_large"),
        (header(0, 0, 4, 8, 7), "size_mismatch"),
        (header(16, 0, 4, 16, 15), "bad_positions"),
        (header(0, 99, 4, 16, 15), "bad_positions"),
        (b"#!/bin/sh\n".repeat(30), "unknown_version"),
    ];
    for (bytes, reason) in cases {
        std::fs::write(&path, &bytes).unwrap();
        let error = Reader::open(&path, Options::default()).unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(
            open::inspect(&path).unwrap().verdict.unwrap_err().reason(),
            reason
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn types_beyond_the_table_are_one_kind_and_counted() {
    let mut ring = Ring::new(Layout::V4, 16);
    for kind in [20, 21, 99, u16::MAX, 0] {
        ring.writer.push(Event {
            kind,
            value: 1,
            timestamp_us: 0,
        });
    }
    ring.writer.flush();
    ring.drain();
    assert_eq!(ring.batch.kinds, [20, UNKNOWN, UNKNOWN, UNKNOWN, 0]);
    assert_eq!((ring.batch.unknown, ring.reader.stats().unknown), (3, 3));
}

#[test]
fn garbage_in_the_padding_of_a_slot_changes_nothing() {
    let mut ring = Ring::new(Layout::V3, 16);
    ring.push(6..7);
    ring.overwrite(44, &[0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(ring.drain(), [6]);
    assert_eq!(ring.batch.kinds, [6]);
}

#[test]
fn own_names_get_kinds_up_to_a_bound_and_keep_them() {
    let mut ring = Ring::new(Layout::V2a, 512);
    let surplus = 10;
    let event = Event::default();
    for round in 0..2 {
        for index in 0..MAX_OWN_NAMES + surplus {
            let name = format!("backend_event_{index}");
            assert!(ring.writer.push_named(&name, Category::Backend, event));
        }
        ring.writer.flush();
        ring.drain();
        assert_eq!(ring.batch.overflow, surplus as u64, "round {round}");
        assert_eq!(ring.batch.kinds[3], FIRST_OWN + 3);
        assert_eq!(ring.batch.kinds[MAX_OWN_NAMES], OVERFLOW);
    }
    let names = ring.reader.names();
    assert_eq!(names.name(FIRST_OWN + 3), "backend_event_3");
    assert_eq!(names.category(FIRST_OWN + 3), Category::Backend);
    assert_eq!(names.len(), usize::from(FIRST_OWN) + MAX_OWN_NAMES);
    assert_eq!(ring.reader.stats().overflow, 2 * surplus as u64);
}

#[test]
fn a_writer_and_a_reader_on_two_threads_lose_and_repeat_nothing() {
    const EVENTS: u64 = 200_000;
    for layout in [Layout::V1, Layout::V4, Layout::V5] {
        let mut ring = Ring::new(layout, 64);
        let Ring {
            writer,
            reader,
            batch,
            ..
        } = &mut ring;
        thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..EVENTS {
                    while !writer.push(event(value)) {
                        writer.flush();
                        thread::yield_now();
                    }
                    if value % 7 == 0 {
                        writer.flush();
                    }
                }
                writer.flush();
            });
            let (mut next, mut refuse) = (0, false);
            while next < EVENTS {
                match reader.read(batch).unwrap() {
                    Poll::Events(_) => {}
                    other => assert_eq!(other, Poll::Idle),
                }
                for (expected, (kind, value)) in (next..).zip(batch.kinds.iter().zip(&batch.values)) {
                    assert_eq!((*kind, *value), (event(expected).kind, expected));
                }
                // Every other batch is refused first, which must change nothing.
                refuse = !refuse;
                if !refuse {
                    next += batch.len() as u64;
                    assert!(reader.commit());
                }
                thread::yield_now();
            }
        });
        assert_eq!(ring.reader.stats().events, EVENTS);
    }
}

#[test]
fn hammering_the_file_under_reader_and_writer_ends_in_counted_resets() {
    const ROUNDS: usize = 3_000;
    let mut ring = Ring::new(Layout::V4, 256);
    let path = ring.path();
    let done = AtomicBool::new(false);
    let Ring {
        writer,
        reader,
        batch,
        ..
    } = &mut ring;
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let whole = Layout::V4.file_size(256);
            for round in 0..ROUNDS {
                // Sizes from nothing through half a header to the whole.
                file.set_len([0, 20, 100, 2_000][round % 4]).unwrap();
                file.set_len(whole).unwrap();
                if round % 3 == 0 {
                    file.write_all_at(&[0x5a; 300], 0).unwrap();
                    Writer::create(&path, Layout::V4, 256).unwrap();
                }
                thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut value = 0;
            while !done.load(Ordering::Acquire) {
                value += 1;
                writer.push(event(value));
                writer.flush();
            }
        });
        while !done.load(Ordering::Acquire) {
            if let Poll::Events(fill) = reader.read(batch).unwrap() {
                assert_eq!(batch.len() as u64, fill.readable);
                reader.commit();
            }
        }
    });
    assert!(ring.reader.stats().resets > 0);
    ring.writer.restart(Layout::V4, 256).unwrap();
    ring.push(1..4);
    let mut polls = (0..10).map(|_| ring.read());
    assert!(polls.any(|poll| matches!(poll, Poll::Events(_))));
    assert_eq!(ring.batch.values, [1, 2, 3]);
}
