// SPDX-License-Identifier: Apache-2.0

//! The messages of `proto/tidegate/v1/replica.proto`, written by hand so that the build needs no protobuf compiler. A test
//! compares them with the file.

use bytes::Bytes;
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) instance: u64,
    #[prost(bool, tag = "3")]
    pub(crate) is_synced: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MessageCopy {
    #[prost(string, tag = "1")]
    pub(crate) subject: String,
    #[prost(string, tag = "2")]
    pub(crate) headers: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) body: Bytes,
    #[prost(uint64, tag = "4")]
    pub(crate) age_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) lease_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PublishOutcome {
    #[prost(enumeration = "PublishCode", tag = "1")]
    pub(crate) code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum PublishCode {
    Unspecified = 0,
    Stored = 1,
    TooLarge = 2,
    NoRoom = 3,
    Invalid = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecideRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) record: Option<MessageCopy>,
    #[prost(uint64, tag = "2")]
    pub(crate) expected: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) term_ns: u64,
    #[prost(bool, tag = "4")]
    pub(crate) is_forwarded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecideOutcome {
    #[prost(bool, tag = "1")]
    pub(crate) is_accepted: bool,
    #[prost(message, optional, tag = "2")]
    pub(crate) current: Option<MessageCopy>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MessageHead {
    #[prost(string, tag = "1")]
    pub(crate) subject: String,
    #[prost(uint64, tag = "2")]
    pub(crate) order: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ListRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) after: u64,
}

#[cfg(test)]
#[path = "../../../src/protofile.rs"]
mod protofile;

#[cfg(test)]
mod tests {
    use super::protofile;

    #[test]
    fn the_messages_are_those_of_the_proto_file() {
        let proto = include_str!("../../../proto/tidegate/v1/replica.proto");
        assert_eq!(protofile::compare(&[proto], include_str!("wire.rs")), 25);
    }
}
