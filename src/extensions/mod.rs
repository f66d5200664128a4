//! Extensions: serve people and the cluster.

pub mod health_check;

use crate::component::ExtensionFactory;

/// Every extension type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExtensionFactory] = &[&health_check::FACTORY];
