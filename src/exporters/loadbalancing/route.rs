// SPDX-License-Identifier: Apache-2.0

//! The endpoint of an item: the one with the highest score for its key (rendezvous hashing). When an endpoint
//! appears or vanishes, only its own share moves. Every gateway of a tier gets the same result.

use smallvec::SmallVec;

use super::config::RoutingKey;
use crate::batch::wire::WireError;
use crate::batch::wire::edit::Editor;
use crate::batch::wire::proto::{Fields, WireType};
use crate::batch::wire::walk::{HEADER, Header, Item, ItemKind, Level, Visitor, edit};
use crate::batch::{Batch, Encoded};

/// FNV-1a, 64 bits: the same in every process, whatever built it.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    const NEW: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        // The length keeps neighbours apart.
        let hash = (bytes.len() as u64).to_le_bytes().iter().fold(self.0, step);
        Self(bytes.iter().fold(hash, step))
    }
}

/// The score of a key and an endpoint (the finalizer of SplitMix64, which spreads similar FNV hashes).
fn score(key: Hash, endpoint: Hash) -> u64 {
    let mut mixed = key.0 ^ endpoint.0.rotate_left(32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Endpoints in the order in which they are numbered.
pub(super) struct Ring(Vec<Hash>);

impl Ring {
    pub(super) fn new<'a>(endpoints: impl Iterator<Item = &'a str>) -> Self {
        Self(endpoints.map(|name| Hash::NEW.with(name.as_bytes())).collect())
    }

    fn pick(&self, key: Hash) -> usize {
        let scored = self
            .0
            .iter()
            .enumerate()
            .max_by_key(|(_, endpoint)| score(key, **endpoint));
        scored.map_or(0, |(at, _)| at)
    }

    /// Splits a batch by endpoint. A batch with a single endpoint stays whole.
    pub(super) fn split(
        &self,
        key: RoutingKey,
        batch: &Batch,
    ) -> Result<SmallVec<[(usize, Batch); 2]>, WireError> {
        let encoded = batch.payload.encode();
        let mut routing = Routing {
            ring: self,
            key,
            around: [Hash::NEW; 3],
            targets: Vec::with_capacity(encoded.items()),
        };
        edit(&encoded, &mut routing)?;
        let targets = routing.targets;
        let mut used = targets.clone();
        used.sort_unstable();
        used.dedup();
        match used.as_slice() {
            [] => Ok(SmallVec::new()),
            [only] => Ok([(*only, batch.clone())].into_iter().collect()),
            _ => used
                .into_iter()
                .map(|target| Ok((target, batch.with(share(&encoded, &targets, target)?))))
                .collect(),
        }
    }
}

/// The items of one endpoint.
fn share(encoded: &Encoded, targets: &[usize], target: usize) -> Result<Encoded, WireError> {
    struct Share<'a> {
        targets: std::slice::Iter<'a, usize>,
        target: usize,
        /// Metrics without points have no key of their own: one endpoint gets them.
        takes_empty: bool,
    }
    impl Visitor for Share<'_> {
        fn empty_metric(&mut self, _: &[u8]) -> bool {
            self.takes_empty
        }

        fn item(&mut self, _: &Item<'_>, _: &mut Editor<'_>) -> bool {
            self.targets.next() == Some(&self.target)
        }
    }
    let mut share = Share {
        takes_empty: targets.iter().min() == Some(&target),
        targets: targets.iter(),
        target,
    };
    edit(encoded, &mut share)
}

/// Finds the endpoint of every item, in order.
struct Routing<'a> {
    ring: &'a Ring,
    key: RoutingKey,
    /// The hashes of the resource, the scope and the metric around the item.
    around: [Hash; 3],
    targets: Vec<usize>,
}

impl Visitor for Routing<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        if level == Level::Scope {
            self.around[1] = self.around[0].with(field(message, HEADER).unwrap_or_default());
        }
    }

    fn resource(&mut self, resource: &Header<'_>, _: &mut Editor<'_>) -> bool {
        let service = match self.key {
            RoutingKey::Service => service_name(resource.message),
            _ => None,
        };
        self.around[0] = Hash::NEW.with(service.unwrap_or(resource.message));
        true
    }

    fn metric(&mut self, name: &[u8]) -> bool {
        self.around[2] = self.around[1].with(name);
        true
    }

    fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
        let key = match self.key {
            RoutingKey::Service | RoutingKey::Resource => self.around[0],
            RoutingKey::Metric => Hash::NEW.with(item.name),
            RoutingKey::Series => attributes(item, self.around[2]),
            RoutingKey::Trace => match trace(item) {
                Some(trace) => Hash::NEW.with(trace),
                None => self.around[0],
            },
        };
        self.targets.push(self.ring.pick(key));
        true
    }
}

fn attributes(item: &Item<'_>, around: Hash) -> Hash {
    let number = item.kind.attributes_field();
    let fields = Fields::new(item.message).flatten();
    let attributes = fields.filter(|field| field.number == number && field.wire == WireType::Bytes);
    attributes.fold(around, |hash, field| hash.with(field.payload))
}

/// The trace of a span or of a log record that has one.
fn trace<'a>(item: &Item<'a>) -> Option<&'a [u8]> {
    let number = match item.kind {
        ItemKind::Span => 1,
        ItemKind::LogRecord => 9,
        _ => return None,
    };
    field(item.message, number).filter(|trace| !trace.is_empty())
}

/// The value of `service.name` in an encoded `Resource`.
fn service_name(resource: &[u8]) -> Option<&[u8]> {
    let attributes = Fields::new(resource).flatten().filter(|field| field.number == 1);
    let mut named = attributes.filter(|attribute| field(attribute.payload, 1) == Some(b"service.name"));
    field(named.next()?.payload, 2)
}

/// The last field of this number.
fn field(message: &[u8], number: u32) -> Option<&[u8]> {
    let fields = Fields::new(message).flatten();
    let mut wanted = fields.filter(|field| field.number == number && field.wire == WireType::Bytes);
    let first = wanted.next()?;
    Some(wanted.last().unwrap_or(first).payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_and_only_the_share_of_a_lost_endpoint_moves() {
        let names = ["10.0.0.1:4317", "10.0.0.2:4317", "10.0.0.3:4317", "10.0.0.4:4317"];
        let (four, three) = (
            Ring::new(names.into_iter()),
            Ring::new(names[..3].iter().copied()),
        );
        let keys: Vec<_> = (0..10_000u32).map(|n| Hash::NEW.with(&n.to_le_bytes())).collect();
        let mut counts = [0; 4];
        for key in keys {
            let before = four.pick(key);
            counts[before] += 1;
            let after = three.pick(key);
            assert!(before == 3 || before == after);
        }
        assert!(
            counts.iter().all(|count| (2300..2700).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn what_stands_for_a_key_is_the_same_in_every_process() {
        assert_eq!(Hash::NEW.with(b"a").0, 5_952_155_467_226_901_439);
    }
}
