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
    pub struct Config {
        /// A stream socket for `tidegate.v1.EventBatch` messages.
        pub stream: Option<StreamConfig> = None,
        /// A datagram socket for StatsD and DogStatsD lines.
        pub datagram: Option<DatagramConfig> = None,
        /// A datagram sender that is silent for so long counts as gone. (A connection that is open counts as alive.)
        pub source_timeout: Duration = Duration::from_secs(300),
    }
    check = Config::check
}

crate::options! {
    /// The stream socket.
    pub struct StreamConfig {
        /// Where the socket appears.
        pub path: PathBuf = required,
        /// Permission bits of the socket file. Connecting needs the write bit.
        pub mode: FileMode = SocketFileConfig::default().mode,
        /// Owner of the socket file as `user`, `user:group` or `:group`, by name or number.
        pub owner: Option<Owner> = None,
        /// Only processes of these users may connect, whatever the mode says; empty: of any.
        pub allowed_uids: Vec<u32> = Vec::new(),
        /// Only processes of these groups may connect, or of an allowed user; empty: of any.
        pub allowed_gids: Vec<u32> = Vec::new(),
        /// Largest message. A sender of a larger one is disconnected.
        pub max_frame_size: ByteSize = ByteSize::mib(4),
        /// Connections at a time; further ones wait. Meanwhile a connection that has been silent for 60 s makes room for them,
        /// or for 2 s if it has declared no kind. One that declares no kind for 60 s is closed in any case.
        pub max_connections: NonZeroUsize = MAX_CONNECTIONS,
        /// Kinds that a connection may declare.
        pub max_kinds: NonZeroU16 = MAX_KINDS,
        /// Put `process.pid` and `process.user.id` of the peer, as the kernel vouches for them, on the resource.
        pub peer_credentials: bool = false,
    }
}

crate::options! {
    /// The datagram socket.
    pub struct DatagramConfig {
        /// Where the socket appears.
        pub path: PathBuf = required,
        /// Permission bits of the socket file. Sending needs the write bit.
        pub mode: FileMode = SocketFileConfig::default().mode,
        /// Owner of the socket file as `user`, `user:group` or `:group`, by name or number.
        pub owner: Option<Owner> = None,
        /// Only datagrams of these users are taken, whatever the mode says; empty: of any.
        pub allowed_uids: Vec<u32> = Vec::new(),
        /// Only datagrams of these groups are taken, or of an allowed user; empty: of any.
        pub allowed_gids: Vec<u32> = Vec::new(),
        /// Largest datagram. What a larger one has beyond that is lost, and counted.
        pub max_datagram_size: ByteSize = MAX_DATAGRAM,
        /// Combinations of name, type and tags; points of further ones are refused, and counted.
        pub max_kinds: NonZeroU16 = MAX_KINDS,
        /// Counters never fall. `false` takes negative counts as well, which makes up-down counters of all counters.
        pub is_monotonic_counter: bool = true,
        /// Tell senders apart by process, and put `process.pid` and `process.user.id` on the resource.
        pub peer_credentials: bool = false,
    }
}

impl Config {
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
    /// Whether the kernel is asked who sends.
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
