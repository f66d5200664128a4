// SPDX-License-Identifier: Apache-2.0

//! A reader and a writer of one ring, through every change of its file.

mod damage;
mod kinds;
mod peeking;
mod properties;
mod restarts;
mod threads;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use super::*;
use crate::kind::KNOWN_KINDS;
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
