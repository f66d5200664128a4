//! Extensions: serve people and the cluster.

use crate::component::ExtensionFactory;

/// Every extension type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExtensionFactory] = &[];
