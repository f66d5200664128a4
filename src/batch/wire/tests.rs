//! Checking and counting, held against prost's trees.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::{logs::v1 as logs, metrics::v1 as metrics, trace::v1 as trace};
use proptest::prelude::*;
use prost::Message;

use super::check;
use super::edit::push_message;
use crate::batch::Signal;

fn gauge(points: usize) -> metrics::Metric {
    let point = metrics::NumberDataPoint {
        time_unix_nano: 7,
        ..Default::default()
    };
    let gauge = metrics::Gauge {
        data_points: vec![point; points],
    };
    metrics::Metric {
        name: "m".into(),
        data: Some(metrics::metric::Data::Gauge(gauge)),
        ..Default::default()
    }
}

fn request(points: &[usize]) -> ExportMetricsServiceRequest {
    let scope = metrics::ScopeMetrics {
        metrics: points.iter().map(|n| gauge(*n)).collect(),
        ..Default::default()
    };
    let resource = metrics::ResourceMetrics {
        scope_metrics: vec![scope.clone(), scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    }
}

#[test]
fn items_of_every_signal_are_counted() {
    let bytes = request(&[3, 0, 2]).encode_to_vec();
    assert_eq!(check(Signal::Metrics, bytes.into()).unwrap().items(), 10);

    let scope = trace::ScopeSpans {
        spans: vec![trace::Span::default(); 4],
        ..Default::default()
    };
    let spans = trace::ResourceSpans {
        scope_spans: vec![scope],
        ..Default::default()
    };
    let bytes = ExportTraceServiceRequest {
        resource_spans: vec![spans],
    }
    .encode_to_vec();
    assert_eq!(check(Signal::Traces, bytes.into()).unwrap().items(), 4);

    let scope = logs::ScopeLogs {
        log_records: vec![logs::LogRecord::default(); 5],
        ..Default::default()
    };
    let records = logs::ResourceLogs {
        scope_logs: vec![scope],
        ..Default::default()
    };
    let bytes = ExportLogsServiceRequest {
        resource_logs: vec![records],
    }
    .encode_to_vec();
    assert_eq!(check(Signal::Logs, bytes.into()).unwrap().items(), 5);
    assert_eq!(check(Signal::Logs, Bytes::new()).unwrap().items(), 0);
}

#[test]
fn errors_say_where() {
    let error = |bytes: &'static [u8]| {
        check(Signal::Metrics, Bytes::from_static(bytes))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error(&[0x08, 1]), "not a message in `resource_metrics`");
    assert_eq!(
        error(&[0x0a, 4, 0x12, 2, 0x12, 9]),
        "a value that ends beyond its message in `resource_metrics.scope_metrics`"
    );
    assert_eq!(error(&[0x0b]), "an unknown wire type in ``");
}

#[test]
fn a_request_cut_off_anywhere_is_refused_or_shorter() {
    let whole = request(&[2, 1]).encode_to_vec();
    for end in 1..whole.len() {
        assert!(
            check(Signal::Metrics, Bytes::copy_from_slice(&whole[..end])).is_err(),
            "cut at {end}"
        );
    }
}

proptest! {
    #[test]
    fn what_both_take_is_counted_alike(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agree(bytes)?;
    }

    #[test]
    fn what_both_take_is_counted_alike_near_requests(
        points in prop::collection::vec(0..3_usize, 0..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = request(&points).encode_to_vec();
        if !bytes.is_empty() {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        agree(bytes)?;
    }

    #[test]
    fn pieces_are_merged_and_the_last_kind_of_data_counts(pieces in prop::collection::vec(piece(), 1..6)) {
        let mut metric = Vec::new();
        for (number, points) in &pieces {
            let points: Vec<u8> = std::iter::repeat_n([0x0a, 0], *points).flatten().collect();
            push_message(&mut metric, *number, &points);
        }
        let mut scope = Vec::new();
        push_message(&mut scope, 1, &[0x0a, 1, b'x']);
        push_message(&mut scope, 2, &metric);
        push_message(&mut scope, 1, &[0x12, 1, b'1']);
        let (mut resource, mut request) = (Vec::new(), Vec::new());
        push_message(&mut resource, 2, &scope);
        push_message(&mut request, 1, &resource);
        prop_assert!(agree(request)?, "it is a request");
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200), signal in 0usize..3) {
        let _ = check(Signal::ALL[signal], bytes.into());
    }
}

/// A kind of data by its field number, and how many points.
fn piece() -> impl Strategy<Value = (u32, usize)> {
    (prop::sample::select(vec![5_u32, 7, 9, 10, 11]), 0..3_usize)
}

/// Whether `check` and prost both take it; then they must count alike, and what `check` gives must be the same tree.
fn agree(bytes: Vec<u8>) -> Result<bool, TestCaseError> {
    let tree = ExportMetricsServiceRequest::decode(bytes.as_slice());
    let (Ok(tree), Ok(checked)) = (tree, check(Signal::Metrics, bytes.into())) else {
        return Ok(false);
    };
    prop_assert_eq!(checked.items(), count(&tree));
    let again = ExportMetricsServiceRequest::decode(checked.parts[0].bytes.clone());
    prop_assert_eq!(again.unwrap(), tree);
    Ok(true)
}

fn count(request: &ExportMetricsServiceRequest) -> usize {
    use metrics::metric::Data;
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics);
    let data = scopes
        .flat_map(|scope| &scope.metrics)
        .filter_map(|metric| metric.data.as_ref());
    data.map(|data| match data {
        Data::Gauge(data) => data.data_points.len(),
        Data::Sum(data) => data.data_points.len(),
        Data::Histogram(data) => data.data_points.len(),
        Data::ExponentialHistogram(data) => data.data_points.len(),
        Data::Summary(data) => data.data_points.len(),
    })
    .sum()
}
