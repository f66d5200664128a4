// SPDX-License-Identifier: Apache-2.0

//! The metadata of metrics in 1.0, which is separate from their series.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Kind, Metadata};

/// Bytes of names and texts that are kept; beyond, the decoder forgets all and reads them again.
const MAX_BYTES: usize = 16 << 20;

/// The metadata of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FamilyMetadata {
    pub(super) kind: Kind,
    /// All series of a metric share it.
    pub(super) help: Arc<str>,
    pub(super) unit: Arc<str>,
}

impl FamilyMetadata {
    pub(super) fn of(metadata: Metadata<'_>) -> Self {
        Self {
            kind: metadata.kind,
            help: metadata.help.into(),
            unit: metadata.unit.into(),
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.help.len() + self.unit.len()
    }
}

/// Metrics by their names.
#[derive(Default)]
pub(super) struct Families {
    known: Mutex<KnownFamilies>,
    /// Changes when something else is said.
    version: AtomicU64,
}

#[derive(Default)]
struct KnownFamilies {
    families: HashMap<String, FamilyMetadata>,
    bytes: usize,
}

impl Families {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Records the metadata of a metric.
    pub(super) fn record(&self, metadata: &Metadata<'_>) {
        let mut known = self.known.lock();
        let said = FamilyMetadata::of(*metadata);
        if metadata.family.is_empty() || known.families.get(metadata.family) == Some(&said) {
            return;
        }
        if known.bytes > MAX_BYTES {
            *known = KnownFamilies::default();
        }
        known.bytes += metadata.family.len() + said.bytes();
        known.families.insert(metadata.family.to_owned(), said);
        self.version.fetch_add(1, Relaxed);
    }

    /// The metadata of the metric of a series with this name.
    pub(super) fn metadata(&self, series: &str) -> FamilyMetadata {
        /// The suffixes of a series name.
        const SUFFIXES: [&str; 6] = ["_bucket", "_sum", "_count", "_total", "_created", "_info"];
        let known = self.known.lock();
        let stems = SUFFIXES.iter().filter_map(|suffix| series.strip_suffix(suffix));
        let mut names = [series].into_iter().chain(stems);
        names
            .find_map(|name| known.families.get(name).cloned())
            .unwrap_or_default()
    }
}
