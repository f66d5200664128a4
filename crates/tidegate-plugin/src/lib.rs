// SPDX-License-Identifier: Apache-2.0

//! Exporter plugins of tidegate: a versioned C ABI, a helper to write plugins in Rust, and the host that loads them.
//!
//! - `include/tidegate_plugin.h` is the contract, [`abi`] the same in Rust.
//! - [`Exporter`] and [`exporter_plugin!`] make a plugin of a Rust type. No dependency comes with them.
//! - [`host`] (feature `host`) finds, checks, loads and calls plugins, in the process or in one of their own.
//!
//! ```
//! use tidegate_plugin::{Answer, Batch, Exporter, Setup, Takes};
//!
//! struct Counting(u64);
//!
//! impl Exporter for Counting {
//!     const NAME: &std::ffi::CStr = c"counting";
//!     const VERSION: &std::ffi::CStr = c"1.0.0";
//!     const TAKES: Takes = Takes::METRICS.and(Takes::EVENTS);
//!
//!     fn create(_: &Setup<'_>) -> Result<Self, String> {
//!         Ok(Self(0))
//!     }
//!
//!     fn export(&mut self, batch: &Batch<'_>) -> Answer {
//!         self.0 += batch.items();
//!         Answer::Ok
//!     }
//! }
//!
//! tidegate_plugin::exporter_plugin!(Counting);
//! # fn main() {}
//! ```
//!
//! `unsafe` is in [`plugin`] (what a plugin gets is read through pointers), in `host::library` (loading) and in
//! `host::instance` (calling); nowhere else.
#![deny(missing_docs, unsafe_code)]

#[allow(unsafe_code)]
pub mod abi;
#[cfg(feature = "host")]
pub mod host;
pub mod plugin;
mod response;

pub use plugin::{Batch, Event, EventKind, EventValue, Events, Exporter, Instrument, Setup, Signal, Takes};
pub use response::Answer;

/// The examples of the guide are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plugins.md")]
pub struct Guide;
