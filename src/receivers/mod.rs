// SPDX-License-Identifier: Apache-2.0

//! Receivers: components that bring telemetry into the gateway.

mod globs;
mod kept;
pub mod nixl;
pub mod nixl_mp;
pub mod nop;
pub mod otlp;
pub mod prometheus;
pub mod prometheusremotewrite;
pub mod shm;
pub mod uds;
mod watch;

use crate::component::ReceiverFactory;

/// Every receiver type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ReceiverFactory] = &[
    &nixl::FACTORY,
    &nixl_mp::FACTORY,
    &nop::FACTORY,
    &otlp::FACTORY,
    &prometheus::FACTORY,
    &prometheusremotewrite::FACTORY,
    &shm::FACTORY,
    &uds::FACTORY,
];
