// SPDX-License-Identifier: Apache-2.0

//! Requests with too many elements, or with messages in pieces.

use super::*;
use crate::wire::MAX_NAME_BYTES;

#[test]
fn what_describes_too_much_is_cut_out_with_its_items_and_the_others_stay() {
    let many = || vec![attribute("k", "v"); MAX_ELEMENTS];
    let good = || tidegate_requests::request(Vec::new(), "", [gauge(2)]);
    let heavy_resource = tidegate_requests::request(many(), "", [gauge(1)]);
    let mut heavy_scope = tidegate_requests::request(Vec::new(), "", [gauge(3)]);
    let scope = &mut heavy_scope.resource_metrics[0].scope_metrics[0].scope;
    scope.get_or_insert_default().attributes = many();
    let mut empty_scope = heavy_scope.clone();
    empty_scope.resource_metrics[0].scope_metrics[0].metrics.clear();
    let metric = |change: &dyn Fn(&mut metrics::Metric)| {
        let mut metric = gauge(1);
        change(&mut metric);
        tidegate_requests::request(Vec::new(), "", [metric])
    };
    let long = "y".repeat(MAX_NAME_BYTES + 1);
    let table = [
        (heavy_resource, 1),
        (heavy_scope, 3),
        (empty_scope, 0),
        (metric(&|metric| metric.metadata = [many(), many()].concat()), 1),
        (metric(&|metric| metric.name = long.clone()), 1),
        (metric(&|metric| metric.description = long.clone()), 1),
        (metric(&|metric| metric.unit = long.clone()), 1),
    ];
    for (absurd, cut) in table {
        let mut both = absurd.clone();
        both.resource_metrics.extend(good().resource_metrics);
        let checked = weigh(Signal::Metrics, both.encode_to_vec().into(), |_| true).unwrap();
        assert_eq!((checked.cut, checked.encoded.items()), (Some(cut), 2));
        let left = ExportMetricsServiceRequest::decode(checked.encoded.joined()).unwrap();
        assert_eq!(left.resource_metrics, good().resource_metrics);
        // It is a copy, which needs room.
        let bytes = both.encode_to_vec();
        let refused = weigh(Signal::Metrics, bytes.clone().into(), |_| false);
        assert_eq!(refused.unwrap_err(), CheckError::NoRoom(bytes.len()));
    }
    let sound = metric(&|metric| {
        metric.name = long[1..].to_owned();
        metric.metadata = many();
    });
    let checked = weigh(Signal::Metrics, sound.encode_to_vec().into(), |_| true).unwrap();
    assert_eq!((checked.cut, checked.encoded.items()), (None, 1));
}

#[test]
fn the_number_of_elements_is_whose_receiver_it_is() {
    let request = || Bytes::from(with_attributes(&[9, 11], &attribute("k", "v")).encode_to_vec());
    let of = |max| super::super::weigh(Signal::Metrics, request(), max, |_| true).unwrap();
    assert_eq!((of(12).cut, of(12).encoded.items()), (None, 2));
    assert_eq!((of(11).cut, of(11).encoded.items()), (Some(1), 1));
}

#[test]
fn a_histogram_with_too_many_buckets_is_cut_out() {
    const MAX: usize = 1000;
    const BOUNDS: u32 = 7;
    let point = |buckets: usize| metrics::HistogramDataPoint {
        bucket_counts: vec![1; buckets],
        explicit_bounds: (1..buckets).map(|bound| bound as f64).collect(),
        ..metrics::HistogramDataPoint::default()
    };
    // Each bound under a tag of its own.
    let bound = [&[(BOUNDS as u8) << 3 | 1][..], &1.0_f64.to_le_bytes()].concat();
    let checked = |points: &[Vec<u8>]| {
        let (mut histogram, mut metric, mut scope, mut resource, mut request) =
            <(Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>)>::default();
        points
            .iter()
            .for_each(|point| push_message(&mut histogram, 1, point));
        push_message(&mut metric, 9, &histogram);
        push_message(&mut scope, 2, &metric);
        push_message(&mut resource, 2, &scope);
        push_message(&mut request, 1, &resource);
        let checked = super::super::weigh(Signal::Metrics, request.into(), MAX, |_| true).unwrap();
        (checked.cut, checked.encoded.items())
    };
    let sound = point(MAX).encode_to_vec();
    assert_eq!(checked(&[sound.clone(), bound.repeat(MAX - 1)]), (None, 2));
    for absurd in [point(MAX + 1).encode_to_vec(), bound.repeat(MAX + 1)] {
        assert_eq!(checked(&[sound.clone(), absurd]), (Some(1), 1));
    }
}

#[test]
fn a_message_in_pieces_weighs_what_prost_makes_of_it() {
    const SPANS: usize = 100_000;
    // `resource` twice, and spans without content.
    let spans = [0x12, 0x00].repeat(SPANS);
    let (mut resource, mut request) = (vec![0x0a, 0x00, 0x0a, 0x00], Vec::new());
    push_message(&mut resource, 2, &spans);
    push_message(&mut request, 1, &resource);
    let mut asked = 0;
    let checked = weigh(Signal::Traces, request.clone().into(), |weight| {
        asked = weight;
        true
    });
    assert_eq!(checked.unwrap().encoded.items(), SPANS);
    let decoded = ExportTraceServiceRequest::decode(&*request).unwrap();
    let spans = &decoded.resource_spans[0].scope_spans[0].spans;
    let (old, new) = (spans.capacity() / 2, spans.capacity());
    assert!(asked >= (old + new) * size_of::<trace::Span>(), "{asked}");
}
