// SPDX-License-Identifier: Apache-2.0

//! Edits on the wire, held against the same edits of prost's trees.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message;
use tidegate_engine::AttributeValue;
use tidegate_requests::{attribute, gauge, int};

use super::*;
use crate::wire::attributes::{AttributeSet, WireAttributes};
use crate::wire::check;
use crate::wire::edit::push_message;

fn data_point(number: i64, attributes: &[String]) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes.iter().map(|key| attribute(key, "v")).collect(),
        ..int(number)
    }
}

fn request() -> impl Strategy<Value = ExportMetricsServiceRequest> {
    let point =
        (0i64..10, prop::collection::vec("[ab]{1,2}", 0..3)).prop_map(|(n, keys)| data_point(n, &keys));
    let metric = ("[ab]", prop::collection::vec(point, 0..4)).prop_map(|(name, points)| gauge(name, points));
    let scope = prop::collection::vec(metric, 0..3).prop_map(|metrics| ScopeMetrics {
        metrics,
        schema_url: "s".into(),
        ..Default::default()
    });
    let resource = (
        prop::option::of("[a-z]{0,200}"),
        prop::collection::vec(scope, 0..3),
    );
    let resource = resource.prop_map(|(text, scope_metrics)| ResourceMetrics {
        resource: text.map(|text| Resource {
            attributes: vec![attribute("r", &text)],
            ..Default::default()
        }),
        scope_metrics,
        ..Default::default()
    });
    prop::collection::vec(resource, 0..3)
        .prop_map(|resource_metrics| ExportMetricsServiceRequest { resource_metrics })
}

/// Applies to wire and tree alike: drops odd points and metrics named `b`, adds an attribute to the rest, sets one of
/// the resource.
struct Edit;

impl Visitor for Edit {
    fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        if resource.missing_at.is_none() {
            let mut set = WireAttributes::read(resource.message, 1, editor);
            set.set("r", AttributeValue::from("changed"));
            set.write(editor);
        }
        true
    }

    fn metric(&mut self, name: &[u8]) -> bool {
        name != b"b"
    }

    fn item(&mut self, item: &Item<'_>, editor: &mut Editor<'_>) -> bool {
        let point = NumberDataPoint::decode(item.message).unwrap();
        let Some(number_data_point::Value::AsInt(number)) = point.value else {
            return true;
        };
        if number % 2 == 1 {
            return false;
        }
        let mut set = WireAttributes::read(item.message, item.kind.attributes_field(), editor);
        set.remove("a");
        set.set("new", AttributeValue::from("x"));
        set.write(editor);
        true
    }
}

/// Keeps what was empty from the start, and not what the change empties.
fn retain<T>(items: &mut Vec<T>, is_empty: impl Fn(&T) -> bool, mut change: impl FnMut(&mut T)) {
    items.retain_mut(|item| {
        let was_empty = is_empty(item);
        change(item);
        was_empty || !is_empty(item)
    });
}

fn edited(mut request: ExportMetricsServiceRequest) -> ExportMetricsServiceRequest {
    let no_scopes = |resource: &ResourceMetrics| resource.scope_metrics.is_empty();
    retain(&mut request.resource_metrics, no_scopes, |resource| {
        if let Some(resource) = &mut resource.resource {
            resource.attributes = vec![attribute("r", "changed")];
        }
        let no_metrics = |scope: &ScopeMetrics| scope.metrics.is_empty();
        retain(&mut resource.scope_metrics, no_metrics, |scope| {
            scope.metrics.retain(|metric| metric.name != "b");
            let no_points = |metric: &Metric| match &metric.data {
                Some(metric::Data::Gauge(gauge)) => gauge.data_points.is_empty(),
                _ => true,
            };
            retain(&mut scope.metrics, no_points, |metric| {
                let Some(metric::Data::Gauge(gauge)) = &mut metric.data else {
                    return;
                };
                gauge.data_points.retain(|point| {
                    !matches!(point.value, Some(number_data_point::Value::AsInt(number)) if number % 2 == 1)
                });
                for point in &mut gauge.data_points {
                    point.attributes.retain(|pair| pair.key != "a");
                    point.attributes.push(attribute("new", "x"));
                }
            });
        });
    });
    request
}

fn decoded(encoded: &Encoded) -> ExportMetricsServiceRequest {
    match encoded.parts.first() {
        Some(part) => ExportMetricsServiceRequest::decode(part.bytes.clone()).expect("edits leave protobuf"),
        None => ExportMetricsServiceRequest::default(),
    }
}

struct Nothing;
impl Visitor for Nothing {}

proptest! {
    #[test]
    fn edits_on_the_wire_are_those_of_the_tree(request in request()) {
        let encoded = check(Signal::Metrics, request.encode_to_vec().into()).unwrap();
        let after = edit(&encoded, &mut Edit).unwrap();
        let expected = edited(request);
        prop_assert_eq!(decoded(&after), expected.clone());
        let recounted = check(Signal::Metrics, expected.encode_to_vec().into()).unwrap();
        prop_assert_eq!(after.items(), recounted.items());
    }

    #[test]
    fn a_walk_without_edits_shares_the_bytes(request in request()) {
        let encoded = check(Signal::Metrics, request.encode_to_vec().into()).unwrap();
        let after = edit(&encoded, &mut Nothing).unwrap();
        prop_assert_eq!(encoded.parts.len(), after.parts.len());
        for (before, after) in encoded.parts.iter().zip(&after.parts) {
            prop_assert_eq!(before.bytes.as_ptr(), after.bytes.as_ptr());
        }
    }

    #[test]
    fn whatever_was_checked_can_be_walked(bytes in prop::collection::vec(any::<u8>(), 0..100), signal in 0usize..3) {
        if let Ok(encoded) = check(Signal::ALL[signal], bytes.into()) {
            let _ = edit(&encoded, &mut Nothing);
        }
    }
}

#[test]
fn a_resource_in_two_pieces_behind_its_scopes_is_one_resource() {
    let resource = |key: &str| {
        Resource {
            attributes: vec![attribute(key, "1")],
            ..Default::default()
        }
        .encode_to_vec()
    };
    let metric = Metric {
        name: "a".into(),
        data: Some(metric::Data::Gauge(Gauge {
            data_points: vec![data_point(2, &[])],
        })),
        ..Default::default()
    };
    let scope = ScopeMetrics {
        metrics: vec![metric],
        ..Default::default()
    }
    .encode_to_vec();
    let mut inner = Vec::new();
    push_message(&mut inner, 2, &scope);
    push_message(&mut inner, 1, &resource("r"));
    push_message(&mut inner, 1, &resource("second"));
    let mut bytes = Vec::new();
    push_message(&mut bytes, 1, &inner);
    let encoded = check(Signal::Metrics, bytes.into()).unwrap();
    let after = decoded(&edit(&encoded, &mut Edit).unwrap());
    let found = after.resource_metrics[0].resource.clone().unwrap().attributes;
    assert_eq!(found, [attribute("r", "changed"), attribute("second", "1")]);
}
