// SPDX-License-Identifier: Apache-2.0

//! OTLP requests as bytes: checked, counted, walked and edited without trees of messages.
//!
//! [`Encoded`] is a request of one signal on the wire. [`wire::check()`] says whether bytes are one, and counts its items.
//! [`wire::walk`] visits resources, scopes, metrics and items; [`wire::edit`] notes what a visitor changes, and copies the
//! rest. [`wire::points`] reads metric points by the key of the bytes that identify them. [`wire::partition_ids`] hashes their
//! identities as every process does. [`json`] transcodes OTLP/JSON. The same tables of OTLP's messages serve all of them.
//!
//! [`convert`] is the one place where requests become points of the engine, and where points and events become requests.
//!
//! The crate does no I/O. It knows no batch and no component.

#![forbid(unsafe_code)]

pub mod convert;
mod encoded;
mod encoding;
pub mod json;
mod schema;
mod stream;
pub mod wire;

pub use encoded::{Encoded, Part};
pub use encoding::TelemetryEncoding;
pub use stream::stream_id;
pub use tidegate_config::Signal;
