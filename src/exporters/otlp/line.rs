//! The connection to a gRPC peer, dialled anew when nothing comes back on it.
//!
//! All requests share one HTTP/2 connection. When its other end is gone without a word (a lost node, a firewall that
//! forgot it), requests time out on it until the kernel gives up, which takes many minutes. Pings would tell, but
//! servers close connections of clients that ping as often as would help.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::client::Grpc;
use tonic::transport::Channel;

/// After so many requests in a row without an answer another connection is tried.
const MAX_UNANSWERED: u32 = 2;

/// The connection, and how it is made.
pub(super) struct Line {
    dial: Box<dyn Fn() -> Grpc<Channel> + Send + Sync>,
    current: Arc<Mutex<Current>>,
}

struct Current {
    grpc: Option<Grpc<Channel>>,
    number: u64,
    unanswered: u32,
}

/// A request on the line; when it ends without an answer that is noted.
pub(super) struct Call {
    current: Arc<Mutex<Current>>,
    number: u64,
    is_answered: bool,
}

impl Line {
    /// Connects when it is used.
    pub(super) fn new(dial: Box<dyn Fn() -> Grpc<Channel> + Send + Sync>) -> Self {
        let current = Current {
            grpc: None,
            number: 0,
            unanswered: 0,
        };
        Self {
            dial,
            current: Arc::new(Mutex::new(current)),
        }
    }

    /// A client on the connection, and the call to be made with it.
    pub(super) fn call(&self) -> (Grpc<Channel>, Call) {
        let mut current = lock(&self.current);
        let number = current.number;
        let grpc = current.grpc.get_or_insert_with(|| (self.dial)()).clone();
        let call = Call {
            current: self.current.clone(),
            number,
            is_answered: false,
        };
        (grpc, call)
    }
}

impl Call {
    /// The other end is there.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut current = lock(&self.current);
        if current.number != self.number {
            return;
        }
        current.unanswered = if self.is_answered {
            0
        } else {
            current.unanswered + 1
        };
        if current.unanswered >= MAX_UNANSWERED {
            // Requests under way keep theirs until they end.
            (current.grpc, current.unanswered) = (None, 0);
            current.number += 1;
        }
    }
}

fn lock(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}
