// SPDX-License-Identifier: Apache-2.0

//! Written bytes can be read, and other bytes cannot.

use proptest::prelude::*;

use super::*;
use crate::{AttributeValue, EventKind, Events, Instrument, Lease, Schema, Source, SourceId, Values};

const INSTRUMENTS: [Instrument; 4] = [
    Instrument::Counter,
    Instrument::UpDownCounter,
    Instrument::Gauge,
    Instrument::Histogram,
];

fn value() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        Just(AttributeValue::Empty),
        ".{0,4}".prop_map(AttributeValue::from),
        any::<bool>().prop_map(AttributeValue::Bool),
        any::<i64>().prop_map(AttributeValue::Int),
        any::<f64>().prop_map(AttributeValue::Double),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| AttributeValue::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|all| AttributeValue::Array(all.into_iter().collect())),
            prop::collection::vec((".{0,2}", inner), 0..3)
                .prop_map(|all| AttributeValue::Map(all.into_iter().collect())),
        ]
    })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    prop::collection::vec((".{0,3}", value()), 0..3).prop_map(|all| all.into_iter().collect())
}

fn series() -> impl Strategy<Value = Series> {
    (attributes(), attributes(), attributes(), "[ab]", 0..DATA.len()).prop_map(
        |(resource, scope, attributes, name, data)| Series {
            resource: Arc::new(Resource {
                attributes: resource,
                schema_url: "r".into(),
            }),
            scope: Arc::new(Scope {
                name: "s".into(),
                version: "1".into(),
                attributes: scope,
                schema_url: "".into(),
            }),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "d".into(),
                unit: "By".into(),
                data: DATA[data],
                metadata: attributes.clone(),
            }),
            attributes,
        },
    )
}

proptest! {
    #[test]
    fn series_come_back_as_they_were(all in prop::collection::vec(series(), 0..6)) {
        let mut writer = IdentityWriter::default();
        all.iter().chain(&all).for_each(|series| writer.series(series));
        let mut reader = IdentityReader::new(&writer.bytes);
        for series in all.iter().chain(&all) {
            let back = reader.series();
            prop_assert_eq!(back.as_ref(), Some(series));
        }
        prop_assert!(reader.bytes.is_empty());
    }

    #[test]
    fn events_come_back_with_the_kinds_they_have(
        events in prop::collection::vec((0u16..4, any::<u64>(), any::<f64>()), 0..8),
        whole: bool,
        attributes in attributes(),
    ) {
        let kinds = INSTRUMENTS.iter().enumerate().map(|(at, instrument)| EventKind {
            name: format!("k{at}").into(),
            description: "".into(),
            unit: "s".into(),
            instrument: *instrument,
            attributes: attributes.clone(),
        });
        let batch = Events {
            source: Arc::new(Source {
                id: SourceId::next(),
                resource: Arc::default(),
                scope: Arc::default(),
                attributes: attributes.clone(),
                lease: Arc::new(Lease::new(std::time::Duration::from_secs(1), 1)),
            }),
            schema: Arc::new(Schema { kinds: kinds.collect() }),
            kinds: events.iter().map(|(kind, _, _)| *kind).collect(),
            values: if whole {
                Values::U64(events.iter().map(|(_, value, _)| *value).collect())
            } else {
                Values::F64(events.iter().map(|(_, _, value)| *value).collect())
            },
            times: whole.then(|| events.iter().map(|(_, time, _)| *time).collect()),
            weights: (!whole).then(|| events.iter().map(|(_, _, weight)| *weight).collect()),
            observed: 7,
        };
        let mut bytes = Vec::new();
        batch.save(&mut bytes);
        let back = Events::load(&bytes, 9).unwrap();
        prop_assert!(!back.source.lease.is_alive(9));
        prop_assert_eq!(&back.source.attributes, &attributes);
        let named = |events: &Events| -> Vec<EventKind> {
            events.kinds.iter().map(|kind| events.schema.kinds[usize::from(*kind)].clone()).collect()
        };
        prop_assert_eq!(named(&back), named(&batch));
        prop_assert_eq!(format!("{:?}", (&back.values, &back.times, &back.weights, back.observed)),
            format!("{:?}", (&batch.values, &batch.times, &batch.weights, batch.observed)));
        for length in 0..bytes.len() {
            prop_assert!(Events::load(&bytes[..length], 9).is_none());
        }
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        Events::load(&bytes, 1);
        let mut reader = IdentityReader::new(&bytes);
        while reader.series().is_some() {}
    }
}
