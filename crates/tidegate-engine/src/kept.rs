//! What a witness of a state keeps of it, and how that becomes bytes elsewhere, a piece at a time.

use std::collections::LinkedList;
use std::io::{self, Write};
use std::sync::Mutex;

use crate::chunks::{CHUNK, lock};

/// As many bytes are written at a time, or somewhat more.
const PIECE: usize = 64 << 10;

/// Things as they were, those of a chunk in a list each. The lock is held for a few instructions only, and nothing is
/// copied where there are many: the thread that saves gets few turns, and who changes something would wait for them.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<LinkedList<Vec<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Kept<T> {
    pub(crate) fn add(&self, things: impl Iterator<Item = T>) {
        let mut list = Vec::with_capacity(CHUNK as usize);
        list.extend(things);
        let mut lists = LinkedList::from([list]);
        lock(&self.0).append(&mut lists);
    }

    /// Makes bytes of what has been kept by now, behind those that are in `bytes`, and writes them where they are
    /// enough for a piece.
    pub(crate) fn pass_on<B: AsMut<Vec<u8>>>(
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
