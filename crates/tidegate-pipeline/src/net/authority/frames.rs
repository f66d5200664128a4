// SPDX-License-Identifier: Apache-2.0

//! Follows the frames of one HTTP/2 client as far as necessary to find header blocks (RFC 9113). No I/O.

use std::borrow::Cow;

use super::block;

/// The first bytes of an HTTP/2 client.
pub(in crate::net) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// The largest header block over all its frames, in bytes. h2 refuses decoded lists of more than 64 KiB.
const MAX_BLOCK_BYTES: usize = 64 << 10;
/// The most CONTINUATION frames of a block. h2 accepts 5.
const MAX_CONTINUATIONS: usize = 8;

/// The position in the bytes of the client.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Bytes of the preface so far.
    preface: usize,
    /// Bytes that pass unread: the rest of a frame.
    skip: usize,
    /// Whether the rest passes unread: the client uses HTTP/1, or h2 will refuse it.
    over: bool,
}

/// The decision about bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// All bytes pass.
    Pass,
    /// The first `pass` bytes pass. The rest is the beginning of a frame, and the decision needs `need` bytes of
    /// it.
    Wait { pass: usize, need: usize },
    /// The first `pass` bytes pass. The next `frames` bytes are replaced.
    Replace {
        pass: usize,
        frames: usize,
        with: Vec<u8>,
    },
}

/// The frame at the beginning of the bytes.
enum Frame {
    /// A frame of this many bytes, which passes.
    Pass(usize),
    /// An incomplete frame.
    Need(usize),
    /// A header block of this many bytes, and its replacement.
    Replace(usize, Vec<u8>),
    /// Bytes that h2 does not accept.
    Foreign,
}

impl Frames {
    /// Decides about bytes. They start where the previous ones ended, minus those that had to wait or were
    /// replaced.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Next {
        let mut pass = self.preface(bytes);
        while !self.over {
            let skipped = self.skip.min(bytes.len() - pass);
            self.skip -= skipped;
            pass += skipped;
            if pass == bytes.len() {
                break;
            }
            match frame(&bytes[pass..]) {
                Frame::Pass(length) => self.skip = length,
                Frame::Need(need) => return Next::Wait { pass, need },
                Frame::Replace(frames, with) => return Next::Replace { pass, frames, with },
                Frame::Foreign => self.over = true,
            }
        }
        Next::Pass
    }

    /// Lets all further bytes pass.
    pub(super) fn give_up(&mut self) {
        self.over = true;
    }

    /// The number of bytes that belong to the preface.
    fn preface(&mut self, bytes: &[u8]) -> usize {
        let due = &PREFACE[self.preface..];
        let there = due.len().min(bytes.len());
        self.over |= due[..there] != bytes[..there];
        self.preface += there;
        there
    }
}

fn frame(bytes: &[u8]) -> Frame {
    let Some(head) = Head::parse(bytes) else {
        return Frame::Need(HEAD_BYTES);
    };
    match head.kind {
        HEADERS => headers(head, bytes),
        // A CONTINUATION without a block is an error, which h2 reports to the client.
        _ => Frame::Pass(HEAD_BYTES + head.length),
    }
}

/// A HEADERS frame, with the CONTINUATION frames that follow it.
fn headers(first: Head, bytes: &[u8]) -> Frame {
    let mut end = HEAD_BYTES + first.length;
    if end > MAX_BLOCK_BYTES {
        return Frame::Foreign;
    }
    let Some(payload) = bytes.get(HEAD_BYTES..end) else {
        return Frame::Need(end);
    };
    let Some((priority, fragment)) = first.fragment(payload) else {
        return Frame::Foreign;
    };
    let mut block = Cow::Borrowed(fragment);
    let mut last = first;
    let mut continuations = 0;
    while last.flags & END_HEADERS == 0 {
        let Some(head) = Head::parse(&bytes[end..]) else {
            return Frame::Need(end + HEAD_BYTES);
        };
        let start = end + HEAD_BYTES;
        end = start + head.length;
        continuations += 1;
        let continues = head.kind == CONTINUATION && head.stream == first.stream;
        if !continues || end > MAX_BLOCK_BYTES || continuations > MAX_CONTINUATIONS {
            return Frame::Foreign;
        }
        let Some(payload) = bytes.get(start..end) else {
            return Frame::Need(end);
        };
        block.to_mut().extend_from_slice(payload);
        last = head;
    }
    match block::edited(&block) {
        Some(edited) => Frame::Replace(end, first.whole(priority, &edited)),
        None => Frame::Pass(end),
    }
}

#[derive(Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream,
        })
    }

    /// The priority fields of a HEADERS frame, and its part of the block.
    fn fragment<'a>(&self, mut payload: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let mut padding = 0;
        if self.flags & PADDED != 0 {
            let (count, rest) = payload.split_first()?;
            (padding, payload) = (usize::from(*count), rest);
        }
        let priority = if self.flags & PRIORITY != 0 {
            PRIORITY_BYTES
        } else {
            0
        };
        let (priority, rest) = payload.split_at_checked(priority)?;
        let fragment = rest.len().checked_sub(padding)?;
        Some((priority, &rest[..fragment]))
    }

    /// A frame with a whole block. We accept frames as long as the longest block.
    fn whole(&self, priority: &[u8], block: &[u8]) -> Vec<u8> {
        let length = (priority.len() + block.len()) as u32;
        let flags = self.flags & !PADDED | END_HEADERS;
        let mut frame = Vec::with_capacity(HEAD_BYTES + length as usize);
        frame.extend_from_slice(&length.to_be_bytes()[1..]);
        frame.extend_from_slice(&[self.kind, flags]);
        frame.extend_from_slice(&self.stream);
        frame.extend_from_slice(priority);
        frame.extend_from_slice(block);
        frame
    }
}
