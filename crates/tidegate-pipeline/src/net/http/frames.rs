// SPDX-License-Identifier: Apache-2.0

//! Memory for HTTP/2 frames. h2 reads a whole frame before it reports it, and header fields keep the buffers of
//! their frames. Both are reserved, so that many connections cannot fill the memory.

use std::io;
use std::sync::Arc;
use std::task::Context;

use super::header_table::HeaderTable;
use super::reads::Reads;
use crate::component::{Held, NoRoom};
use crate::net::authority::PREFACE;
use crate::net::server::{Ended, count_ended};

/// A frame of this size needs no reservation: it takes no more than the head of an HTTP/1.1 request. The memory
/// limit also limits the connections of a listener.
const FREE_BYTES: usize = 64 << 10;

const HEAD_BYTES: usize = 9;

/// Types and flags of frames: RFC 9113, sections 6.2 and 6.10.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// Follows the frames of a peer, and ends the connection if memory for one is short.
pub(super) struct Frames {
    /// Bytes of the preface so far.
    preface: usize,
    /// Whether it is HTTP/1.1.
    passes: bool,
    /// The current frame.
    frame: Frame,
    head: [u8; HEAD_BYTES],
    /// Bytes of `head` so far.
    seen: usize,
    /// The reservation of the largest frame, for the life of the connection. The received part of a frame is
    /// filled.
    largest: Held,
    table: HeaderTable,
    /// The reservation of the buffers that `table` keeps in use, if they exceed `FREE_BYTES`.
    kept: Held,
    /// The endpoint of the listener, as a label.
    endpoint: Arc<str>,
}

/// The bytes of a frame that are still to come.
#[derive(Default)]
struct Frame {
    bytes: usize,
    left: usize,
    /// Whether the first byte is the padding length.
    is_padded: bool,
    /// Bytes before the header block.
    before: usize,
    /// Bytes of the header block; all others are skipped.
    block: usize,
}

impl Frame {
    fn of(head: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, ..] = head;
        let bytes = u32::from_be_bytes([0, a, b, c]) as usize;
        let is_headers = kind == HEADERS;
        let is_padded = is_headers && flags & PADDED != 0;
        let has_priority = is_headers && flags & PRIORITY != 0;
        let before = usize::from(is_padded) + if has_priority { PRIORITY_BYTES } else { 0 };
        let has_block = is_headers || kind == CONTINUATION;
        Self {
            bytes,
            left: bytes,
            is_padded,
            before,
            block: if has_block {
                bytes.saturating_sub(before)
            } else {
                0
            },
        }
    }

    /// Takes the bytes that belong to the frame. Returns their part in the header block, and the bytes after the
    /// frame.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (mut own, rest) = bytes.split_at(self.left.min(bytes.len()));
        self.left -= own.len();
        if let (true, Some(padding)) = (self.is_padded, own.first()) {
            self.is_padded = false;
            self.block = self.block.saturating_sub(usize::from(*padding));
        }
        let before = self.before.min(own.len());
        self.before -= before;
        own = &own[before..];
        let block = &own[..self.block.min(own.len())];
        self.block -= block.len();
        (block, rest)
    }

    fn arrived(&self) -> usize {
        self.bytes - self.left
    }
}

impl Frames {
    /// Creates a follower. `held` must have no reservation.
    pub(super) fn new(held: [Held; 2], endpoint: Arc<str>) -> Self {
        let [largest, kept] = held;
        Self {
            preface: 0,
            passes: false,
            frame: Frame::default(),
            head: [0; HEAD_BYTES],
            seen: 0,
            largest,
            table: HeaderTable::default(),
            kept,
            endpoint,
        }
    }

    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), NoRoom> {
        let due = &PREFACE[self.preface..];
        let there = due.len().min(bytes.len());
        self.passes |= due[..there] != bytes[..there];
        if self.passes {
            return Ok(());
        }
        self.preface += there;
        bytes = &bytes[there..];
        self.table.note_read(bytes.len());
        loop {
            let (block, rest) = self.frame.take(bytes);
            if !block.is_empty() {
                self.table.follow(block);
                self.reserve_kept()?;
            }
            self.fill_largest();
            if rest.is_empty() {
                return Ok(());
            }
            let (head, rest) = rest.split_at(rest.len().min(HEAD_BYTES - self.seen));
            self.head[self.seen..][..head.len()].copy_from_slice(head);
            self.seen += head.len();
            bytes = rest;
            if self.seen == HEAD_BYTES {
                self.seen = 0;
                self.begin_frame()?;
            }
        }
    }

    fn begin_frame(&mut self) -> Result<(), NoRoom> {
        self.frame = Frame::of(self.head);
        if self.head[3] == HEADERS {
            self.table.begin();
        }
        if self.frame.block > 0 {
            self.table.note_frame(self.frame.bytes);
        }
        let more = self.frame.bytes.saturating_sub(self.largest.bytes());
        if self.frame.bytes > FREE_BYTES {
            self.largest.try_grow_quietly(more)?;
        }
        Ok(())
    }

    /// Fills the received bytes. A measurement counts filled bytes as resident.
    fn fill_largest(&mut self) {
        let arrived = self.frame.arrived().min(self.largest.bytes());
        self.largest.fill_to(arrived);
    }

    fn reserve_kept(&mut self) -> Result<(), NoRoom> {
        let kept = self.table.buffer_bytes().saturating_sub(FREE_BYTES);
        let more = kept.saturating_sub(self.kept.bytes());
        if more > 0 {
            self.kept.try_grow_quietly(more)?;
            self.kept.fill(more);
        }
        Ok(())
    }
}

impl Reads for Frames {
    fn observe(&mut self, bytes: &[u8], _: &mut Context<'_>) -> io::Result<()> {
        if self.passes {
            return Ok(());
        }
        self.follow(bytes).map_err(|no_room| {
            count_ended(&self.endpoint, Ended::Memory);
            io::Error::other(no_room)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::reads::ObservedStream;
    use super::*;
    use crate::component::Account;

    /// Reads the writes under a memory limit. Returns the bytes read, the account, and its use.
    async fn read(limit: usize, writes: &[&[u8]]) -> (io::Result<usize>, Arc<Account>, usize) {
        let memory = Arc::new(Account::default());
        memory.set_default_limit(limit);
        let (mut peer, stream) = tokio::io::duplex(4 << 20);
        let held = || Held::new(memory.clone());
        let frames = Frames::new([held(), held()], "".into());
        let mut framed = ObservedStream::new(stream, frames);
        let mut all = Vec::new();
        let mut outcome = Ok(0);
        for write in writes {
            peer.write_all(write).await.unwrap();
            let mut left = write.len();
            while left > 0 && outcome.is_ok() {
                outcome = framed.read_buf(&mut all).await;
                left -= outcome.as_ref().map_or(0, |read| *read);
            }
        }
        let reserved = memory.reserved_bytes();
        drop(framed);
        (outcome, memory, reserved)
    }

    fn head(length: usize) -> Vec<u8> {
        let mut head = (length as u32).to_be_bytes()[1..].to_vec();
        head.extend([0, 0, 0, 0, 0, 1]);
        head
    }

    #[tokio::test]
    async fn the_largest_frame_of_a_connection_is_on_the_account_from_its_head_on() {
        let (small, large) = (vec![0; FREE_BYTES], vec![0; 300_000]);
        let all = [
            PREFACE,
            &head(small.len()),
            &small,
            &head(large.len()),
            &large,
            &head(1 << 20),
        ]
        .concat();
        // The result must not depend on the sizes of the reads.
        for part in [1_000_000, 10_000, 7] {
            let writes: Vec<_> = all.chunks(part).collect();
            let (outcome, memory, reserved) = read(1 << 30, &writes).await;
            assert!(outcome.is_ok());
            assert_eq!((reserved, memory.reserved_bytes()), (1 << 20, 0));
        }
        let before = all.len() - HEAD_BYTES;
        let (_, _, reserved) = read(1 << 30, &[&all[..before]]).await;
        assert_eq!(reserved, 300_000);
    }

    #[tokio::test]
    async fn a_frame_that_has_not_arrived_counts_on_top_of_what_is_measured() {
        let memory = Arc::new(Account::default());
        let held = || Held::new(memory.clone());
        let mut frames = Frames::new([held(), held()], "".into());
        frames.follow(&[PREFACE, &head(1 << 20)].concat()).unwrap();
        memory.note(7);
        assert!(memory.used_bytes() >= 7 + (1 << 20));
        frames.follow(&[0; 300_000]).unwrap();
        memory.note(300_007);
        assert_eq!(memory.filled_bytes(), 300_000);
        assert!(memory.used_bytes() >= 7 + (1 << 20));
    }

    #[tokio::test]
    async fn buffers_that_header_fields_keep_in_use_are_on_the_account() {
        let memory = Arc::new(Account::default());
        let held = || Held::new(memory.clone());
        let mut frames = Frames::new([held(), held()], "".into());
        frames.follow(PREFACE).unwrap();
        // Padding, priority, `:path: /` as an entry, the end of the padding; an unknown frame in between.
        let block = [1, 0, 0, 0, 0, 16, 0x44, 1, b'/', 0];
        let mut path = head(block.len());
        (path[3], path[4]) = (HEADERS, PADDED | PRIORITY);
        path.extend(block);
        let mut between = head(16 << 10);
        between[3] = 0xfe;
        between.resize(HEAD_BYTES + (16 << 10), 0);
        for entry in 1..=107 {
            for part in [&between[..], &path].concat().chunks(1000) {
                frames.follow(part).unwrap();
            }
            let kept: usize = entry * (8 << 10);
            assert_eq!(memory.reserved_bytes(), kept.saturating_sub(FREE_BYTES));
        }
        memory.set_default_limit(memory.reserved_bytes());
        assert_eq!(frames.follow(&[&between[..], &path].concat()), Err(NoRoom));
        drop(frames);
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn a_frame_without_room_ends_its_connection_and_a_small_one_needs_none() {
        let small = [PREFACE, &head(FREE_BYTES)].concat();
        assert!(read(1, &[&small]).await.0.is_ok());
        let large = [PREFACE, &head(FREE_BYTES + 1)].concat();
        assert!(read(1, &[&large]).await.0.is_err());
        let old = b"POST /v1/metrics HTTP/1.1\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
        assert!(read(1, &[old]).await.0.is_ok());
    }
}
