// SPDX-License-Identifier: Apache-2.0

//! The services that extensions offer to components that name them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_wal::Storage;

use super::auth::{Authenticator, Credentials};
use super::cluster::Cluster;

/// The services of one extension.
#[derive(Clone, Default)]
pub struct Services {
    /// Authenticates senders.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Provides credentials for requests of exporters.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Keeps data that must survive the process.
    pub storage: Option<Arc<Storage>>,
    /// Connects components with those of other gateways.
    pub cluster: Option<Arc<Cluster>>,
}

/// The services of all extensions, by extension id.
#[derive(Default)]
pub struct ServicesById(Mutex<HashMap<String, Services>>);

impl ServicesById {
    /// Registers the services of an extension. Call it before the components are built.
    pub fn add(&self, id: String, services: Services) {
        self.0.lock().insert(id, services);
    }

    /// The services of all extensions.
    pub fn all(&self) -> HashMap<String, Services> {
        self.0.lock().clone()
    }

    /// Forgets the services of extensions that are not kept.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| is_kept(id));
    }

    /// Registers these services only.
    pub fn set_all(&self, services: HashMap<String, Services>) {
        *self.0.lock() = services;
    }

    /// The services of an extension.
    pub fn get(&self, id: &str) -> Option<Services> {
        self.0.lock().get(id).cloned()
    }

    /// The clusters, with the ids of their extensions.
    pub fn clusters(&self) -> Vec<(String, Arc<Cluster>)> {
        let services = self.0.lock();
        let clusters = services
            .iter()
            .filter_map(|(id, services)| Some((id.clone(), services.cluster.clone()?)));
        clusters.collect()
    }
}
