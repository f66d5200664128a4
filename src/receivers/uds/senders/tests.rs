// SPDX-License-Identifier: Apache-2.0

//! Senders of a gateway whose reloads fail.

use super::*;
use crate::batch::Signal;
use crate::component::Context;
use crate::component::testing::{Sink, settings};
use crate::receivers::left::succeed;
use crate::receivers::uds::config::UdsConfig;

const LINE: &[u8] = b"depth:5|g";

/// As many processes as there may be senders.
const MOST: i32 = MAX_SENDERS as i32;

/// A gateway that builds one receiver after the other.
struct Reloads {
    base: Context,
    sink: Arc<EventSink>,
}

impl Reloads {
    fn new() -> Self {
        let cx = Sink::new().receiver_context("uds");
        let entry = cx.entry(Signal::Metrics).unwrap().clone();
        let sink = EventSink::new(&cx.base, entry, Duration::from_secs(300));
        Self {
            base: cx.base,
            sink: Arc::new(sink),
        }
    }

    /// The senders of a receiver with these options, and where they stay after its end.
    fn start(&self, options: &str) -> (Senders, Arc<Left<LeftSenders>>) {
        let yaml = format!("datagram: {{path: d.sock, peer_credentials: true, {options}}}");
        let config = settings::<UdsConfig>(&yaml).get::<UdsConfig>();
        let left: Arc<Left<LeftSenders>> = Arc::default();
        let before = succeed(&self.base, &left);
        let datagram = config.datagram.as_ref().unwrap();
        let senders = Senders::new(datagram, self.sink.clone(), &before, left.clone());
        (senders, left)
    }
}

/// Takes a line of each of these processes of a user, and gives their sources.
fn take(
    senders: &mut Senders,
    uid: u32,
    pids: impl IntoIterator<Item = i32>,
    now: UnixNanos,
) -> Vec<Arc<Source>> {
    for pid in pids {
        let process = Credentials {
            pid: Some(pid),
            uid,
            gid: 0,
        };
        let received = Received {
            bytes: LINE.len(),
            truncated: false,
            sender: Some(process),
        };
        senders.take(LINE, &received, now);
    }
    let events = senders.take_pending();
    events.iter().map(|events| events.source.clone()).collect()
}

fn is_ended(source: &Arc<Source>) -> bool {
    source.lease.is_ended()
}

#[test]
fn senders_left_by_failed_reloads_stay_within_their_limit() {
    let gateway = Reloads::new();
    let memory = gateway.base.shared.memory.clone();
    let mut now = unix_now();
    let (mut senders, mut left) = gateway.start("");
    let mut sources = take(&mut senders, 0, 0..MOST, now);
    for user in 1..=3 {
        drop(senders);
        // It may take none of the others, and has as many of its own.
        let (mut own, failed) = gateway.start(&format!("allowed_uids: [{user}]"));
        assert!(own.senders.is_empty());
        let older = sources.len();
        now += SECOND_NS;
        sources.extend(take(&mut own, user, 0..MOST, now));
        drop(own);
        // The old plan returns.
        let (restored, restored_left) = gateway.start("");
        drop((left, failed));
        assert_eq!(restored.senders.len(), MAX_SENDERS);
        (senders, left) = (restored, restored_left);
        now += SECOND_NS;
        let newest = take(&mut senders, user, [MOST], now);
        assert_eq!(newest.len(), 1);
        sources.extend(newest);
        assert_eq!(senders.senders.len(), MAX_SENDERS);
        assert!(
            sources[..older].iter().all(is_ended),
            "they are silent for longer"
        );
        let going_on = sources.iter().filter(|source| !is_ended(source));
        assert_eq!(going_on.count(), MAX_SENDERS);
        assert_eq!(memory.reserved_bytes(), senders.kinds_bytes);
    }
    assert!(memory.reserved_bytes() > 0);
    drop((senders, left));
    assert!(sources.iter().all(is_ended));
    assert_eq!(memory.reserved_bytes(), 0);
}
