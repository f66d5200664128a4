// SPDX-License-Identifier: Apache-2.0

//! Writers that restart a ring in place.

use super::*;

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
