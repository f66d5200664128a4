// SPDX-License-Identifier: Apache-2.0

//! Receivers: components that bring telemetry into the gateway.
//!
//! The `prometheus` receiver is the crate `tidegate-scrape`: it is large, and it depends on no other component.

mod globs;
pub mod kafka;
mod kept;
mod left;
mod message_attributes;
mod messages;
pub mod nats;
pub mod nixl;
pub mod nixl_mp;
pub mod nop;
pub mod otlp;
pub mod partials;
mod pods;
mod printable;
pub mod prometheusremotewrite;
pub mod rules;
pub mod shm;
pub mod uds;
mod watch;

use crate::component::ReceiverFactory;

/// Every receiver type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ReceiverFactory] = &[
    &kafka::FACTORY,
    &nats::FACTORY,
    &nixl::FACTORY,
    &nixl_mp::FACTORY,
    &nop::FACTORY,
    &otlp::FACTORY,
    &partials::FACTORY,
    &tidegate_scrape::FACTORY,
    &prometheusremotewrite::FACTORY,
    &rules::FACTORY,
    &shm::FACTORY,
    &uds::FACTORY,
];
