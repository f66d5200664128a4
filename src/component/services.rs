//! What extensions do for components that name them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_wal::Storage;

use super::auth::{Authenticator, Credentials};

/// What an extension offers to the components that name it.
#[derive(Clone, Default)]
pub struct Services {
    /// Lets senders in.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Identifies us.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Keeps what must outlive the process.
    pub storage: Option<Arc<Storage>>,
}

/// What extensions offer, by their ids.
#[derive(Default)]
pub struct ServicesById(Mutex<HashMap<String, Services>>);

impl ServicesById {
    /// Notes what an extension offers, before anybody asks.
    pub fn add(&self, id: String, services: Services) {
        self.0.lock().insert(id, services);
    }

    /// What the extension of this id offers.
    pub fn get(&self, id: &str) -> Option<Services> {
        self.0.lock().get(id).cloned()
    }
}
