// SPDX-License-Identifier: Apache-2.0

//! The engine and the transport with a real NATS server, which `cargo xtask setup` installs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod calls;
mod cluster;
mod credentials;
mod kit;
mod outages;
mod pages;
mod repair;
mod routed;
mod security;
mod streams;
mod three_servers;
mod transport;
mod world;
