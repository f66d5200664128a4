// SPDX-License-Identifier: Apache-2.0

mod stored;

use std::time::Duration;

use proptest::prelude::*;
use tidegate_engine::{
    CompactedPart, CompactedTotal, Histogram, Key, RetainedTotal, RunReport, Scope, SubWindow, Temporality,
    Value,
};

use super::*;
use crate::ProducerName;

fn producer() -> ProducerName {
    ProducerName::new("node-1").unwrap()
}

fn series(name: &str, data: Data) -> Series {
    Series {
        resource: Arc::new(Resource {
            attributes: [("service.name", "s")].into_iter().collect(),
            schema_url: "u".into(),
        }),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "d".into(),
            unit: "1".into(),
            data,
            metadata: [("prometheus.type", "counter")].into_iter().collect(),
        }),
        attributes: [("k", "v")].into_iter().collect(),
    }
}

fn counter(name: &str) -> Series {
    series(
        name,
        Data::Sum {
            monotonic: true,
            temporality: Temporality::Cumulative,
        },
    )
}

fn headers() -> PageHeaders {
    PageHeaders {
        kind: PageKind::Page,
        sequence: 7,
        epoch: 5,
        rules: 0xab,
        interval: Duration::from_millis(200),
    }
}

fn decode(body: &bytes::Bytes) -> Result<DecodedPage, PageError> {
    decode_page(&producer(), &headers(), body, PageLimits::default())
}

fn run(start: u64, value: Value) -> RunReport {
    RunReport {
        producer: producer().id(),
        epoch: 5,
        start,
        sequence: 7,
        time: start + 1,
        mode: MergeMode::Add,
        value,
    }
}

#[test]
fn a_page_gives_back_the_values_and_the_series() {
    let mut writer = PageWriter::new(&producer());
    let (total, level) = (counter("c"), series("g", Data::Gauge));
    writer.value(&total, MergeMode::Add, (3, 4), Value::Int(10));
    writer.value(&level, MergeMode::Max, (0, 4), Value::Double(1.5));
    let page = decode(&writer.finish()).unwrap();
    let expected = [
        (total, run(3, Value::Int(10))),
        (
            level,
            RunReport {
                start: 0,
                mode: MergeMode::Max,
                ..run(3, Value::Double(1.5))
            },
        ),
    ];
    assert_eq!(page.reports.len(), 2);
    for (found, (series, report)) in page.reports.iter().zip(expected) {
        assert_eq!((&*found.series, found.key), (&series, Key::of(&series)));
        assert_eq!(found.report, report);
    }
}

#[test]
fn a_level_that_has_ended_is_named() {
    let mut writer = PageWriter::new(&producer());
    let level = series("g", Data::Gauge);
    writer.value(&level, MergeMode::Last, (0, 4), Value::NoRecordedValue);
    let page = decode(&writer.finish()).unwrap();
    assert_eq!((page.ended, page.reports.len()), (vec![Key::of(&level)], 0));
}

#[test]
fn a_window_gives_back_its_sub_windows() {
    let part = |start, count: f64, distribution| SubWindow {
        start,
        end: start + 10,
        count,
        sum: 2.5,
        min: Some(1.0),
        max: Some(1.5),
        last: None,
        distribution,
    };
    let mut distribution = tidegate_engine::ExponentialHistogram {
        count: 2,
        sum: Some(2.5),
        min: Some(1.0),
        max: Some(1.5),
        ..Default::default()
    };
    distribution.positive.counts = vec![2];
    let window = [
        part(10, 2.0, Some(distribution)),
        part(20, 2.0, None),
        part(30, 0.0, None),
    ];
    let group = [("model", "m")].into_iter().collect();
    let mut writer = PageWriter::new(&producer());
    writer.window(&"p99".into(), &group, &window);
    let page = decode(&writer.finish()).unwrap();
    let found: Vec<_> = page.windows.into_iter().map(|window| window.part).collect();
    assert_eq!(found, window);
}

#[test]
fn a_page_with_too_many_series_is_refused() {
    let page = |count: usize| {
        let mut writer = PageWriter::new(&producer());
        for at in 0..count {
            writer.value(&counter(&format!("c{at}")), MergeMode::Add, (1, 2), Value::Int(1));
        }
        decode(&writer.finish())
    };
    assert_eq!(page(256).unwrap().reports.len(), 256);
    assert_eq!(page(257), Err(PageError::TooManySeries));
}

#[test]
fn limits_of_bytes_are_checked_first() {
    let body: bytes::Bytes = vec![0xff_u8; 100].into();
    let limits = PageLimits {
        max_body_bytes: 99,
        max_decoded_bytes: 1,
    };
    let decoded = decode_page(&producer(), &headers(), &body, limits);
    assert_eq!(decoded, Err(PageError::TooLarge { bytes: 100, most: 99 }));
    let mut writer = PageWriter::new(&producer());
    writer.value(&counter("c"), MergeMode::Add, (1, 2), Value::Int(1));
    let limits = PageLimits {
        max_body_bytes: 1000,
        ..limits
    };
    let decoded = decode_page(&producer(), &headers(), &writer.finish(), limits);
    assert_eq!(decoded, Err(PageError::TooHeavy(1)));
}

#[test]
fn a_page_of_another_producer_is_refused() {
    let mut writer = PageWriter::new(&ProducerName::new("node-2").unwrap());
    writer.value(&counter("c"), MergeMode::Add, (1, 2), Value::Int(1));
    assert_eq!(decode(&writer.finish()), Err(PageError::Producer));
}

#[test]
fn deltas_are_refused() {
    let data = Data::Histogram {
        temporality: Temporality::Delta,
    };
    let mut writer = PageWriter::new(&producer());
    let value = Value::Histogram(Box::new(Histogram::empty([1.0].into())));
    writer.value(&series("h", data), MergeMode::Add, (1, 2), value);
    assert_eq!(decode(&writer.finish()), Err(PageError::Delta));
}

#[test]
fn headers_survive_and_wrong_ones_are_named() {
    let written = headers().write();
    assert_eq!(PageHeaders::parse(&written), Ok(headers()));
    let changed = |at: usize, value: &str| {
        let mut headers = written.clone();
        headers[at].1 = value.to_owned();
        PageHeaders::parse(&headers)
    };
    assert_eq!(changed(0, "2"), Err(PageError::Version("2".to_owned())));
    assert!(changed(0, "2").unwrap_err().is_newer());
    assert_eq!(changed(1, "-1"), Err(PageError::Header("tg-seq")));
    assert_eq!(changed(3, "other"), Err(PageError::Header("tg-kind")));
    assert_eq!(changed(5, "soon"), Err(PageError::Header("tg-interval")));
    assert_eq!(
        PageHeaders::parse(&written[1..]),
        Err(PageError::MissingHeader("tg-v"))
    );
}

#[test]
fn an_interval_is_a_second_unless_it_is_written_and_never_zero() {
    let second = PageHeaders {
        interval: Duration::from_secs(1),
        ..headers()
    };
    let mut written = second.write();
    assert!(written.iter().all(|(name, _)| name != "tg-interval"));
    assert_eq!(PageHeaders::parse(&written), Ok(second));
    written.push(("tg-interval".to_owned(), "0".to_owned()));
    let shortest = PageHeaders::parse(&written).unwrap().interval;
    assert_eq!(shortest, Duration::from_millis(100));
}

#[test]
fn a_record_gives_back_the_runs_and_the_compacted_sums() {
    let compacted = CompactedTotal {
        start: 1,
        starts: vec![1, 2, u64::MAX],
        runs: 9,
        parts: vec![
            CompactedPart {
                start: 1,
                time: 2,
                value: Value::Int(4),
            },
            CompactedPart {
                start: 2,
                time: 3,
                value: Value::Double(0.5),
            },
        ],
    };
    let record = |name: &str, compacted| {
        let series = Arc::new(counter(name));
        RetainedSeries {
            key: Key::of(&series),
            series,
            total: RetainedTotal {
                producer: producer().id(),
                compacted,
                runs: vec![run(7, Value::Int(1)), run(8, Value::Int(2))],
            },
        }
    };
    let mut totals = vec![record("a", Some(compacted)), record("b", None)];
    let body = encode_record(&producer(), &totals);
    assert_eq!(
        decode_record(&producer(), &body, PageLimits::default()),
        Ok(totals.clone())
    );
    let digest = RecordDigest::of(&producer(), &totals);
    totals.reverse();
    assert_eq!(RecordDigest::of(&producer(), &totals), digest);
    totals[0].total.runs[0].value = Value::Int(3);
    let changed = RecordDigest::of(&producer(), &totals);
    assert_ne!(changed.content, digest.content);
    assert_eq!(changed.runs, digest.runs);
    totals[0].total.runs.pop();
    assert_ne!(RecordDigest::of(&producer(), &totals).runs, digest.runs);
}

proptest! {
    #[test]
    fn any_bytes_are_a_page_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes.clone().into());
        let _ = decode_record(&producer(), &bytes.into(), PageLimits::default());
    }

    /// Bytes that are almost a page.
    #[test]
    fn a_damaged_page_is_a_page_or_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut writer = PageWriter::new(&producer());
        writer.value(&counter("c"), MergeMode::Add, (1, 2), Value::Int(1));
        let mut bytes = writer.finish().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes.clone().into());
        let _ = decode_record(&producer(), &bytes.into(), PageLimits::default());
    }
}

#[test]
fn a_stream_comes_back_under_a_producer_that_no_gateway_decides() {
    let total = tidegate_engine::StreamTotal {
        time: 4,
        value: Value::Int(10),
    };
    let decoded = |gateway: &str| {
        let gateway = ProducerName::new(gateway).unwrap();
        let mut writer = PageWriter::new(&gateway);
        writer.stream(&counter("c"), 3, &total);
        let body = writer.finish();
        let page = decode_page(&gateway, &headers(), &body, PageLimits::default());
        page.unwrap().reports.remove(0)
    };
    let [one, other] = ["node-1", "node-2"].map(decoded);
    assert_eq!(one, other);
    let streams = crate::name::StreamProducer::of(&counter("c"));
    assert_eq!(one.report, total.report(streams.id, 5, 3));
    assert_eq!(*one.series, counter("c"));
}

#[test]
fn a_stream_of_gauges_is_refused() {
    let mut writer = PageWriter::new(&producer());
    let total = tidegate_engine::StreamTotal {
        time: 4,
        value: Value::Int(10),
    };
    writer.stream(&series("g", Data::Gauge), 3, &total);
    assert_eq!(decode(&writer.finish()), Err(PageError::Stream));
}
