//! HTTP/2 by its bytes: a request that needs no state.

/// The preface, empty settings, and GET `/` on stream 1.
pub(super) fn get() -> Vec<u8> {
    // By the static table of HPACK: GET, http, `/`, and the authority as a literal that is not kept.
    let mut block = vec![0x82, 0x86, 0x84, 0x01, 9];
    block.extend(b"127.0.0.1");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(0x4, 0, 0, &[]));
    // END_STREAM and END_HEADERS.
    bytes.extend(frame(0x1, 0x5, 1, &block));
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
