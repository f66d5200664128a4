// SPDX-License-Identifier: Apache-2.0

//! Removes messages that no NATS client of this kind can read.
//!
//! The server stores any bytes as headers and as a subject. The client ends its connection when it reads such a message, and
//! each new connection reads it again. So one message would keep all replicas from reading. After several reads that ended
//! with their connections, this looks at the next messages as JSON, and removes those whose headers or subject are not valid.
//!
//! A read asks for the next batch when it has given the last one. So the message that ends it is one of the batch behind the
//! last message that it has given. Reads of both scopes share a connection, and each of them may have ended it. A network that
//! fails again and again looks the same, so this never looks at the whole stream.

use async_nats::jetstream::response::Response;
use async_nats::jetstream::{Context, ErrorCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use tidegate_cluster::ReadScope;

use super::{MAX_BATCH, subject_filter};
use crate::link::NatsLink;
use crate::shared::NatsShared;
use crate::stream::stream_name;

/// So many readable messages in a row end the search: a read has asked for no more behind the last message that it has given.
/// Behind an unreadable one, the count begins again, because its writer may have written more of them.
const MAX_READABLE: usize = MAX_BATCH;

/// The first line of a block of headers.
const VERSION: &str = "NATS/1.0";

/// The server's answer in JSON has this character for bytes of a subject that are not UTF-8.
const NOT_UTF8: char = '\u{fffd}';

#[derive(Deserialize)]
struct RawAnswer {
    message: RawMessage,
}

/// A message of the stream. Its payload is not needed.
#[derive(Deserialize)]
struct RawMessage {
    subject: String,
    seq: u64,
    /// The block of headers, in Base64.
    #[serde(default)]
    hdrs: String,
}

/// Removes unreadable messages if too many reads have failed. Each one is counted and logged.
pub(super) async fn repair(link: &NatsLink, shared: &NatsShared) {
    for (scope, given) in shared.reads.take_failed() {
        let repaired = remove_unreadable(link, shared, scope, given).await;
        // The next reads show whether anything is left.
        repaired.unwrap_or_else(|error| shared.note_error(error));
    }
}

/// Removes the unreadable messages of a scope right behind the last message that its reads have given.
///
/// # Errors
/// The server does not answer, or the user may not read or remove messages.
async fn remove_unreadable(
    link: &NatsLink,
    shared: &NatsShared,
    scope: ReadScope,
    given: u64,
) -> Result<(), String> {
    let stream = stream_name(&shared.config, &shared.cluster);
    let filter = subject_filter(&shared.cluster, scope);
    let info = link.stream.get_info().await;
    // Producers write faster than one message is read after the other: later messages wait for the next look.
    let last = info.map_err(|error| error.to_string())?.state.last_sequence;
    let (mut next, mut readable, mut result) = (given.saturating_add(1), 0, Ok(()));
    while readable < MAX_READABLE
        && let Some(message) = message_from(&link.context, &stream, &filter, next).await?
    {
        if message.seq > last {
            break;
        }
        next = message.seq + 1;
        if is_readable(&message) {
            readable += 1;
            continue;
        }
        readable = 0;
        match link.stream.delete_message(message.seq).await {
            Ok(_) => shared.note_removed(&message.subject, message.seq),
            // Another replica may have removed it.
            Err(error) => {
                result = Err(format!(
                    "can't remove the message {} of {stream}: {error}",
                    message.seq
                ));
            }
        }
    }
    result
}

/// The first message with this sequence or a higher one; `None`: there is none.
async fn message_from(
    context: &Context,
    stream: &str,
    filter: &str,
    sequence: u64,
) -> Result<Option<RawMessage>, String> {
    let request = json!({"seq": sequence, "next_by_subj": filter});
    let describe = |error: &dyn std::fmt::Display| format!("can't look for unreadable messages: {error}");
    let answer = context
        .request(format!("STREAM.MSG.GET.{stream}"), &request)
        .await;
    match answer.map_err(|error| describe(&error))? {
        Response::Ok(RawAnswer { message }) => Ok(Some(message)),
        Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Response::Err { error } => Err(describe(&error)),
    }
}

/// Whether a client can read the subject and the headers. All that gateways write is readable.
fn is_readable(message: &RawMessage) -> bool {
    let is_subject = !message
        .subject
        .contains(|c: char| c == NOT_UTF8 || c.is_whitespace());
    is_subject && (message.hdrs.is_empty() || is_header_block(&message.hdrs))
}

fn is_header_block(base64: &str) -> bool {
    let Ok(bytes) = STANDARD.decode(base64) else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return false;
    };
    let mut lines = text.lines();
    let is_version = lines.next().is_some_and(|line| line.trim_end() == VERSION);
    is_version && lines.filter(|line| !line.is_empty()).all(is_header)
}

fn is_header(line: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_value = |value: &str| !value.contains(|c: char| c.is_control() && c != '\t');
    line.split_once(':')
        .is_some_and(|(name, value)| is_name(name) && is_value(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(subject: &str, headers: &[u8]) -> RawMessage {
        RawMessage {
            subject: subject.to_owned(),
            seq: 1,
            hdrs: STANDARD.encode(headers),
        }
    }

    #[test]
    fn headers_that_end_the_connection_of_a_client_are_not_readable() {
        for headers in [
            &b"NATS/1.0\r\ntg-v: \xff\xfe\r\n\r\n"[..],
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\ntg v\x01: 1\r\n\r\n",
            b"NATS/1.0\r\n: x\r\n\r\n",
            b"NATS/1.0\r\ntg-v: a\rb\r\n\r\n",
            b"garbage\r\n\r\n",
            b"\r\n",
        ] {
            assert!(!is_readable(&message("tg.c.p", headers)), "{headers:?}");
        }
        for subject in ["tg.c.\u{fffd}", "tg.c.\u{a0}x"] {
            assert!(!is_readable(&message(subject, b"")), "{subject}");
        }
    }

    #[test]
    fn headers_of_gateways_and_messages_without_headers_are_readable() {
        let ours = b"NATS/1.0\r\ntg-v: 1\r\ntg-kind: page\r\nContent-Encoding: zstd\r\n\r\n";
        for headers in [&ours[..], b"NATS/1.0\r\n\r\n", b""] {
            assert!(
                is_readable(&message("tg.c.p.00.n%2E.1.1", headers)),
                "{headers:?}"
            );
        }
    }
}
