// SPDX-License-Identifier: Apache-2.0

//! Compares partition ids with hashes of identities that a naive writer writes by the rules of the module.

use std::sync::Arc;

use proptest::prelude::*;
use twox_hash::xxhash3_64::Hasher as Xxh3;

use super::partition_id;
use crate::attributes::tests::{Entries, Model, canonical, set, some_entries};
use crate::{Data, Key, Metric, Resource, Scope, Series, Temporality};

/// All that identifies a series.
#[derive(Clone, Debug, PartialEq)]
struct Identity {
    /// Of the resource, the scope and the point.
    sets: [Entries; 3],
    /// Schema URL of the resource; name, version and schema URL of the scope; name and unit of the metric.
    texts: [String; 6],
    data: Data,
}

impl Identity {
    fn series(&self, description: &str, metadata: &Entries) -> Series {
        let [resource, scope, point] = self.sets.each_ref().map(set);
        let [resource_url, scope_name, version, scope_url, name, unit] =
            self.texts.each_ref().map(|text| Arc::from(text.as_str()));
        Series {
            resource: Arc::new(Resource {
                attributes: resource,
                schema_url: resource_url,
            }),
            scope: Arc::new(Scope {
                name: scope_name,
                version,
                attributes: scope,
                schema_url: scope_url,
            }),
            metric: Arc::new(Metric {
                name,
                description: description.into(),
                unit,
                data: self.data,
                metadata: set(metadata),
            }),
            attributes: point,
        }
    }

    fn id(&self) -> u64 {
        partition_id(&self.series("", &Entries::new()))
    }

    fn canonical(mut self) -> Self {
        self.sets = self.sets.map(canonical);
        self
    }

    /// The canonical identity.
    fn bytes(&self) -> Vec<u8> {
        let [resource, scope, point] = self.sets.clone().map(|entries| write_set(canonical(entries)));
        let [resource_url, scope_name, version, scope_url, name, unit] =
            self.texts.each_ref().map(|text| text.clone().into_bytes());
        let before = [
            resource,
            resource_url,
            scope_name,
            version,
            scope,
            scope_url,
            name,
            unit,
        ];
        let part = |bytes: Vec<u8>| [(bytes.len() as u64).to_le_bytes().to_vec(), bytes].concat();
        let number = |temporality| match temporality {
            Temporality::Unspecified => 0,
            Temporality::Delta => 1,
            Temporality::Cumulative => 2,
        };
        let data = match self.data {
            Data::Gauge => vec![5, 0, 0],
            Data::Sum {
                monotonic,
                temporality,
            } => vec![7, number(temporality), monotonic.into()],
            Data::Histogram { temporality } => vec![9, number(temporality), 0],
            Data::ExponentialHistogram { temporality } => vec![10, number(temporality), 0],
            Data::Summary => vec![11, 0, 0],
        };
        [before.map(part).concat(), data, part(point)].concat()
    }
}

fn write_set(entries: Entries) -> Vec<u8> {
    let entry = |(key, value): (String, Model)| {
        field(
            1,
            &[field(1, key.as_bytes()), field(2, &write_value(value))].concat(),
        )
    };
    entries.into_iter().flat_map(entry).collect()
}

fn write_value(value: Model) -> Vec<u8> {
    match value {
        Model::Empty => Vec::new(),
        Model::Str(text) => field(1, text.as_bytes()),
        Model::Bool(truth) => vec![2 << 3, truth.into()],
        Model::Int(number) => [vec![3 << 3], varint(number.cast_unsigned())].concat(),
        Model::Double(bits) => [vec![4 << 3 | 1], bits.to_le_bytes().to_vec()].concat(),
        Model::Array(values) => {
            let values: Vec<u8> = values
                .into_iter()
                .flat_map(|value| field(1, &write_value(value)))
                .collect();
            field(5, &values)
        }
        Model::Map(entries) => field(6, &write_set(entries)),
        Model::Bytes(bytes) => field(7, &bytes),
    }
}

fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    [
        vec![number << 3 | 2],
        varint(payload.len() as u64),
        payload.to_vec(),
    ]
    .concat()
}

fn varint(number: u64) -> Vec<u8> {
    match number {
        0..0x80 => vec![number as u8],
        _ => [vec![number as u8 | 0x80], varint(number >> 7)].concat(),
    }
}

fn data() -> impl Strategy<Value = Data> {
    let temporality = || {
        prop_oneof![
            Just(Temporality::Unspecified),
            Just(Temporality::Delta),
            Just(Temporality::Cumulative)
        ]
    };
    prop_oneof![
        Just(Data::Gauge),
        Just(Data::Summary),
        (any::<bool>(), temporality()).prop_map(|(monotonic, temporality)| Data::Sum {
            monotonic,
            temporality
        }),
        temporality().prop_map(|temporality| Data::Histogram { temporality }),
        temporality().prop_map(|temporality| Data::ExponentialHistogram { temporality }),
    ]
}

fn identity() -> impl Strategy<Value = Identity> {
    let sets = [some_entries(), some_entries(), some_entries()];
    let texts = prop::array::uniform6(prop_oneof!["[ab]{0,2}", ".{0,9}", "a{200,300}"]);
    (sets, texts, data()).prop_map(|(sets, texts, data)| Identity { sets, texts, data })
}

proptest! {
    #[test]
    fn an_id_is_the_hash_of_the_canonical_identity(identity in identity()) {
        prop_assert_eq!(identity.id(), Xxh3::oneshot(&identity.bytes()));
    }

    #[test]
    fn help_metadata_and_order_of_attributes_do_not_change_an_id(
        identity in identity(),
        description in ".{0,9}",
        metadata in some_entries(),
        turn in any::<prop::sample::Index>(),
    ) {
        let mut turned = identity.clone().canonical();
        for entries in turned.sets.iter_mut().filter(|entries| !entries.is_empty()) {
            let by = turn.index(entries.len());
            entries.rotate_left(by);
        }
        prop_assert_eq!(partition_id(&turned.series(&description, &metadata)), identity.id());
    }

    #[test]
    fn another_part_of_the_identity_makes_another_id(
        identity in identity(),
        other in identity(),
        part in 0usize..10,
    ) {
        let mut changed = identity.clone();
        match part {
            0..3 => changed.sets[part] = other.sets[part].clone(),
            3..9 => changed.texts[part - 3] = other.texts[part - 3].clone(),
            _ => changed.data = other.data,
        }
        let is_same = changed.clone().canonical() == identity.clone().canonical();
        prop_assert_eq!(changed.id() == identity.id(), is_same);
        let [key, changed_key] = [&identity, &changed]
            .map(|identity| Key::of(&identity.series("", &Entries::new())));
        prop_assert_eq!(key == changed_key, is_same);
    }

    /// Text that moves from one part to the next makes another identity.
    #[test]
    fn neighbouring_parts_do_not_run_into_each_other(
        identity in identity(),
        part in 0usize..5,
        text in "[ab]{1,3}",
    ) {
        let [mut first, mut second] = [identity.clone(), identity];
        first.texts[part].push_str(&text);
        second.texts[part + 1].insert_str(0, &text);
        prop_assert_ne!(first.id(), second.id());
    }
}
