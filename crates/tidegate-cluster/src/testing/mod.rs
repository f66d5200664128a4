// SPDX-License-Identifier: Apache-2.0

//! A simulated broker for tests: virtual time, and faults by seeded random numbers.

mod broker;
#[cfg(test)]
mod fixtures;
mod random;

pub use broker::{Broker, BrokerClient, BrokerFaults, ClientId};
#[cfg(test)]
pub(crate) use fixtures::{COUNTER, series};
pub use random::SeededRandom;
