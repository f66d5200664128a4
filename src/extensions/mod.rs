//! Extensions: serve people and the cluster.

pub mod admin;
pub mod health_check;
mod server;

use crate::component::ExtensionFactory;

/// Every extension type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExtensionFactory] = &[&admin::FACTORY, &health_check::FACTORY];
