//! Processors: look at or change what passes.

pub mod aggregate;
pub mod composite;
mod emit;
mod names;
mod select;
#[cfg(test)]
mod testing;

use crate::component::ProcessorFactory;

/// Every processor type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ProcessorFactory] = &[&aggregate::FACTORY, &composite::FACTORY];
