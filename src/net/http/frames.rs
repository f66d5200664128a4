//! Room for the frames of HTTP/2. h2 reads a frame as a whole before anybody hears of it, and keeps the buffer. Without
//! room, many connections that each send a large part of a frame would fill the memory.

use std::io;
use std::sync::Arc;
use std::task::Context;

use super::reads::Reads;
use crate::component::{Held, NoRoom};
use crate::net::authority::PREFACE;
use crate::net::server::{Ended, count_ended};

/// A frame of so many bytes needs no room: it takes no more than the head of a request over HTTP/1.1. A listener has no
/// more connections than there is memory for such frames.
const FREE_BYTES: usize = 64 << 10;

const HEAD_BYTES: usize = 9;

/// Follows the lengths of the frames that a peer sends, and ends the connection where there is no room for one.
pub(super) struct Frames {
    /// Bytes of the preface that have been seen.
    preface: usize,
    /// Whether it is HTTP/1.1, or small frames are the only ones.
    passes: bool,
    /// What is left of a frame.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of `head` that are there.
    seen: usize,
    /// Room for the largest frame so far, as long as the connection lives.
    held: Held,
    /// Where the connection was accepted, as a label.
    endpoint: Arc<str>,
}

impl Frames {
    /// Frames have at most `max_bytes`: h2 refuses longer ones by their heads.
    pub(super) fn new(max_bytes: u32, held: Held, endpoint: Arc<str>) -> Self {
        Self {
            preface: 0,
            passes: max_bytes as usize <= FREE_BYTES,
            skip: 0,
            head: [0; HEAD_BYTES],
            seen: 0,
            held,
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
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.seen));
            self.head[self.seen..][..head.len()].copy_from_slice(head);
            self.seen += head.len();
            bytes = rest;
            if self.seen == HEAD_BYTES {
                self.seen = 0;
                let [a, b, c, ..] = self.head;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.reserve(self.skip)?;
            }
        }
    }

    fn reserve(&mut self, frame: usize) -> Result<(), NoRoom> {
        let more = frame.saturating_sub(self.held.bytes());
        if frame <= FREE_BYTES || more == 0 {
            return Ok(());
        }
        self.held.try_grow_quietly(more)?;
        self.held.fill(more);
        Ok(())
    }
}

impl Reads for Frames {
    fn see(&mut self, bytes: &[u8], _: &mut Context<'_>) -> io::Result<()> {
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

    use super::super::reads::Seen;
    use super::*;
    use crate::component::Account;

    /// What is read of these writes, and the account then.
    async fn read(limit: usize, writes: &[&[u8]]) -> (io::Result<usize>, Arc<Account>, usize) {
        let memory = Arc::new(Account::default());
        memory.set_default_limit(limit);
        let (mut peer, stream) = tokio::io::duplex(4 << 20);
        let frames = Frames::new(1 << 20, Held::new(memory.clone()), "".into());
        let mut framed = Seen::new(stream, frames);
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
        // However the bytes come.
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
    async fn a_frame_without_room_ends_its_connection_and_a_small_one_needs_none() {
        let small = [PREFACE, &head(FREE_BYTES)].concat();
        assert!(read(1, &[&small]).await.0.is_ok());
        let large = [PREFACE, &head(FREE_BYTES + 1)].concat();
        assert!(read(1, &[&large]).await.0.is_err());
        let old = b"POST /v1/metrics HTTP/1.1\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
        assert!(read(1, &[old]).await.0.is_ok());
    }
}
