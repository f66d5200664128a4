// SPDX-License-Identifier: Apache-2.0

//! Compares encoded sets with sorted maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Key;

/// A value as a tree. Its derived order is the one that values should have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Model {
    Empty,
    Str(String),
    Bool(bool),
    Int(i64),
    /// The bits of the number.
    Double(u64),
    Bytes(Vec<u8>),
    Array(Vec<Model>),
    Map(Vec<(String, Model)>),
}

pub(crate) type Entries = Vec<(String, Model)>;

impl Model {
    fn canonical(self) -> Self {
        match self {
            Self::Array(values) => Self::Array(values.into_iter().map(Self::canonical).collect()),
            Self::Map(entries) => Self::Map(canonical(entries)),
            leaf => leaf,
        }
    }

    fn value(&self) -> AttributeValue {
        match self {
            Self::Empty => AttributeValue::Empty,
            Self::Str(text) => text.as_str().into(),
            Self::Bool(truth) => (*truth).into(),
            Self::Int(number) => (*number).into(),
            Self::Double(bits) => f64::from_bits(*bits).into(),
            Self::Bytes(bytes) => AttributeValue::Bytes(bytes.as_slice().into()),
            Self::Array(values) => AttributeValue::Array(values.iter().map(Self::value).collect()),
            Self::Map(entries) => AttributeValue::Map(set(entries)),
        }
    }

    fn of(value: AttributeRef<'_>) -> Self {
        match value {
            AttributeRef::Empty => Self::Empty,
            AttributeRef::Str(text) => Self::Str(text.to_owned()),
            AttributeRef::Bool(truth) => Self::Bool(truth),
            AttributeRef::Int(number) => Self::Int(number),
            AttributeRef::Double(number) => Self::Double(number.to_bits()),
            AttributeRef::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            AttributeRef::Array(list) => Self::Array(list.iter().map(Self::of).collect()),
            AttributeRef::Map(map) => Self::Map(entries(map)),
        }
    }
}

/// Sorted, the last one of a key; nested maps too.
pub(crate) fn canonical(entries: Entries) -> Entries {
    let entries = entries.into_iter().map(|(key, value)| (key, value.canonical()));
    entries.collect::<BTreeMap<_, _>>().into_iter().collect()
}

pub(crate) fn set(entries: &Entries) -> Attributes {
    entries.iter().map(|(key, value)| (key, value.value())).collect()
}

fn entries(map: MapRef<'_>) -> Entries {
    map.iter()
        .map(|(key, value)| (key.to_owned(), Model::of(value)))
        .collect()
}

fn model() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        Just(Model::Empty),
        prop_oneof!["[ab]{0,2}", ".{0,3}", ".{120,140}"].prop_map(Model::Str),
        any::<bool>().prop_map(Model::Bool),
        prop_oneof![-2i64..2, any::<i64>()].prop_map(Model::Int),
        prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), any::<f64>()]
            .prop_map(|number: f64| Model::Double(number.to_bits())),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Model::Bytes),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Model::Array),
            prop::collection::vec((key(), inner), 0..4).prop_map(Model::Map),
        ]
    })
}

/// Few different ones, so that they meet; lengths and letters that would deceive an order by encoded bytes.
fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,3}", ".{0,2}", "a{126,130}"]
}

pub(crate) fn some_entries() -> impl Strategy<Value = Entries> {
    prop::collection::vec((key(), model()), 0..6)
}

proptest! {
    #[test]
    fn a_set_holds_what_a_sorted_map_holds(given in some_entries(), absent in key()) {
        let (set, expected) = (set(&given), canonical(given.clone()));
        prop_assert_eq!(entries(set.view()), expected.clone());
        prop_assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
        for (key, value) in &expected {
            let found = set.get(key).unwrap();
            prop_assert_eq!(&Model::of(found), value);
            // Kept by itself it is the same value, and the same text.
            prop_assert_eq!(found.to_value(), value.value());
            prop_assert_eq!(value.value().view().to_string(), found.to_string());
        }
        let known = expected.iter().any(|(key, _)| *key == absent);
        prop_assert_eq!(set.get(&absent).is_some(), known);
    }

    #[test]
    fn sets_compare_as_sorted_maps_do(a in some_entries(), b in some_entries(), turn in any::<prop::sample::Index>()) {
        let mut turned = canonical(a.clone());
        if !turned.is_empty() {
            let by = turn.index(turned.len());
            turned.rotate_left(by);
        }
        prop_assert_eq!(set(&turned), set(&a));
        let (set_a, set_b) = (set(&a), set(&b));
        let (a, b) = (canonical(a), canonical(b));
        prop_assert_eq!(set_a.cmp(&set_b), a.cmp(&b));
        prop_assert_eq!(set_a == set_b, a == b);
        prop_assert_eq!(Key::of_value(&set_a) == Key::of_value(&set_b), a == b);
        for ((_, a), (_, b)) in a.iter().zip(&b) {
            let (value_a, value_b) = (a.value(), b.value());
            prop_assert_eq!(value_a.cmp(&value_b), a.cmp(b));
            prop_assert_eq!(Key::of_value(&value_a) == Key::of_value(&value_b), a == b);
        }
    }

    #[test]
    fn sets_filter_and_merge_as_sorted_maps_do(a in some_entries(), b in some_entries()) {
        let merged = canonical(a.iter().chain(&b).cloned().collect());
        prop_assert_eq!(set(&a).merge(&set(&b)), set(&merged));
        let keep = |key: &str| key.len().is_multiple_of(2);
        let kept: Entries = a.iter().filter(|(key, _)| keep(key)).cloned().collect();
        prop_assert_eq!(set(&a).filter(keep), set(&kept));
    }

    #[test]
    fn a_builder_starts_empty_after_each_set(all in prop::collection::vec(some_entries(), 0..4)) {
        let mut builder = AttributesBuilder::default();
        for given in &all {
            for (key, value) in given {
                builder.push(key, value.value().view());
            }
            prop_assert_eq!(builder.finish(), set(given));
        }
    }

    #[test]
    fn no_bytes_are_too_strange(given in some_entries(), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let mut bytes = set(&given).encoded().to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(if cut { at } else { bytes.len() });
        }
        let strange = Attributes::of(&bytes);
        let other = strange.merge(&set(&given)).filter(|key| key != "a");
        let _ = (strange.to_string(), strange.len(), strange.get("a").map(AttributeRef::to_value), strange.cmp(&other));
    }
}

#[test]
fn order_of_entries_does_not_matter_and_the_last_duplicate_wins() {
    let a: Attributes = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
    let b: Attributes = [("a", "2"), ("b", "3")].into_iter().collect();
    assert_eq!(a, b);
    assert_eq!(a.get("b").and_then(AttributeRef::as_str), Some("3"));
    assert_eq!(a.get("c"), None);
}

#[test]
fn merging_lets_the_right_side_win() {
    let a: Attributes = [("a", "1"), ("b", "1")].into_iter().collect();
    let b: Attributes = [("b", "2")].into_iter().collect();
    assert_eq!(a.merge(&b), [("a", "1"), ("b", "2")].into_iter().collect());
}

#[test]
fn a_set_is_one_small_allocation_and_an_empty_one_is_none() {
    let set: Attributes = [("pod", "pod-123456"), ("zone", "zone-7")].into_iter().collect();
    assert_eq!(
        set.bytes(),
        16 + "pod".len() + "pod-123456".len() + "zone".len() + "zone-7".len() + 16
    );
    let empty = set.filter(|_| false);
    assert_eq!((empty.bytes(), empty.is_empty()), (0, true));
    assert!(std::ptr::eq(set.filter(|_| true).encoded(), set.encoded()));
}

#[test]
fn people_read_values_as_they_are() {
    let map: Attributes = [("k", AttributeValue::Double(0.5))].into_iter().collect();
    let list: AttributeList = [
        AttributeValue::Map(map),
        AttributeValue::Bytes([1, 0xab].into()),
        true.into(),
    ]
    .into_iter()
    .collect();
    let set = Attributes::new(vec![
        ("n".into(), (-7i64).into()),
        ("l".into(), AttributeValue::Array(list)),
    ]);
    assert_eq!(set.to_string(), "l=[{k=0.5},01ab,true],n=-7");
}
