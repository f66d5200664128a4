// SPDX-License-Identifier: Apache-2.0

//! The partition of a message, as in the Collector.
//!
//! Its default is the hash of Sarama, an older client of Kafka: FNV-1a of 32 bits. The result is a signed number, and so is
//! the rest of its division. Messages without a key are spread.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use krafka::producer::{Partitioner, murmur2};

/// How a key becomes a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHasher {
    /// FNV-1a as Sarama computes it: the default of the Collector.
    Sarama,
    /// Murmur2, as in clients written in Java.
    Murmur2,
    /// Keys do not matter: partitions take turns.
    RoundRobin,
}

impl KeyHasher {
    /// The partition of a key; `None` if the key does not decide.
    fn partition(self, key: &[u8], partitions: i32) -> Option<i32> {
        match self {
            Self::Sarama => Some(fnv1a(key).cast_signed().wrapping_rem(partitions).abs()),
            Self::Murmur2 => Some((murmur2(key) & 0x7fff_ffff).cast_signed() % partitions),
            Self::RoundRobin => None,
        }
    }
}

/// FNV-1a of 32 bits.
fn fnv1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

pub(super) struct KeyPartitioner {
    hasher: KeyHasher,
    /// Counts messages without a key. It starts anywhere, so that several gateways do not begin at the same partition.
    turn: AtomicU32,
}

impl KeyPartitioner {
    pub(super) fn new(hasher: KeyHasher) -> Self {
        Self {
            hasher,
            turn: AtomicU32::new(rand::random()),
        }
    }

    fn of(&self, key: Option<&[u8]>, partitions: i32) -> i32 {
        let by_key = key.and_then(|key| self.hasher.partition(key, partitions));
        by_key.unwrap_or_else(|| (self.turn.fetch_add(1, Relaxed) & 0x7fff_ffff).cast_signed() % partitions)
    }
}

impl Partitioner for KeyPartitioner {
    fn partition(&self, _topic: &str, key: Option<&[u8]>, partitions: usize) -> i32 {
        match i32::try_from(partitions) {
            Ok(partitions) if partitions > 0 => self.of(key, partitions),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_has_the_published_values() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn a_key_has_the_partition_of_sarama() {
        // The hash is negative as a signed number: -(0x811c9dc5 - 2^32) = 2128831035.
        assert_eq!(KeyHasher::Sarama.partition(b"", 7), Some(2_128_831_035 % 7));
        // 0xe40c292c - 2^32 = -468965076.
        assert_eq!(KeyHasher::Sarama.partition(b"a", 16), Some(468_965_076 % 16));
        for partitions in 1..50 {
            let partition = KeyHasher::Sarama.partition(b"00112233445566778899aabbccddeeff", partitions);
            assert!((0..partitions).contains(&partition.unwrap()));
        }
    }

    #[test]
    fn murmur2_has_the_values_of_java() {
        // `Utils.murmur2` in the tests of Kafka: "21" is -973932308, "foobar" is -790332482.
        let positive = |hash: i32| hash & 0x7fff_ffff;
        assert_eq!(
            KeyHasher::Murmur2.partition(b"21", i32::MAX),
            Some(positive(-973_932_308))
        );
        assert_eq!(
            KeyHasher::Murmur2.partition(b"foobar", i32::MAX),
            Some(positive(-790_332_482))
        );
    }

    #[test]
    fn messages_without_a_key_reach_all_partitions() {
        for (hasher, key) in [
            (KeyHasher::Sarama, None),
            (KeyHasher::RoundRobin, Some(&b"k"[..])),
        ] {
            let partitioner = KeyPartitioner::new(hasher);
            let mut seen = [false; 5];
            for _ in 0..20 {
                seen[partitioner.partition("t", key, 5) as usize] = true;
            }
            assert_eq!(seen, [true; 5]);
        }
    }
}
