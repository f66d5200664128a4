// SPDX-License-Identifier: Apache-2.0

//! The buffer between the threads that copy state for a snapshot and the thread that writes the snapshot.

use std::collections::LinkedList;
use std::io::{self, Write};
use std::sync::Mutex;

use crate::chunks::{CHUNK, lock};

/// Bytes of one write, at least.
const PIECE: usize = 64 << 10;

/// Copies of a state as it was when a snapshot began: a list for each chunk.
///
/// A writer that changes a chunk holds the chunk's lock while it adds. So the buffer's lock covers a few
/// instructions only: `add` links a whole list, and `drain_to` unlinks all lists before it encodes them. The
/// saving thread runs seldom; under a longer lock, writers wait for it.
#[derive(Debug)]
#[expect(clippy::linkedlist, reason = "an append moves no older buffer")]
pub(crate) struct SnapshotBuffer<T>(Mutex<LinkedList<Vec<T>>>);

impl<T> Default for SnapshotBuffer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SnapshotBuffer<T> {
    /// Adds the copies of one chunk.
    pub(crate) fn add(&self, things: impl Iterator<Item = T>) {
        let mut list = Vec::with_capacity(CHUNK as usize);
        list.extend(things);
        let mut lists = LinkedList::from([list]);
        lock(&self.0).append(&mut lists);
    }

    /// Removes all copies that are here by now and appends them to `bytes` with `save`. Writes and clears
    /// `bytes` when it has enough for one write.
    pub(crate) fn drain_to<B: AsMut<Vec<u8>>>(
        &self,
        bytes: &mut B,
        to: &mut dyn Write,
        save: impl Fn(T, &mut B),
    ) -> io::Result<()> {
        let lists = std::mem::take(&mut *lock(&self.0));
        for thing in lists.into_iter().flatten() {
            save(thing, bytes);
            let bytes = bytes.as_mut();
            if bytes.len() >= PIECE {
                to.write_all(bytes)?;
                bytes.clear();
            }
        }
        Ok(())
    }
}
