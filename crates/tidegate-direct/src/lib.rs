// SPDX-License-Identifier: Apache-2.0

//! The engine of a cluster without a broker, for two or three replicas.
//!
//! Each replica keeps the last message of each subject in memory. Producers send each page to all replicas that they
//! reach. Replicas compare what they have and fetch what they lack. The replica with the smallest name decides about
//! records. Decision 0033 gives the reasons and the limits.

#![forbid(unsafe_code)]

mod arrivals;
mod client;
mod config;
mod connections;
mod copies;
mod engine;
mod engine_state;
mod limits;
mod link;
mod replica;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use config::{
    DirectClientTls, DirectConfig, DirectError, DirectServerTls, ReplicaAddresses, ServeConfig,
};
pub use engine::DirectEngine;
