// SPDX-License-Identifier: Apache-2.0

//! The base of receivers, processors, exporters, connectors and extensions.
//!
//! [`batch`] is the data on an edge of the graph. [`component`] has the traits, the edges and the ledgers of all
//! components. [`watch`] numbers the answers of composites for readers that wait. [`net`] has endpoints, servers and
//! clients. [`delivery`] has the queue, the retries and the storage of every exporter that pushes.
//!
//! Dependencies point one way: `delivery` -> `net` -> `watch` -> `component` -> `batch`. `cargo xtask rules` checks it.

pub mod batch;
pub mod component;
pub mod delivery;
pub mod net;
pub mod watch;
