// SPDX-License-Identifier: Apache-2.0

//! For tests: a simulated broker with virtual time and faults by seeded random numbers, series and options, and stored messages.

mod broker;
mod fixtures;
mod random;
mod stored;

pub use broker::{Broker, BrokerClient, BrokerFaults, ClientId};
pub use fixtures::{COUNTER, sender_config, series};
pub use random::SeededRandom;
pub use stored::{stored_message, stored_zstd};
