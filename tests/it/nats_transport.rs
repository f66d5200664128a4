// SPDX-License-Identifier: Apache-2.0

//! Telemetry through a real NATS server.

mod out;
mod reload;
mod secure;
mod stream;
mod through;
