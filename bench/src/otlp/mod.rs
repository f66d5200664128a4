// SPDX-License-Identifier: Apache-2.0

//! OTLP over gRPC and HTTP at both ends of a gateway, cheap enough that what is measured is the gateway: requests are
//! made once and sent as bytes, and of what arrives the points are counted by their tags.

pub(crate) mod client;
pub(crate) mod codec;
pub(crate) mod drive;
pub(crate) mod load;
mod packed;
pub(crate) mod request;
mod sink;
mod timer;
pub(crate) mod walk;

pub(crate) use client::Protocol;
pub(crate) use drive::{Driver, Plan};
pub(crate) use load::Load;
pub(crate) use packed::Compression;
pub(crate) use sink::OtlpSink;

/// Where HTTP takes metrics.
pub(crate) const PATH: &str = "/v1/metrics";

/// The default size of HTTP/2 frames to ask for, in bytes; the protocol's own default is 16 KiB.
pub(crate) const FRAME: u32 = 1 << 20;

/// Window of a stream and of a connection: wide enough that no sender waits for them.
pub(crate) const WINDOWS: (u32, u32) = (16 << 20, 64 << 20);
