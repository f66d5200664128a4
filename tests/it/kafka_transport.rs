// SPDX-License-Identifier: Apache-2.0

//! Telemetry through a real Kafka.

mod collector;
mod out;
mod reload;
mod secure;
mod through;
mod topic;
