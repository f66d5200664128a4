//! The data model that the other crates share: [numbers as varints](mod@varint).
//!
//! No I/O, nothing of the gateway.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod varint;
