// SPDX-License-Identifier: Apache-2.0

//! Processors: components that inspect or change passing data.

mod actions;
pub mod aggregate;
pub mod attributes;
pub mod batch;
pub mod composite;
mod editing;
mod emit;
pub mod filter;
pub mod k8sattributes;
pub mod memory_limiter;
pub mod resource;
mod select;
mod sources;
mod state_log;
#[cfg(test)]
mod testing;

use crate::component::ProcessorFactory;

/// All processor types. A new one needs its folder and an entry here.
pub static FACTORIES: &[&ProcessorFactory] = &[
    &aggregate::FACTORY,
    &attributes::FACTORY,
    &batch::FACTORY,
    &composite::FACTORY,
    &filter::FACTORY,
    &k8sattributes::FACTORY,
    &memory_limiter::FACTORY,
    &resource::FACTORY,
];
