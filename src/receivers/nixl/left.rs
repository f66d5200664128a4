// SPDX-License-Identifier: Apache-2.0

//! What a receiver leaves to the next one of its name, which a reload builds: the sources of its rings, and the names of the
//! rings in metrics.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_engine::Source;
use tidegate_ring::FileId;

use super::metrics::Names;
use crate::component::{Context, unix_now};

/// The source of a ring.
pub(super) struct LeftSource {
    pub(super) source: Arc<Source>,
    /// The file of the ring. `None`: another receiver may number the kinds of the source otherwise.
    pub(super) file: Option<FileId>,
}

/// The sources of a receiver that has stopped. Sources that no other receiver takes end with the last owner.
///
/// A reload drops the old receiver after the start of the new one. A gateway that stops drops its receivers after the stop of
/// all processors, which count these sources until their last export.
#[derive(Default)]
pub(super) struct LeftSources(Mutex<BTreeMap<PathBuf, LeftSource>>);

impl LeftSources {
    /// Adds the sources of rings, by the paths of these.
    pub(super) fn add(&self, sources: impl Iterator<Item = (PathBuf, LeftSource)>) {
        self.0.lock().extend(sources);
    }

    /// The source of the ring at `path`, if this is the same ring and the source has the attributes of `new`. Otherwise that
    /// source ends.
    pub(super) fn take(&self, path: &Path, file: FileId, new: &Source) -> Option<Arc<Source>> {
        let left = self.0.lock().remove(path)?;
        let source = left.source;
        let has_same_attributes = source.resource == new.resource && source.attributes == new.attributes;
        if left.file == Some(file) && has_same_attributes {
            source.lease.touch(unix_now());
            return Some(source);
        }
        source.lease.end();
        None
    }

    fn take_all(&self) -> Self {
        Self(Mutex::new(std::mem::take(&mut *self.0.lock())))
    }
}

impl Drop for LeftSources {
    fn drop(&mut self) {
        let left = self.0.get_mut().values();
        left.for_each(|left| left.source.lease.end());
    }
}

/// What is known of the receivers of a gateway, by the paths of these.
#[derive(Default)]
struct Receivers(Mutex<HashMap<Arc<str>, Known>>);

#[derive(Default)]
struct Known {
    /// The sources of the last receiver.
    left: Weak<LeftSources>,
    names: Arc<Names>,
}

/// The sources of the receiver before this one, and the names of rings in metrics. `left`: where this receiver leaves its
/// sources.
pub(super) fn succeed(base: &Context, left: &Arc<LeftSources>) -> (LeftSources, Arc<Names>) {
    let receivers = base.shared.parts.get(Receivers::default);
    let mut all = receivers.0.lock();
    let known = all.entry(base.path.clone()).or_default();
    let before = std::mem::replace(&mut known.left, Arc::downgrade(left)).upgrade();
    let sources = before.as_deref().map(LeftSources::take_all);
    (sources.unwrap_or_default(), known.names.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::context;

    #[test]
    fn names_of_rings_stay_when_a_receiver_is_rebuilt() {
        let base = context("receivers", "nixl");
        let names = |base: &Context| succeed(base, &Arc::default()).1;
        let first = names(&base);
        assert!(Arc::ptr_eq(&first, &names(&base)));
        let other = Context {
            path: "receivers::nixl/other".into(),
            ..base
        };
        assert!(!Arc::ptr_eq(&first, &names(&other)));
    }
}
