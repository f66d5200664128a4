// SPDX-License-Identifier: Apache-2.0

//! The sources of rings that a receiver leaves to the next one of its name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_engine::Source;
use tidegate_ring::FileId;

use crate::component::unix_now;

/// The source of a ring.
pub(super) struct LeftSource {
    pub(super) source: Arc<Source>,
    /// The file of the ring. `None`: another receiver may number the kinds of the source otherwise.
    pub(super) file: Option<FileId>,
}

/// The sources of a receiver that has stopped. Sources that no other receiver takes end with it.
pub(super) struct LeftSources(BTreeMap<PathBuf, LeftSource>);

impl LeftSources {
    /// The sources of rings, by the paths of these.
    pub(super) fn new(sources: impl Iterator<Item = (PathBuf, LeftSource)>) -> Self {
        Self(sources.collect())
    }

    /// The source of the ring at `path`, if this is the same ring and the source has the attributes of `new`. Otherwise that
    /// source stays.
    pub(super) fn take(&mut self, path: &Path, file: FileId, new: &Source) -> Option<Arc<Source>> {
        let LeftSource { source, file: before } = self.0.get(path)?;
        let has_same_attributes = source.resource == new.resource && source.attributes == new.attributes;
        if *before != Some(file) || !has_same_attributes {
            return None;
        }
        let source = self.0.remove(path)?.source;
        source.lease.touch(unix_now());
        Some(source)
    }
}

impl Drop for LeftSources {
    fn drop(&mut self) {
        self.0.values().for_each(|left| left.source.lease.end());
    }
}
