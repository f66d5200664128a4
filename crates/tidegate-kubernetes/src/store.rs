// SPDX-License-Identifier: Apache-2.0

//! The objects of a watch.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_runtime::{Account, Held};
use tokio::sync::watch;

use crate::ObjectKind;
use crate::error::WatchError;
use crate::metrics::WatchMetrics;
use crate::objects::{self, KubeObject, Version, Weigh};
use crate::pieces::Skipped;

/// The bytes of an object beside its texts: its places in the store and in snapshots, its key and its reservation.
const OBJECT_BYTES: usize = 512;

/// The factor between JSON and the memory to read it: `{},` is a port of 40 bytes, in a list that grows by doubling.
const READ_FACTOR: usize = 32;

/// The limits of a watch. An object beyond them is not kept, and is counted.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// The most objects.
    pub objects: usize,
    /// The most bytes of all objects in memory.
    pub bytes: usize,
    /// The most bytes of an object or event in JSON.
    pub object_bytes: usize,
}

impl Default for WatchLimits {
    /// More than the largest clusters that Kubernetes supports have. The store of the API server takes objects of 1.5 MiB.
    fn default() -> Self {
        Self {
            objects: 200_000,
            bytes: 512 << 20,
            object_bytes: 2 << 20,
        }
    }
}

/// The state of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether a whole list has been read. Before that, the objects are only some of those of the server.
    pub is_synced: bool,
    /// The number of changes.
    pub changes: u64,
}

/// An object with its reservation.
#[derive(Debug)]
pub struct StoredObject {
    object: KubeObject,
    held: Held,
}

impl StoredObject {
    /// The bytes of its reservation.
    pub fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// An object without a watch.
    #[cfg(any(test, feature = "testing"))]
    pub fn without_watch(object: KubeObject) -> Arc<Self> {
        let held = Held::new(Arc::default());
        Arc::new(Self { object, held })
    }
}

impl Deref for StoredObject {
    type Target = KubeObject;

    fn deref(&self) -> &KubeObject {
        &self.object
    }
}

/// Why an object is not kept, as the `reason` of a counter.
type Refusal = &'static str;

struct KeptObject {
    object: Arc<StoredObject>,
    /// The number of the list that had it last, or that was the last one when it came.
    list: u64,
}

#[derive(Default)]
struct Entries {
    by_key: BTreeMap<Box<str>, KeptObject>,
    bytes: usize,
    /// The number of the last list.
    list: u64,
}

/// The objects of a watch. The task of the watch writes, and users read.
pub(crate) struct ObjectStore {
    kind: ObjectKind,
    limits: WatchLimits,
    account: Arc<Account>,
    metrics: WatchMetrics,
    entries: Mutex<Entries>,
    status: watch::Sender<WatchStatus>,
    /// Why the objects may be old.
    trouble: watch::Sender<Option<Arc<str>>>,
}

impl ObjectStore {
    pub(crate) fn new(kind: ObjectKind, limits: WatchLimits, account: Arc<Account>) -> Self {
        let metrics = WatchMetrics::new(kind);
        metrics.incomplete(1.0);
        Self {
            kind,
            limits,
            account,
            metrics,
            entries: Mutex::default(),
            status: watch::Sender::default(),
            trouble: watch::Sender::default(),
        }
    }

    pub(crate) fn metrics(&self) -> &WatchMetrics {
        &self.metrics
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn limits(&self) -> WatchLimits {
        self.limits
    }

    pub(crate) fn status(&self) -> watch::Receiver<WatchStatus> {
        self.status.subscribe()
    }

    pub(crate) fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trouble.subscribe()
    }

    /// A list or watch ended with an error. Lost events do not count: the list comes again at once.
    pub(crate) fn failed(&self, error: &WatchError) {
        self.metrics.failed(error);
        if matches!(error, WatchError::Expired) {
            return;
        }
        let text: Arc<str> = error.to_string().into();
        self.trouble.send_if_modified(|trouble| {
            let is_new = trouble.as_ref() != Some(&text);
            *trouble = Some(text);
            is_new
        });
    }

    /// The server sends objects or events: they are those of now.
    pub(crate) fn recovered(&self) {
        self.trouble.send_if_modified(|trouble| trouble.take().is_some());
    }

    /// All objects, in the order of namespaces and names.
    pub(crate) fn snapshot(&self) -> Vec<Arc<StoredObject>> {
        let entries = self.entries.lock();
        entries
            .by_key
            .values()
            .map(|entry| entry.object.clone())
            .collect()
    }

    /// A list begins. Objects that it lacks go at its end.
    pub(crate) fn begin_list(&self) {
        self.entries.lock().list += 1;
    }

    /// A list is complete.
    pub(crate) fn end_list(&self) {
        let mut entries = self.entries.lock();
        let list = entries.list;
        let before = entries.by_key.len();
        let mut freed = 0;
        entries.by_key.retain(|_, entry| {
            let stays = entry.list == list;
            freed += if stays { 0 } else { entry.object.held.bytes() };
            stays
        });
        entries.bytes -= freed;
        let removed = before - entries.by_key.len();
        drop(entries);
        self.metrics.objects_removed(removed);
        if !self.status.borrow().is_synced {
            self.metrics.incomplete(-1.0);
        }
        self.status.send_if_modified(|status| {
            let is_new = !status.is_synced || removed > 0;
            status.is_synced = true;
            status.changes += u64::from(is_new);
            is_new
        });
    }

    /// Reads an object of a list, and keeps it.
    ///
    /// # Errors
    /// Memory is short.
    pub(crate) fn take_listed(&self, json: &[u8]) -> Result<(), WatchError> {
        let mut held = self.reserve_reading(json)?;
        match objects::object(self.kind, json) {
            Ok((object, _)) => self.apply(object, &mut held),
            Err(_) => self.metrics.object_refused("malformed"),
        }
        Ok(())
    }

    /// Reads an event, and does what it says. Returns the version after it.
    ///
    /// # Errors
    /// It ends the watch.
    pub(crate) fn take_event(&self, json: &[u8]) -> Result<Version, WatchError> {
        let mut held = self.reserve_reading(json)?;
        let event = objects::watch_event(self.kind, json);
        let event =
            event.map_err(|error| WatchError::Body(format!("an event is not as expected: {error}")))?;
        match event {
            objects::ReadEvent::Applied(name, object, version) => {
                self.metrics.event(name);
                self.apply(object, &mut held);
                Ok(version)
            }
            objects::ReadEvent::Deleted(object, version) => {
                self.metrics.event("deleted");
                self.remove(&object.key());
                Ok(version)
            }
            objects::ReadEvent::Bookmark(version) => {
                self.metrics.event("bookmark");
                Ok(version)
            }
            objects::ReadEvent::Failed(410, _) => Err(WatchError::Expired),
            objects::ReadEvent::Failed(code, message) => Err(WatchError::Status(
                http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR),
                format!(": {}", tidegate_pipeline::delivery::response::shorten(&message)),
            )),
        }
    }

    /// An object or event was skipped. An older copy of the object goes: it is no longer true.
    ///
    /// # Errors
    /// Memory is short.
    pub(crate) fn take_skipped(&self, why: Skipped, beginning: &[u8]) -> Result<(), WatchError> {
        match why {
            Skipped::NoMemory => return Err(WatchError::Memory(tidegate_runtime::NoRoom)),
            Skipped::TooLarge => self.metrics.object_refused("too_large"),
        }
        let identity = objects::identity(beginning);
        if let Some(name) = identity.name {
            self.remove(&objects::key(
                identity.namespace.as_deref().unwrap_or_default(),
                &name,
            ));
        }
        Ok(())
    }

    /// Reserves the memory to read JSON.
    fn reserve_reading(&self, json: &[u8]) -> Result<Held, WatchError> {
        let mut held = Held::new(self.account.clone());
        held.try_grow(json.len().saturating_mul(READ_FACTOR) + 2 * OBJECT_BYTES)?;
        Ok(held)
    }

    /// Keeps an object within the limits. `held` has room for more than it.
    fn apply(&self, object: KubeObject, held: &mut Held) {
        let key = object.key();
        let bytes = object.weight() + OBJECT_BYTES + 2 * key.len();
        let mut entries = self.entries.lock();
        let list = entries.list;
        if let Some(known) = entries.by_key.get_mut(&key)
            && known.object.object == object
        {
            known.list = list;
            return;
        }
        if let Some(refusal) = self.refusal(&entries, &key, bytes) {
            drop(entries);
            self.metrics.object_refused(refusal);
            self.remove(&key);
            return;
        }
        held.keep(bytes);
        let object = Arc::new(StoredObject {
            object,
            held: held.take(),
        });
        entries.bytes += bytes;
        let replaced = entries.by_key.insert(key, KeptObject { object, list });
        if let Some(replaced) = &replaced {
            entries.bytes -= replaced.object.held.bytes();
        }
        drop(entries);
        if replaced.is_none() {
            self.metrics.object_added();
        }
        self.changed();
    }

    fn refusal(&self, entries: &Entries, key: &str, bytes: usize) -> Option<Refusal> {
        let known = entries.by_key.get(key);
        let freed = known.map_or(0, |known| known.object.held.bytes());
        if known.is_none() && entries.by_key.len() >= self.limits.objects {
            Some("object_limit")
        } else if entries.bytes - freed + bytes > self.limits.bytes {
            Some("byte_limit")
        } else {
            None
        }
    }

    fn remove(&self, key: &str) {
        let mut entries = self.entries.lock();
        let Some(removed) = entries.by_key.remove(key) else {
            return;
        };
        entries.bytes -= removed.object.held.bytes();
        drop(entries);
        self.metrics.objects_removed(1);
        self.changed();
    }

    /// Wakes users. Before the first list is complete, they have nothing to read.
    fn changed(&self) {
        self.status.send_if_modified(|status| {
            status.changes += 1;
            status.is_synced
        });
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.metrics.objects_removed(self.entries.lock().by_key.len());
        if !self.status.borrow().is_synced {
            self.metrics.incomplete(-1.0);
        }
    }
}

#[cfg(test)]
mod tests;
