// SPDX-License-Identifier: Apache-2.0

//! The base of all parts of the gateway: the memory account, threads and slots for long work, and the clock. Helpers
//! open files that others may replace, and limit the rate of repeated log lines.
//!
//! Nothing here depends on a component, a batch or a network.

pub mod account;
mod clock;
mod every;
pub mod files;
#[cfg(feature = "testing")]
pub mod testing;
pub mod worker;

pub use account::{Account, Ceiling, Held, Limit, NoRoom};
pub use clock::{unix_now, wall_now};
pub use every::Every;

/// The `User-Agent` that this gateway sends to servers.
pub const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
