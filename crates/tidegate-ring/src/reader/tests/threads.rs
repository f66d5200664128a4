// SPDX-License-Identifier: Apache-2.0

//! A reader beside a writer, and beside a process that changes the file.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

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
