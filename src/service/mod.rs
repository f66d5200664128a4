// SPDX-License-Identifier: Apache-2.0

//! The service: from a checked configuration to a running graph of components, and back to a clean stop.
//!
//! `plan` resolves a configuration to factories and settings. `builder` builds and connects the instances of a `graph`.
//! `tables` connects the tables of processors with the exporters that can read them. `writers` finds processors that
//! write the same series, `cycles` finds pipelines that publish what they merge, `outputs` finds exporters that write
//! the same file. `refresh` finds components that forget series of cells too early. `running` starts the instances from
//! exporters to receivers, and stops them in the opposite order.
//! `reload` changes a running graph to that of another plan. `member` has what both know of an instance.

mod builder;
#[cfg(test)]
mod cluster_tests;
mod cycles;
pub mod graph;
mod leaders;
mod member;
mod outputs;
pub mod plan;
mod refresh;
pub mod reload;
pub mod running;
mod tables;
#[cfg(test)]
mod testing;
mod writers;

pub use graph::Graph;
pub use plan::Plan;
pub use running::Running;
