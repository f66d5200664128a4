// SPDX-License-Identifier: Apache-2.0

//! Several readers of one ring.

use super::*;

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

    // The reader accepted the events that it saw while peeking. So it hands these slots back when it takes over.
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
