//! What all parts of the gateway need to run: the account of memory, threads and places for long work, the clock, files
//! that others may replace, and a brake for log lines that repeat.
//!
//! Nothing here knows a component, a batch or a network.

pub mod account;
mod clock;
mod every;
pub mod files;
pub mod worker;

pub use account::{Account, Ceiling, Held, Limit, NoRoom};
pub use clock::{unix_now, wall_now};
pub use every::Every;

/// How this gateway names itself to servers.
pub const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
