// SPDX-License-Identifier: Apache-2.0

//! The engine against a real broker, which `cargo xtask setup` installs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod broker;
mod calls;
mod cluster;
mod machine;
mod otlp;
mod outages;
mod poison;
mod security;
