//! Processors: look at or change what passes.

use crate::component::ProcessorFactory;

/// Every processor type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ProcessorFactory] = &[];
