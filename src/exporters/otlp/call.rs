// SPDX-License-Identifier: Apache-2.0

//! A unary gRPC call: its request as bytes, and the meaning of its answer.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, Request, Response, StatusCode};
use prost::Message as _;
use smallvec::SmallVec;
use tonic::{Code, Status};

use super::channel::Sender;
use crate::component::{Held, Shared};
use crate::delivery::response::{ExportResponse, MAX_ANSWER_BYTES, of_status};
use crate::delivery::{EncodingPermit, Outcome, RetryConfig};
use crate::net::compression::unpack_now;
use crate::net::grpc::{GRPC_ENCODING, Prefix};
use crate::net::{Coding, DecompressError, decompress};

/// A message with its prefix, as the runs of bytes that it came in: nothing is copied to make it.
#[derive(Debug)]
pub(super) struct Message {
    runs: SmallVec<[Bytes; 4]>,
    /// The index of the current part. Earlier parts are used up.
    at: usize,
    remaining: usize,
}

impl Message {
    /// One message of all these bytes. `None`: gRPC knows no message of that length.
    pub(super) fn new(is_compressed: bool, parts: impl IntoIterator<Item = Bytes>) -> Option<Self> {
        let mut runs: SmallVec<[Bytes; 4]> = SmallVec::from_buf_and_len([const { Bytes::new() }; 4], 1);
        runs.extend(parts);
        let length = runs.iter().map(Bytes::len).sum::<usize>();
        runs[0] = Bytes::copy_from_slice(&Prefix::of(is_compressed, length)?.to_bytes());
        Some(Self {
            runs,
            at: 0,
            remaining: Prefix::BYTES + length,
        })
    }

    fn rest(&self) -> &[Bytes] {
        self.runs.get(self.at..).unwrap_or_default()
    }
}

impl Buf for Message {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        let run = self.rest().iter().find(|run| !run.is_empty());
        run.map_or(&[], |run| run)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let runs = self.rest().iter().filter(|run| !run.is_empty());
        let filled = into.iter_mut().zip(runs);
        filled.map(|(slice, run)| *slice = IoSlice::new(run)).count()
    }

    /// # Panics
    /// There are fewer bytes, as `Buf` says.
    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.remaining, "beyond the end of the message");
        self.remaining -= bytes;
        while bytes > 0
            && let Some(run) = self.runs.get_mut(self.at)
        {
            let used = bytes.min(run.len());
            run.advance(used);
            bytes -= used;
            self.at += usize::from(run.is_empty());
        }
    }
}

/// The result of a call.
pub(super) struct Called {
    pub(super) code: Code,
    pub(super) outcome: Outcome,
}

/// Sends a request and reads its answer, on the account. An error says why no complete answer arrived.
pub(super) async fn unary(
    sender: &mut Sender,
    request: Request<()>,
    message: Message,
    retry: &RetryConfig,
    shared: &Shared,
) -> Result<Called, h2::Error> {
    let failed = |status: &Status| Called {
        code: status.code(),
        outcome: retry.of_grpc(status.code(), of_status(status)),
    };
    let (response, mut body) = sender.send_request(request, false)?;
    // Bytes beyond the peer's window wait in the library. We hold them anyway.
    body.send_data(message, true)?;
    let (head, mut body) = response.await?.into_parts();
    let head = Response::from_parts(head, ());
    if let Some(status) = Status::from_header_map(head.headers()).filter(|status| status.code() != Code::Ok) {
        return Ok(failed(&status));
    }
    let mut held = Held::ours(shared.memory.clone());
    let answer = read(&mut body, &mut held).await?;
    let trailers = body.trailers().await?;
    let status = status(&head, trailers.as_ref());
    if let Some(status) = status.as_ref().filter(|status| status.code() != Code::Ok) {
        return Ok(failed(status));
    }
    let code = status.as_ref().map_or(Code::Unknown, Status::code);
    let outcome = match (decode(head.headers(), answer, shared).await, status) {
        (Ok(None), None) => Outcome::retry("the answer broke off"),
        (Ok(answer), _) => answer.map_or(Outcome::Done, ExportResponse::outcome),
        (Err(why), None) => Outcome::retry(format!("no gRPC status, and an unreadable answer: {why}")),
        // Status 0 says that the peer has the request, whatever else is wrong with the answer.
        (Err(why), Some(_)) => Outcome::Accepted {
            note: format!("the peer accepted the request, but its answer is unreadable: {why}"),
        },
    };
    Ok(Called { code, outcome })
}

/// The bytes of an answer, which `held` has on the account; of one that is too large, only that it is. It is read to its end
/// for the status there.
async fn read(body: &mut RecvStream, held: &mut Held) -> Result<Result<Bytes, String>, h2::Error> {
    const MAX_BYTES: usize = Prefix::BYTES + MAX_ANSWER_BYTES;
    let (mut answer, mut length) = (BytesMut::new(), 0_usize);
    while let Some(chunk) = body.data().await.transpose()? {
        body.flow_control().release_capacity(chunk.len())?;
        length = length.saturating_add(chunk.len());
        if length <= MAX_BYTES {
            answer.extend_from_slice(&chunk);
        } else {
            answer = BytesMut::new();
        }
        held.keep(answer.len());
    }
    Ok(if length <= MAX_BYTES {
        Ok(answer.freeze())
    } else {
        Err(format!("it has {length} bytes, more than {MAX_BYTES}"))
    })
}

/// The status that the server sent.
fn status(head: &Response<()>, trailers: Option<&HeaderMap>) -> Option<Status> {
    let mut said = trailers.into_iter().chain([head.headers()]);
    said.find_map(Status::from_header_map)
        .or_else(|| status_of_http(head.status()))
}

/// The gRPC status for an HTTP status from a proxy between us and the server
/// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>).
fn status_of_http(http: StatusCode) -> Option<Status> {
    let code = match http.as_u16() {
        200 => return None,
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Some(Status::new(code, format!("no gRPC status, but HTTP's {http}")))
}

/// The message of an answer, compressed as `grpc-encoding` says. `None`: the answer has no message.
async fn decode(
    headers: &HeaderMap,
    answer: Result<Bytes, String>,
    shared: &Shared,
) -> Result<Option<ExportResponse>, String> {
    let mut message = answer?;
    if message.is_empty() {
        return Ok(None);
    }
    let prefix = Prefix::read(&message).filter(|prefix| prefix.flag <= 1);
    let prefix = prefix.ok_or("it does not begin with the prefix of a gRPC message")?;
    message.advance(Prefix::BYTES);
    if message.len() != prefix.length as usize {
        let (has, said) = (message.len(), prefix.length);
        return Err(format!(
            "the message has {has} bytes, but its header gives {said}"
        ));
    }
    let coding = match prefix.flag {
        0 => Coding::Identity,
        _ => coding(headers)?,
    };
    let (plain, _room) = unpack(coding, message, shared).await?;
    let decoded = ExportResponse::decode(plain);
    decoded.map(Some).map_err(|error| error.to_string())
}

/// A message as it was before it was compressed, and the room that it takes. Most are a few bytes, which need none.
async fn unpack(coding: Coding, message: Bytes, shared: &Shared) -> Result<(Bytes, Option<Held>), String> {
    /// Smaller answers need no reservation.
    const SMALL: usize = 16 << 10;
    if coding == Coding::Identity {
        return Ok((message, None));
    }
    match decompress(coding, message.clone(), SMALL).await {
        Ok(plain) => return Ok((plain, None)),
        Err(DecompressError::TooLarge { .. }) => {}
        Err(error) => return Err(error.to_string()),
    }
    // During growth, the old and the new buffer exist side by side.
    let room = EncodingPermit::reserve(shared, 2 * MAX_ANSWER_BYTES).await;
    // In the places for what is sent: other attempts wait for this room, so it must not wait for receivers.
    let unpack = move || unpack_now(coding, message, MAX_ANSWER_BYTES, &mut Held::new(Arc::default()));
    let (plain, room) = room.make(unpack).await?;
    let plain = plain.map_err(|error| error.to_string())?;
    Ok((plain, Some(room)))
}

/// The compression of an answer that is marked as compressed.
fn coding(headers: &HeaderMap) -> Result<Coding, String> {
    let name = headers
        .get(GRPC_ENCODING)
        .ok_or("it is compressed, without a `grpc-encoding`")?;
    let known = name.to_str().ok().and_then(Coding::named);
    known.ok_or_else(|| format!("its `grpc-encoding` is {name:?}, which is not supported"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A message is its prefix and its parts, however it is read.
        #[test]
        fn a_message_is_its_parts(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            steps in prop::collection::vec(1_usize..12, 1..100),
        ) {
            let whole = parts.concat();
            let mut message = Message::new(true, parts.into_iter().map(Bytes::from)).unwrap();
            let mut expected = vec![1];
            expected.extend((whole.len() as u32).to_be_bytes());
            expected.extend(&whole);
            let mut steps = steps.into_iter().cycle();
            let mut read = Vec::<u8>::new();
            while message.has_remaining() {
                prop_assert_eq!(message.remaining(), expected.len() - read.len());
                let mut slices = [IoSlice::new(&[]); 8];
                let filled = message.chunks_vectored(&mut slices);
                let seen = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>();
                prop_assert!(expected[read.len()..].starts_with(&seen) && !seen.is_empty());
                prop_assert!(seen.starts_with(message.chunk()) && !message.chunk().is_empty());
                let step = steps.next().unwrap_or(1).min(seen.len());
                read.extend(&seen[..step]);
                message.advance(step);
            }
            prop_assert_eq!(read, expected);
        }
    }

    #[tokio::test]
    async fn a_message_unpacks_to_1_mib_at_most_and_reserves_memory() {
        let shared = Shared::default();
        let packed = |bytes: usize| Bytes::from(crate::net::compress(Coding::Gzip, &vec![0; bytes]).unwrap());
        let (small, room) = unpack(Coding::Gzip, packed(9), &shared).await.unwrap();
        assert_eq!((small.len(), room.is_some()), (9, false));
        let (large, room) = unpack(Coding::Gzip, packed(100_000), &shared).await.unwrap();
        assert_eq!((large.len(), room.is_some()), (100_000, true));
        assert!(shared.memory.reserved_bytes() >= large.len());
        drop(room);
        let bomb = packed(4 << 20);
        let error = unpack(Coding::Gzip, bomb, &shared).await.unwrap_err();
        assert_eq!(error, "the decompressed body is larger than 1048577 bytes");
        assert_eq!(shared.memory.reserved_bytes(), 0);
    }

    #[test]
    fn what_stands_between_us_and_the_server_is_understood() {
        let of = |status: u16| {
            let head = Response::builder().status(status).body(()).unwrap();
            super::status(&head, None).map(|status| status.code())
        };
        assert_eq!(
            [200, 404, 503, 418].map(of),
            [
                None,
                Some(Code::Unimplemented),
                Some(Code::Unavailable),
                Some(Code::Unknown)
            ]
        );
    }
}
