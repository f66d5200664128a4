//! A unary gRPC call: a request as the bytes that it is, and what its answer means.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, Request, Response, StatusCode};
use prost::Message as _;
use smallvec::SmallVec;
use tonic::{Code, Status};

use super::line::Sender;
use crate::delivery::Outcome;
use crate::delivery::answer::{ExportResponse, MAX_ANSWER_BYTES, of_status};
use crate::net::grpc::Prefix;

/// A message with its prefix, as the runs of bytes that it came in: nothing is copied to make it.
#[derive(Debug)]
pub(super) struct Message {
    runs: SmallVec<[Bytes; 4]>,
    /// Those before are used up.
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

/// Sends a request and reads what it is answered. An error: there was no whole answer, and why.
pub(super) async fn unary(
    sender: &mut Sender,
    request: Request<()>,
    message: Message,
) -> Result<Outcome, h2::Error> {
    let (response, mut body) = sender.send_request(request, false)?;
    // What does not fit the peer's window waits in the library: it is bytes that we hold anyway.
    body.send_data(message, true)?;
    let (head, mut body) = response.await?.into_parts();
    let head = Response::from_parts(head, ());
    if let Some(status) = Status::from_header_map(head.headers()).filter(|status| status.code() != Code::Ok) {
        return Ok(of_status(&status));
    }
    let Some(answer) = read(&mut body).await? else {
        return Ok(Outcome::permanent("the answer is too large"));
    };
    let trailers = body.trailers().await?;
    Ok(match status(&head, trailers.as_ref()) {
        Some(status) if status.code() != Code::Ok => of_status(&status),
        // A server that says nothing of how it went, and has not answered, may have failed half way.
        None if answer.is_empty() => Outcome::retry("the answer broke off"),
        _ => meaning(&answer),
    })
}

/// The bytes of an answer, unless they are too many.
async fn read(body: &mut RecvStream) -> Result<Option<BytesMut>, h2::Error> {
    let mut answer = BytesMut::new();
    while let Some(chunk) = body.data().await.transpose()? {
        if answer.len() + chunk.len() > Prefix::BYTES + MAX_ANSWER_BYTES {
            return Ok(None);
        }
        body.flow_control().release_capacity(chunk.len())?;
        answer.extend_from_slice(&chunk);
    }
    Ok(Some(answer))
}

/// How the server says it went.
fn status(head: &Response<()>, trailers: Option<&HeaderMap>) -> Option<Status> {
    let said = trailers.into_iter().chain([head.headers()]);
    said.filter_map(Status::from_header_map)
        .next()
        .or_else(|| status_of_http(head.status()))
}

/// What an HTTP status means where something between us and the server answers
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

/// What a successful answer says. One that can't be read comes from a server that took the request.
fn meaning(answer: &[u8]) -> Outcome {
    match answer.split_at_checked(Prefix::BYTES) {
        None => Outcome::Done,
        Some(([0, ..], message)) => match ExportResponse::decode(message) {
            Ok(answer) => answer.outcome(),
            Err(error) => Outcome::permanent(format!("unreadable answer: {error}")),
        },
        Some(_) => Outcome::permanent("unreadable answer: it is compressed, which was not asked for"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However it is read, a message is its prefix and its parts.
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

    #[test]
    fn an_answer_that_cannot_be_read_is_from_a_server_that_took_the_request() {
        assert_eq!(meaning(b""), Outcome::Done);
        assert_eq!(meaning(&[0; 5]), Outcome::Done);
        for unreadable in [&[1, 0, 0, 0, 0][..], &[0, 0, 0, 0, 1, 0xff]] {
            assert!(
                matches!(meaning(unreadable), Outcome::Permanent { .. }),
                "{unreadable:?}"
            );
        }
    }
}
