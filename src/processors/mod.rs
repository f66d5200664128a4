//! Processors: look at or change what passes.

pub mod batch;
pub mod memory_limiter;

use crate::component::ProcessorFactory;

/// Every processor type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ProcessorFactory] = &[&batch::FACTORY, &memory_limiter::FACTORY];
