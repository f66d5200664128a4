// SPDX-License-Identifier: Apache-2.0

//! For tests: a simulated broker with virtual time and faults by seeded random numbers, and series and options.

mod broker;
mod fixtures;
mod random;

pub use broker::{Broker, BrokerClient, BrokerFaults, ClientId};
pub use fixtures::{COUNTER, sender_config, series};
pub use random::SeededRandom;
