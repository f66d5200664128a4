// SPDX-License-Identifier: Apache-2.0

//! The parsers of both sockets, for fuzz targets only.

use std::time::Duration;

use prost::Message;

use super::session::Session;
use super::{proto, statsd};

/// Parses a datagram of lines completely.
pub fn statsd(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        if let Ok(line) = statsd::parse(line) {
            let _ = line.values().count() + line.tags().count();
        }
    }
}

/// Parses the batches of one connection, each with a length prefix of one byte.
pub fn events(mut data: &[u8]) {
    let mut session = Session::new(None, 64, Duration::from_secs(1));
    while let Some((length, rest)) = data.split_first() {
        let (message, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        data = rest;
        let Ok(batch) = proto::EventBatch::decode(message) else {
            return;
        };
        match session.take(batch, 1) {
            Ok(taken) => {
                let events = taken.events;
                assert_eq!(events.kinds.len(), events.values.len());
                let known = events.schema.kinds.len();
                assert!(events.kinds.iter().all(|kind| usize::from(*kind) < known));
            }
            Err(error) if error.is_fatal() => return,
            Err(_) => {}
        }
    }
}
