//! Processors: look at or change what passes.

mod actions;
pub mod attributes;
pub mod filter;
mod matching;
pub mod resource;
mod sources;

use crate::component::ProcessorFactory;

/// Every processor type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ProcessorFactory] = &[&attributes::FACTORY, &filter::FACTORY, &resource::FACTORY];
