// SPDX-License-Identifier: Apache-2.0

//! Connectors: exporters of some pipelines and receivers of others.

pub mod forward;

use crate::component::ConnectorFactory;

/// Every connector type.
pub static FACTORIES: &[&ConnectorFactory] = &[&forward::FACTORY];
