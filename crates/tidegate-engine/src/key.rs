// SPDX-License-Identifier: Apache-2.0

//! Keys: 96-bit keyed hashes of a series, or of the bytes in which its sender encodes it.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::quality::{FoldHasher, RandomState};

use crate::Series;
#[cfg(feature = "tables")]
use crate::saved::StreamId;

/// Two independently keyed hashes, the second cut in half. With random keys per process and 96 bits, a million series
/// collide with a probability of 10^-17. No sender can search for collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key([u32; 3]);

static STATES: LazyLock<[RandomState; 2]> =
    LazyLock::new(|| [RandomState::default(), RandomState::default()]);

impl Key {
    /// The key of a series: of everything that identifies it, so not of its description and metadata.
    pub fn of(series: &Series) -> Self {
        let mut hasher = KeyHasher::default();
        series.resource.hash(&mut hasher);
        series.scope.hash(&mut hasher);
        series.metric.name.hash(&mut hasher);
        series.metric.unit.hash(&mut hasher);
        series.metric.data.hash(&mut hasher);
        series.attributes.hash(&mut hasher);
        hasher.key()
    }

    /// The key of anything else.
    pub fn of_value(value: &impl Hash) -> Self {
        let mut hasher = KeyHasher::default();
        value.hash(&mut hasher);
        hasher.key()
    }

    /// The key as the id of a stream in this process. Ids of saved streams have other bytes.
    #[cfg(feature = "tables")]
    pub(crate) fn stream_id(self) -> StreamId {
        let mut id = StreamId::default();
        for (bytes, part) in id.chunks_exact_mut(4).zip(self.0) {
            bytes.copy_from_slice(&part.to_le_bytes());
        }
        id
    }

    /// One of `shards` (a power of two), by bits that a map of the shard does not look at.
    pub(crate) fn shard(self, shards: usize) -> usize {
        self.0[2] as usize & (shards - 1)
    }

    /// A part of it that distinguishes most keys.
    pub(crate) fn tag(self) -> u32 {
        self.0[0]
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.0[0]) << 32 | u64::from(self.0[1]));
    }
}

/// Makes keys from all bytes written to it.
#[derive(Clone)]
pub struct KeyHasher {
    low: FoldHasher<'static>,
    high: FoldHasher<'static>,
}

impl Default for KeyHasher {
    fn default() -> Self {
        let [low, high] = &*STATES;
        Self {
            low: low.build_hasher(),
            high: high.build_hasher(),
        }
    }
}

impl KeyHasher {
    /// The key of the written bytes.
    pub fn key(&self) -> Key {
        let low = self.low.finish();
        Key([low as u32, (low >> 32) as u32, self.high.finish() as u32])
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.low.write(bytes);
        self.high.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.low.write_u8(number);
        self.high.write_u8(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.low.write_u32(number);
        self.high.write_u32(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.low.write_u64(number);
        self.high.write_u64(number);
    }

    fn write_u128(&mut self, number: u128) {
        self.low.write_u128(number);
        self.high.write_u128(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.low.finish()
    }
}

/// Hashes keys by taking bits of them: they are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map by key.
pub(crate) type KeyMap<V> = std::collections::HashMap<Key, V, std::hash::BuildHasherDefault<AsIs>>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Attributes, Data, Metric};

    fn series(description: &str, value: &str) -> Series {
        Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "m".into(),
                description: description.into(),
                unit: "".into(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: [("k", value)].into_iter().collect(),
        }
    }

    #[test]
    fn descriptions_do_not_make_a_series_another_one_and_attributes_do() {
        assert_eq!(Key::of(&series("a", "1")), Key::of(&series("b", "1")));
        assert_ne!(Key::of(&series("a", "1")), Key::of(&series("a", "2")));
    }
}
