//! The data model that the other crates share: [kinds](mod@kind) of metrics and [numbers as varints](mod@varint).
//!
//! No I/O, nothing of the gateway.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod kind;
pub mod varint;
