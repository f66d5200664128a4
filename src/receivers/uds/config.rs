// SPDX-License-Identifier: Apache-2.0

//! Options of the `uds` receiver.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{ByteSize, Node, Problems};
use crate::net::{FileMode, Owner, SocketFileConfig};

/// A few thousand kinds are a large application; more are usually a tag that never repeats.
const MAX_KINDS: NonZeroU16 = NonZeroU16::new(4096).expect("not zero");
/// One descriptor each, of the 1,024 that processes usually may have.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(512).expect("not zero");
/// The largest datagram that clients of DogStatsD send is 8 KiB; the kernel's default allows some 200 KiB.
const MAX_DATAGRAM: ByteSize = ByteSize::kib(64);

crate::options! {
    /// Options of the `uds` receiver.
    pub struct UdsConfig {
        /// Stream socket for `tidegate.v1.EventBatch` messages.
        pub stream: Option<StreamConfig> = None,
        /// Datagram socket for StatsD and DogStatsD lines.
        pub datagram: Option<DatagramConfig> = None,
        /// Time after which a silent datagram sender counts as gone. An open connection always counts as alive.
        pub source_timeout: Duration = Duration::from_secs(300),
    }
    check = UdsConfig::check
}

crate::options! {
    /// The stream socket.
    pub struct StreamConfig {
        /// Path of the socket.
        pub path: PathBuf = required,
        /// Permission bits of the socket file. Clients need the write bit to connect.
        pub mode: FileMode = SocketFileConfig::default().mode,
        /// Owner of the socket file: `user`, `user:group` or `:group`, by name or number. Unset: the user that
        /// runs the gateway.
        pub owner: Option<Owner> = None,
        /// Users whose processes may connect, whatever the mode permits. Empty: all users.
        pub allowed_uids: Vec<u32> = Vec::new(),
        /// Groups whose processes may connect, besides those of allowed users. Empty: all groups.
        pub allowed_gids: Vec<u32> = Vec::new(),
        /// Largest message. The receiver disconnects the sender of a larger one.
        pub max_frame_size: ByteSize = ByteSize::mib(4),
        /// Most concurrent connections. Further ones wait. Meanwhile the receiver closes a connection that is
        /// silent for 60 s, or for 2 s if it has declared no kind. It always closes one that declares no kind for
        /// 60 s.
        pub max_connections: NonZeroUsize = MAX_CONNECTIONS,
        /// Most kinds that a connection may declare.
        pub max_kinds: NonZeroU16 = MAX_KINDS,
        /// Whether the resource gets `process.pid` and `process.user.id` of the peer. The kernel supplies both.
        pub peer_credentials: bool = false,
    }
}

crate::options! {
    /// The datagram socket.
    pub struct DatagramConfig {
        /// Path of the socket.
        pub path: PathBuf = required,
        /// Permission bits of the socket file. Clients need the write bit to send.
        pub mode: FileMode = SocketFileConfig::default().mode,
        /// Owner of the socket file: `user`, `user:group` or `:group`, by name or number. Unset: the user that
        /// runs the gateway.
        pub owner: Option<Owner> = None,
        /// Users whose datagrams the receiver takes, whatever the mode permits. Empty: all users.
        pub allowed_uids: Vec<u32> = Vec::new(),
        /// Groups whose datagrams the receiver takes, besides those of allowed users. Empty: all groups.
        pub allowed_gids: Vec<u32> = Vec::new(),
        /// Largest datagram. The receiver loses the rest of a larger one and counts it.
        pub max_datagram_size: ByteSize = MAX_DATAGRAM,
        /// Most combinations of name, type and tags. The receiver refuses and counts points of further ones.
        pub max_kinds: NonZeroU16 = MAX_KINDS,
        /// Whether counters never fall. With `false`, negative counts are accepted and all counters are up-down
        /// counters.
        pub is_monotonic_counter: bool = true,
        /// Whether processes are separate senders. The resource then gets `process.pid` and `process.user.id`.
        pub peer_credentials: bool = false,
    }
}

impl UdsConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.stream.is_none() && self.datagram.is_none() {
            cx.at(at)
                .help("for example `stream: {path: /run/tidegate/events.sock}`")
                .error("must specify `stream`, `datagram` or both");
        }
        if self.source_timeout.is_zero() {
            cx.at(at.child("source_timeout"))
                .error("must be greater than zero");
        }
    }
}

impl StreamConfig {
    pub(super) fn file(&self) -> SocketFileConfig {
        SocketFileConfig {
            mode: self.mode,
            owner: self.owner.clone(),
            allowed_uids: self.allowed_uids.clone(),
            allowed_gids: self.allowed_gids.clone(),
        }
    }
}

impl DatagramConfig {
    /// Whether the kernel must identify senders.
    pub(super) fn wants_credentials(&self) -> bool {
        self.peer_credentials || !self.allowed_uids.is_empty() || !self.allowed_gids.is_empty()
    }

    pub(super) fn file(&self) -> SocketFileConfig {
        SocketFileConfig {
            mode: self.mode,
            owner: self.owner.clone(),
            allowed_uids: self.allowed_uids.clone(),
            allowed_gids: self.allowed_gids.clone(),
        }
    }
}
