// SPDX-License-Identifier: Apache-2.0

//! A frozen state stays as it was at one moment while the table changes.

use std::io;
use std::thread;

use super::saved::kept;
use super::*;

/// Several chunks.
const STREAMS: usize = 500;
/// Streams and series go after this; the default.
const EXPIRY: u64 = 300 * SECOND;

fn rules() -> Vec<Rule> {
    let sum = Rule {
        gauge: GaugePolicy::Sum,
        ..by("g", &["zone"])
    };
    vec![by("u", &["zone"]), sum, by("c", &["pod"])]
}

/// Reports the points of a pod, each 1: for a zone that all pods share, and for a series of its own.
fn observe_pod(table: &Table, pod: usize, now: u64) {
    let pod = pod.to_string();
    for (name, data) in [("u", UP_DOWN), ("g", Data::Gauge), ("c", COUNTER)] {
        let series = series(name, data, &[("pod", &pod), ("zone", "x")], &[]);
        table.observe(&point(&series, NOW - 1, now, 1), now);
    }
}

/// The sums of a zone, and how many series are of a pod alone.
fn shown(table: &Table) -> (i64, i64, usize) {
    let all = show(table);
    let sum = |name| match all.get(name) {
        Some(Value::Int(sum)) => *sum,
        _ => 0,
    };
    let own = all.keys().filter(|name| name.starts_with("c{")).count();
    (sum("u{zone=x}"), sum("g{zone=x}"), own)
}

/// A sum that may fall is what its streams have added: where all of them have gone it is what the last one says.
fn check(bytes: &[u8], now: u64) {
    let next = kept(rules());
    let restored = next.restore(bytes).expect("own bytes");
    let (falls, gauge, _) = shown(&next);
    let later = now + 2 * EXPIRY;
    observe_pod(&next, usize::MAX, later);
    next.expire(later);
    assert_eq!(
        shown(&next),
        (1, 1, 1),
        "all have left of {restored:?} with {falls} and {gauge}"
    );
}

#[test]
fn a_state_is_whole_while_streams_and_series_leave_and_come() {
    for _ in 0..50 {
        let table = kept(rules());
        (0..STREAMS).for_each(|pod| observe_pod(&table, pod, NOW));
        // All of them leave now, a chunk at a time.
        let (now, version) = (NOW + 2 * EXPIRY, table.version());
        let mut bytes = Vec::new();
        thread::scope(|scope| {
            let leaving = scope.spawn(|| table.expire(now));
            while table.version() == version {
                std::hint::spin_loop();
            }
            let frozen = table.freeze();
            scope.spawn(|| (STREAMS..STREAMS + 50).for_each(|pod| observe_pod(&table, pod, now)));
            frozen.write(&mut bytes).expect("there is room");
            leaving.join().expect("no panic");
        });
        check(&bytes, now);
        assert_eq!(shown(&table), (50, 50, 50));
    }
}

#[test]
fn the_series_of_a_former_process_are_written_once() {
    let before = kept(rules());
    (0..STREAMS).for_each(|pod| observe_pod(&before, pod, NOW));
    let table = kept(rules());
    table.restore(&before.save()).expect("own bytes");
    let frozen = table.freeze();
    (0..STREAMS / 2).for_each(|pod| observe_pod(&table, pod, NOW + 1));
    (STREAMS..2 * STREAMS).for_each(|pod| observe_pod(&table, pod, NOW + 1));
    let mut bytes = Vec::new();
    frozen.write(&mut bytes).expect("there is room");
    let next = kept(rules());
    let restored = next.restore(&bytes).expect("own bytes");
    assert_eq!((restored.series, restored.streams), (STREAMS + 2, 3 * STREAMS));
    let streams = STREAMS as i64;
    assert_eq!(shown(&next), (streams, streams, STREAMS));
    check(&bytes, NOW);
    check(&table.save(), NOW);
}

/// A writer with room for this many bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let left = self.0.checked_sub(piece.len());
        self.0 = left.ok_or(io::ErrorKind::StorageFull)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_state_that_can_not_be_written_is_let_go_and_the_next_is_whole() {
    let table = kept(rules());
    (0..20 * STREAMS).for_each(|pod| observe_pod(&table, pod, NOW));
    let whole = table.save();
    for room in [0, 100_000, whole.len() - 1] {
        let refused = table
            .freeze()
            .write(&mut Full(room))
            .map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::StorageFull), "{room}");
        observe_pod(&table, room, NOW + 1);
    }
    assert!(table.freeze().write(&mut Full(2 * whole.len())).is_ok());
    check(&table.save(), NOW);
}
