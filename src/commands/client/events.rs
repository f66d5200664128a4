// SPDX-License-Identifier: Apache-2.0

//! Server-sent events of the gateway.

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::commands::Failure;

/// The most bytes of an event. An item of a tap is at most as long as the JSON of a request of 64 MiB.
const MAX_EVENT: usize = 256 << 20;

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) struct StreamEvent {
    pub(in crate::commands) name: String,
    pub(in crate::commands) data: String,
}

impl StreamEvent {
    /// `None`: the text is only a sign that the gateway is alive.
    fn read(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let (name, data) = (field("event: ")?, field("data: ")?);
        Some(Self {
            name: name.to_owned(),
            data: data.to_owned(),
        })
    }
}

/// A stream of events, which does not end by itself.
pub(in crate::commands) struct EventStream {
    body: Incoming,
    received: EventBuffer,
}

impl EventStream {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            received: EventBuffer::default(),
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// The stream has ended, or an event is too long.
    pub(in crate::commands) async fn next_event(&mut self) -> Result<StreamEvent, Failure> {
        loop {
            while let Some(text) = self.received.take_first() {
                if let Some(event) = StreamEvent::read(&text) {
                    return Ok(event);
                }
            }
            if self.received.bytes.len() > MAX_EVENT {
                return Err(Failure::Message("an event is too long".to_owned()));
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Failure::Message("the gateway ended the stream".to_owned()));
            };
            let frame =
                frame.map_err(|error| Failure::Message(format!("the stream ended early: {error}")))?;
            if let Some(data) = frame.data_ref() {
                self.received.bytes.extend_from_slice(data);
            }
        }
    }
}

/// The bytes that are not read yet.
#[derive(Default)]
struct EventBuffer {
    bytes: BytesMut,
    /// The number of bytes from the start in which no event ends.
    searched: usize,
}

impl EventBuffer {
    /// Takes the text of the first event out, if it is complete.
    fn take_first(&mut self) -> Option<BytesMut> {
        let found = self.bytes[self.searched..]
            .windows(2)
            .position(|two| two == b"\n\n");
        let Some(found) = found else {
            // The end may be half here.
            self.searched = self.bytes.len().saturating_sub(1);
            return None;
        };
        let end = self.searched + found + 2;
        self.searched = 0;
        Some(self.bytes.split_to(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_whole_however_they_are_cut() {
        let (mut buffer, mut texts) = (EventBuffer::default(), Vec::new());
        for byte in b"event: a\ndata: 1\n\n: alive\n\nrest" {
            buffer.bytes.extend_from_slice(&[*byte]);
            texts.extend(buffer.take_first().map(|text| text.to_vec()));
        }
        assert_eq!(
            texts,
            [b"event: a\ndata: 1\n\n".to_vec(), b": alive\n\n".to_vec()]
        );
        assert_eq!(&buffer.bytes[..], b"rest");
        let event = StreamEvent {
            name: "a".to_owned(),
            data: "1".to_owned(),
        };
        let read: Vec<_> = texts.iter().map(|text| StreamEvent::read(text)).collect();
        assert_eq!(read, [Some(event), None]);
    }

    #[test]
    fn events_that_come_together_are_taken_one_by_one() {
        let mut buffer = EventBuffer::default();
        buffer.bytes.extend_from_slice(b"a\n\nb\n\n");
        let mut first = || buffer.take_first().map(|text| text.to_vec());
        assert_eq!(first().as_deref(), Some(&b"a\n\n"[..]));
        assert_eq!(first().as_deref(), Some(&b"b\n\n"[..]));
        assert_eq!(first(), None);
    }
}
