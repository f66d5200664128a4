// SPDX-License-Identifier: Apache-2.0

//! A simulated broker for tests: virtual time, and faults by seeded random numbers.

mod broker;
mod random;

pub use broker::{Broker, BrokerClient, BrokerFaults, ClientId};
pub use random::SeededRandom;
