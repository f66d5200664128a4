// SPDX-License-Identifier: Apache-2.0

//! HTTP/2 by its bytes: a request that needs no state.

use super::proto::varint;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frames are no larger, unless the other side allows it.
const FRAME: usize = 16 << 10;

/// The preface, empty settings, and GET `/` on stream 1.
pub(super) fn first_get() -> Vec<u8> {
    [PREFACE.to_vec(), frame(0x4, 0, 0, &[]), get(1, "/")].concat()
}

/// The beginning of a connection: empty settings, and the other side's are acknowledged.
pub(super) fn preface() -> Vec<u8> {
    [PREFACE.to_vec(), frame(0x4, 0, 0, &[]), frame(0x4, 0x1, 0, &[])].concat()
}

/// GET of a path on a stream.
pub(super) fn get(stream: u32, path: &str) -> Vec<u8> {
    // By the static table of HPACK: GET, http, and literals that are not kept: the path, the authority.
    let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"127.0.0.1");
    // END_STREAM and END_HEADERS.
    frame(0x1, 0x5, stream, &block)
}

/// GET of a path on a stream; the table of HPACK keeps the path.
pub(super) fn get_kept(stream: u32, path: &str) -> Vec<u8> {
    // By the static table: GET, http, the path as a literal that is kept, and the authority as one that is not.
    let mut block = vec![0x82, 0x86, 0x44, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"127.0.0.1");
    // END_STREAM and END_HEADERS.
    frame(0x1, 0x5, stream, &block)
}

/// The head of a POST on a stream, whose body is to come.
pub(super) fn post_head_frame(stream: u32, path: &str, content_type: &str) -> Vec<u8> {
    // END_HEADERS.
    frame(0x1, 0x4, stream, &post_head(path, content_type))
}

/// The beginning of a connection that takes no byte of any answer.
pub(super) fn without_window() -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0; the other side's settings are acknowledged.
    let settings = frame(0x4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [PREFACE.to_vec(), settings, frame(0x4, 0x1, 0, &[])].concat()
}

/// POST of a body on a stream, which ends with it or does not end.
pub(super) fn post(stream: u32, path: &str, content_type: &str, body: &[u8], ends: bool) -> Vec<u8> {
    // END_STREAM with the last piece.
    let mut bytes = post_head_frame(stream, path, content_type);
    let mut pieces = body.chunks(FRAME).peekable();
    while let Some(piece) = pieces.next() {
        let is_last = ends && pieces.peek().is_none();
        bytes.extend(frame(0x0, u8::from(is_last), stream, piece));
    }
    bytes
}

/// POST on a stream with more fields in its head, of which no body comes.
pub(super) fn silent_post(stream: u32, path: &str, content_type: &str, fields: &[u8]) -> Vec<u8> {
    let mut block = post_head(path, content_type);
    block.extend(fields);
    let mut bytes = Vec::new();
    let mut pieces = block.chunks(FRAME).peekable();
    while let Some(piece) = pieces.next() {
        // HEADERS, then CONTINUATION; END_HEADERS with the last one.
        let kind = if bytes.is_empty() { 0x1 } else { 0x9 };
        let flags = if pieces.peek().is_none() { 0x4 } else { 0x0 };
        bytes.extend(frame(kind, flags, stream, piece));
    }
    bytes
}

/// A field of a head with a value of `bytes` bytes, at least 127.
pub(super) fn long_field(bytes: usize) -> Vec<u8> {
    // A literal that is not kept. The length goes on behind its first seven bits.
    let mut field = b"\x00\x06x-long\x7f".to_vec();
    field.extend(varint(bytes as u64 - 127));
    field.resize(field.len() + bytes, b'x');
    field
}

/// So many fields of a head with a value of one byte each.
pub(super) fn short_fields(count: usize) -> Vec<u8> {
    let field = |number: usize| {
        let name = number.to_string();
        [&[0x00, name.len() as u8], name.as_bytes(), &[1, b'x']].concat()
    };
    (0..count).flat_map(field).collect()
}

/// By the static table of HPACK: POST, http, and literals that are not kept: the path, the authority, the type.
fn post_head(path: &str, content_type: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"127.0.0.1");
    block.extend([0x0f, 0x10, content_type.len() as u8]);
    block.extend(content_type.as_bytes());
    block
}

/// Bytes of the head of a frame.
pub(super) const HEAD: usize = 9;

/// A frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(payload.len() as u32, kind, flags, stream);
    bytes.extend(payload);
    bytes
}

/// The head of a frame that promises `length` bytes.
pub(super) fn head(length: u32, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes
}

/// The error code of the first GOAWAY among these frames.
pub(super) fn goaway(mut bytes: &[u8]) -> Option<u32> {
    loop {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (payload, next) = rest.split_at_checked(length)?;
        if head[3] == 0x7 {
            // After the last stream that was looked at.
            return Some(u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?));
        }
        bytes = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_goaway_is_found_behind_other_frames() {
        let goaway_frame = frame(0x7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 6]);
        let all = [frame(0x4, 0, 0, &[0; 6]), goaway_frame].concat();
        assert_eq!(goaway(&all), Some(6));
        assert_eq!(goaway(&all[..all.len() - 1]), None);
        assert_eq!(goaway(&[]), None);
    }
}
