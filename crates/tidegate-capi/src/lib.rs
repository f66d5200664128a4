// SPDX-License-Identifier: Apache-2.0

//! The C face of the metrics SDK and of ring reading: `include/tidegate.h`, made from this source, and
//! `include/tidegate.hpp` on top of it. `docs/c.md` is the guide.
//!
//! - A function answers a [`tg_status`]; why it failed is a text of the thread ([`tg_error_text`]). Nothing unwinds
//!   out of one (`status::guard`): the program never sees more of a fault of ours than a code.
//! - A handle is an `Arc` as a pointer. It owns what it needs: an instrument works when its registry is gone.
//! - Structs that programs fill in begin with their size and grow at their end (`arguments::Growing`); what is handed
//!   out for reading is laid out once, in an arena of its handle (`answers::Arena`).
//!
//! The contract of the header, on which every `unsafe` here rests: a pointer is NULL or leads to what its type and its
//! count say, as long as the call takes; a handle that is passed has an owner until the call returns.

#![deny(missing_docs)]
#![deny(unsafe_code)]
// The names are those that C sees: one name for one thing. The duties of callers are above, once for all functions.
#![allow(clippy::missing_safety_doc, non_camel_case_types)]

mod answers;
mod any;
mod arguments;
mod composite;
mod family;
mod gather;
mod instrument;
mod local;
mod otel;
mod registry;
mod registry_names;
mod ring;
mod ring_calls;
mod server;
mod set;
mod spans;
mod status;
mod trace;
mod watch;

pub use any::*;
pub use arguments::tg_label;
pub use composite::*;
pub use family::*;
pub use gather::*;
pub use instrument::*;
pub use otel::*;
pub use registry::*;
pub use registry_names::*;
pub use ring::*;
pub use ring_calls::*;
pub use server::*;
pub use set::*;
pub use spans::*;
pub use status::*;
pub use trace::*;
pub use watch::*;
