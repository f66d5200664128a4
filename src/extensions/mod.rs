// SPDX-License-Identifier: Apache-2.0

//! Extensions: components that serve people, the cluster, and other components.

pub mod admin;
pub mod auth;
pub mod cluster;
pub mod composite_page;
pub mod file_storage;
pub mod health_check;
pub mod memory_ballast;
pub mod pprof;
mod rule_status;
pub mod rules;
pub mod zpages;

use crate::component::ExtensionFactory;

/// Every extension type. Adding one touches its folder and this list.
pub static FACTORIES: &[&ExtensionFactory] = &[
    &admin::FACTORY,
    &auth::basic::FACTORY,
    &auth::bearer::FACTORY,
    &auth::headers_setter::FACTORY,
    &auth::sigv4::FACTORY,
    &cluster::FACTORY,
    &composite_page::FACTORY,
    &file_storage::FACTORY,
    &health_check::FACTORY,
    &health_check::v2::FACTORY,
    &memory_ballast::FACTORY,
    &pprof::FACTORY,
    &rules::FACTORY,
    &zpages::FACTORY,
];
