//! HTTP/2 by its bytes: a request that needs no state.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frames are no larger, unless the other side allows it.
const FRAME: usize = 16 << 10;

/// The preface, empty settings, and GET `/` on stream 1.
pub(super) fn first_get() -> Vec<u8> {
    [PREFACE.to_vec(), frame(0x4, 0, 0, &[]), get(1, "/")].concat()
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

/// The beginning of a connection that takes no byte of any answer.
pub(super) fn without_window() -> Vec<u8> {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0; the other side's settings are acknowledged.
    let settings = frame(0x4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [PREFACE.to_vec(), settings, frame(0x4, 0x1, 0, &[])].concat()
}

/// POST of a body on a stream, which ends with it or does not end.
pub(super) fn post(stream: u32, path: &str, content_type: &str, body: &[u8], ends: bool) -> Vec<u8> {
    // By the static table of HPACK: POST, http, and literals that are not kept: the path, the authority, the type.
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"127.0.0.1");
    block.extend([0x0f, 0x10, content_type.len() as u8]);
    block.extend(content_type.as_bytes());
    // END_HEADERS; END_STREAM with the last piece.
    let mut bytes = frame(0x1, 0x4, stream, &block);
    let mut pieces = body.chunks(FRAME).peekable();
    while let Some(piece) = pieces.next() {
        let is_last = ends && pieces.peek().is_none();
        bytes.extend(frame(0x0, u8::from(is_last), stream, piece));
    }
    bytes
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
