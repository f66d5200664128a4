//! Checking and counting, held against prost's trees.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::{logs::v1 as logs, metrics::v1 as metrics, trace::v1 as trace};
use proptest::prelude::*;
use prost::Message;

use super::check;
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
    fn what_prost_takes_is_taken_and_counted_alike(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let tree = ExportMetricsServiceRequest::decode(bytes.as_slice());
        let checked = check(Signal::Metrics, bytes.into());
        if let Ok(tree) = tree {
            let encoded = tree.encode_to_vec();
            let again = check(Signal::Metrics, encoded.into()).unwrap();
            // Prost merges repeated singular messages and keeps the last of a oneof, so only a re-encoded tree counts alike.
            prop_assert!(checked.is_err() || checked.unwrap().items() >= again.items());
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200), signal in 0usize..3) {
        let _ = check(Signal::ALL[signal], bytes.into());
    }
}
