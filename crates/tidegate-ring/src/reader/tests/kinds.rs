// SPDX-License-Identifier: Apache-2.0

//! Kinds of events: unknown types, padding, own names.

use super::*;
use crate::kind::{Category, FIRST_OWN, MAX_OWN_NAMES, OVERFLOW, UNKNOWN};

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
