// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::huffman::tests::encode as huffman;
use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// HPACK's default, which we leave to clients.
const TABLE_BYTES: usize = 4096;

/// A stream that gives what it has in these pieces, then ends.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    sizes: VecDeque<usize>,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.sizes.pop_front().unwrap_or(usize::MAX).max(1);
        let end = self
            .bytes
            .len()
            .min(self.at.saturating_add(size.min(into.remaining())));
        into.put_slice(&self.bytes[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

async fn filtered(bytes: Vec<u8>, sizes: Vec<usize>) -> Vec<u8> {
    let pieces = Pieces {
        bytes,
        at: 0,
        sizes: sizes.into(),
    };
    let mut out = Vec::new();
    AuthorityFilter::new(pieces).read_to_end(&mut out).await.unwrap();
    out
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

type Fields = Vec<(String, String)>;

/// How a client writes its blocks and frames.
#[derive(Clone, Debug)]
struct Manner {
    /// 0x40: the field enters the table, 0x00: it does not, 0x10: it never may.
    literal: u8,
    coded: bool,
    /// Bytes of padding of the first frame.
    padding: Option<u8>,
    priority: bool,
    /// Bytes of the block in the first frames; the last takes the rest.
    parts: Vec<usize>,
    data: usize,
}

/// An encoder that keeps a table of its own, as clients do.
#[derive(Default)]
struct Encoder(VecDeque<(String, String)>);

impl Encoder {
    fn field(&mut self, block: &mut Vec<u8>, name: &str, value: &str, manner: &Manner) {
        let known = self
            .0
            .iter()
            .position(|field| field.0 == name && field.1 == value);
        if let Some(index) = known {
            return integer(block, 0x80, 7, 62 + index);
        }
        block.push(manner.literal);
        string(block, name, manner.coded);
        string(block, value, manner.coded);
        if manner.literal == 0x40 {
            self.0.push_front((name.to_owned(), value.to_owned()));
            while self
                .0
                .iter()
                .map(|field| field.0.len() + field.1.len() + 32)
                .sum::<usize>()
                > TABLE_BYTES
            {
                self.0.pop_back();
            }
        }
    }
}

fn integer(block: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let full = (1 << bits) - 1;
    if value < full {
        return block.push(first | value as u8);
    }
    block.push(first | full as u8);
    let mut rest = value - full;
    while rest > 0x7f {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

fn string(block: &mut Vec<u8>, text: &str, coded: bool) {
    let bytes = if coded {
        huffman(text.as_bytes())
    } else {
        text.as_bytes().to_vec()
    };
    integer(block, if coded { 0x80 } else { 0 }, 7, bytes.len());
    block.extend_from_slice(&bytes);
}

/// The frames of a request with a body.
fn request(encoder: &mut Encoder, stream: u32, authority: &str, fields: &Fields, manner: &Manner) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a"),
        (":authority", authority),
    ];
    for (name, value) in pseudo {
        encoder.field(&mut block, name, value, manner);
    }
    for (name, value) in fields {
        encoder.field(&mut block, name, value, manner);
    }
    let mut frames = Vec::new();
    let mut rest = block.as_slice();
    let sizes = manner.parts.iter().copied().map(Some).chain([None]);
    for (number, size) in sizes.enumerate() {
        let (part, behind) = rest.split_at(size.unwrap_or(rest.len()).min(rest.len()));
        rest = behind;
        let mut flags = if size.is_none() { 0x4 } else { 0 };
        if number > 0 {
            frames.extend(frame(9, flags, stream, part));
            continue;
        }
        let mut payload = Vec::new();
        if let Some(padding) = manner.padding {
            flags |= 0x8;
            payload.push(padding);
        }
        if manner.priority {
            flags |= 0x20;
            payload.extend_from_slice(&[0, 0, 0, 0, 15]);
        }
        payload.extend_from_slice(part);
        payload.extend(std::iter::repeat_n(0, manner.padding.unwrap_or(0).into()));
        frames.extend(frame(1, flags, stream, &payload));
    }
    // Bytes within a body that look like a header block are not a header block.
    let body = b"\x00\x00\x07\x01\x04\x00\x00\x00\x01\x41\x05%2Fa:".repeat(manner.data / 16 + 1);
    frames.extend(frame(0, 0, stream, &body[..manner.data]));
    frames.extend(frame(1, 0x5, stream, b"\x00\x02t1\x02v1"));
    frames
}

/// At most `count` requests of a client, as h2 reads them: their authorities, their fields and the lengths of their
/// bodies.
async fn served(bytes: Vec<u8>, sizes: Vec<usize>, count: usize) -> Vec<(String, Fields, usize)> {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let writing = async move {
        let mut rest = bytes.as_slice();
        for size in sizes {
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            rest = behind;
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.write_all(rest).await.unwrap();
        // Requests are dropped when the client ends before they are accepted.
        client.read_to_end(&mut Vec::new()).await.unwrap();
    };
    let serving = async {
        let mut builder = h2::server::Builder::new();
        builder.max_frame_size(1 << 20).max_header_list_size(64 << 10);
        let filter = AuthorityFilter::new(server);
        let mut connection = builder.handshake::<_, Bytes>(filter).await.unwrap();
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..count {
            let Some(Ok((request, answer))) = connection.accept().await else {
                break;
            };
            requests.spawn(async move { (number, whole(request).await, answer) });
        }
        let collected = async {
            let mut collected = requests.join_all().await;
            collected.sort_by_key(|(number, ..)| *number);
            collected.into_iter().map(|(_, request, _)| request).collect()
        };
        tokio::select! {
            collected = collected => collected,
            _ = connection.accept() => Vec::new(),
        }
    };
    let limited = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        tokio::join!(writing, serving).1
    });
    limited.await.expect("requests arrive")
}

async fn whole(request: http::Request<h2::RecvStream>) -> (String, Fields, usize) {
    let (head, mut body) = request.into_parts();
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    let fields = head.headers.iter().map(field).collect();
    let mut length = 0;
    while let Some(data) = body.data().await {
        length += data.unwrap().len();
    }
    (head.uri.authority().unwrap().to_string(), fields, length)
}

fn hello() -> Vec<u8> {
    [PREFACE, SETTINGS].concat()
}

fn plain() -> Manner {
    Manner {
        literal: 0x40,
        coded: false,
        padding: None,
        priority: false,
        parts: Vec::new(),
        data: 0,
    }
}

#[test]
fn a_second_request_finds_the_authority_of_the_first_in_the_table() {
    let mut encoder = Encoder::default();
    let fields: Fields = vec![("te".to_owned(), "trailers".to_owned())];
    let mut bytes = hello();
    for stream in [1, 3, 5] {
        bytes.extend(request(
            &mut encoder,
            stream,
            "%2Frun%2Fotlp.sock",
            &fields,
            &plain(),
        ));
    }
    let served = run(served(bytes, Vec::new(), 3));
    let expected = ("-2Frun-2Fotlp.sock".to_owned(), fields, 0);
    assert_eq!(served, vec![expected; 3]);
}

#[test]
fn http_1_and_everything_that_h2_takes_pass_byte_for_byte() {
    let mut bytes = hello();
    bytes.extend(request(
        &mut Encoder::default(),
        1,
        "localhost",
        &Vec::new(),
        &plain(),
    ));
    let http_1 =
        b"POST /v1/metrics HTTP/1.1\r\nhost: %2Fa\r\n\r\n\x00\x00\x06\x01\x04\x00\x00\x00\x01\x41\x04%2Fa";
    for bytes in [
        bytes,
        http_1.to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nno".to_vec(),
        Vec::new(),
    ] {
        for size in [1, 2, 7, 1000] {
            assert_eq!(run(filtered(bytes.clone(), vec![size; bytes.len()])), bytes);
        }
    }
}

#[test]
fn a_block_without_end_is_left_to_h2_and_takes_no_memory() {
    let start = frame(1, 0, 1, b"\x41\x04%2Fa");
    let floods = [
        [start.clone(), frame(9, 0, 1, b"").repeat(1000)].concat(),
        [start.clone(), frame(9, 0, 1, &[0x83; 60_000]).repeat(4)].concat(),
        frame(1, 4, 1, &[0x83; 200_000]),
        [start.clone(), frame(0, 0, 1, b"x")].concat(),
        [start, frame(9, 4, 3, b"")].concat(),
        frame(1, 4 | 8, 1, b"\x09\x83"),
        frame(1, 4 | 0x20, 1, b"\x00"),
    ];
    for flood in floods {
        let bytes = [hello(), flood, frame(1, 4, 5, b"\x41\x04%2Fa")].concat();
        assert_eq!(run(filtered(bytes.clone(), vec![100; 4000])), bytes);
    }
}

#[test]
fn what_is_held_when_the_client_ends_is_handed_out() {
    let mut bytes = hello();
    bytes.extend(request(&mut Encoder::default(), 1, "%2Fa", &Vec::new(), &plain()));
    for end in 0..hello().len() + 30 {
        assert_eq!(
            run(filtered(bytes[..end].to_vec(), vec![5; 100])),
            bytes[..end],
            "{end}"
        );
    }
}

fn manners() -> impl Strategy<Value = Manner> {
    (
        prop_oneof![4 => Just(0x40_u8), 1 => Just(0x00), 1 => Just(0x10)],
        any::<bool>(),
        prop::option::of(any::<u8>()),
        any::<bool>(),
        prop::collection::vec(0_usize..60, 0..4),
        0_usize..300,
    )
        .prop_map(|(literal, coded, padding, priority, parts, data)| Manner {
            literal,
            coded,
            padding,
            priority,
            parts,
            data,
        })
}

fn authorities() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,9}(:[0-9]{1,4})?",
        "(%2F[a-z.]{1,9}){1,9}",
        "/[ -~]{1,30}",
        Just("%2Fa".to_owned())
    ]
}

proptest! {
    /// Requests written in any manner, in any pieces: every field arrives, whatever stood in the table.
    #[test]
    fn any_requests_arrive(
        requests in prop::collection::vec(
            (authorities(), prop::collection::vec(("x-[a-c]{1,2}", "[ -~]{1,400}"), 0..6), manners()),
            1..8,
        ),
        sizes in prop::collection::vec(1_usize..200, 0..60),
    ) {
        let mut encoder = Encoder::default();
        let mut bytes = hello();
        let mut expected = Vec::new();
        for (number, (authority, mut fields, manner)) in requests.into_iter().enumerate() {
            // Values don't begin or end with spaces; a map of headers keeps names together.
            fields.iter_mut().for_each(|field| field.1 = format!("|{}|", field.1));
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            bytes.extend(request(&mut encoder, 2 * number as u32 + 1, &authority, &fields, &manner));
            let arrives = match http::uri::Authority::try_from(authority.as_str()) {
                Ok(_) => authority,
                Err(_) => authority.replace(|c: char| !(c.is_ascii_alphanumeric() || "-._~".contains(c)), "-"),
            };
            expected.push((arrives, fields, manner.data));
        }
        let mut served = run(served(bytes, sizes, expected.len()));
        for request in &mut served {
            request.1.sort_by(|a, b| a.0.cmp(&b.0));
        }
        prop_assert_eq!(served, expected);
    }

    /// For any bytes and pieces, the output depends on the bytes only, and passes a second filter as it is.
    #[test]
    fn pieces_do_not_matter(
        frames in prop::collection::vec(
            (prop_oneof![Just(1_u8), Just(9), 0_u8..12], any::<u8>(), 0_u32..4, prop::collection::vec(any::<u8>(), 0..40)),
            0..12,
        ),
        sizes in prop::collection::vec(1_usize..30, 0..60),
    ) {
        let mut bytes = hello();
        for (kind, flags, stream, payload) in frames {
            bytes.extend(frame(kind, flags, stream, &payload));
        }
        let whole = run(filtered(bytes.clone(), Vec::new()));
        prop_assert_eq!(&run(filtered(bytes, sizes)), &whole);
        prop_assert_eq!(run(filtered(whole.clone(), Vec::new())), whole);
    }
}
