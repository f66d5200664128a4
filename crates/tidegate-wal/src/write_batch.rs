// SPDX-License-Identifier: Apache-2.0

//! Bytes for one write: large pieces stay in place, small ones are copied together.

use std::fs::File;
use std::io::{self, IoSlice};

use bytes::{Bytes, BytesMut};
use rustix::io::{Errno, pwritev};

/// Smaller ones are copied: a place in the list would cost as much.
const SMALL: usize = 4096;

/// The most pieces that the system takes in one call.
const AT_ONCE: usize = 1024;

/// The pieces to write, in order.
#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    whole: Vec<Bytes>,
    /// Small pieces that follow them.
    small: BytesMut,
    bytes: usize,
}

impl WriteBatch {
    /// Appends bytes, without a copy if they are many.
    pub(super) fn push(&mut self, piece: &Bytes) {
        if piece.len() < SMALL {
            return self.copy(piece);
        }
        self.end_small();
        self.bytes += piece.len();
        self.whole.push(piece.clone());
    }

    /// Appends a copy.
    pub(super) fn copy(&mut self, piece: &[u8]) {
        self.bytes += piece.len();
        self.small.extend_from_slice(piece);
    }

    /// The number of bytes in all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.whole.clear();
        self.small.clear();
        self.bytes = 0;
    }

    /// Writes all of it at an offset of a file.
    pub(super) fn write(&mut self, file: &File, mut offset: u64) -> io::Result<()> {
        self.end_small();
        let mut slices: Vec<_> = self.whole.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let some = &left[..left.len().min(AT_ONCE)];
            let written = match pwritev(file, some, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            offset += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.whole.push(self.small.split().freeze());
        }
    }
}
