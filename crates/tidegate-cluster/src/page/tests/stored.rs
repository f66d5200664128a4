// SPDX-License-Identifier: Apache-2.0

//! Messages of version 1 of the format, which stores of clusters have. The present build reads them, and it writes the same
//! bytes. So builds of this version read what it writes.

use bytes::Bytes;
use tidegate_engine::{AttributeValue, ExponentialHistogram, StreamTotal};

use super::*;
use crate::testing::{COUNTER, stored_message};
use crate::{StoreMessage, Subject};

/// Checks the subject and the headers of a message.
fn assert_has(stored: &StoreMessage, subject: &Subject, headers: &PageHeaders) {
    assert_eq!(Subject::parse("c", &stored.subject).as_ref(), Some(subject));
    assert_eq!(subject.text("c"), stored.subject);
    assert_eq!(PageHeaders::parse(&stored.headers).as_ref(), Ok(headers));
    assert_eq!(headers.write(), stored.headers);
}

fn page_subject(page: u32) -> Subject {
    Subject::Page {
        partition: 0,
        run: crate::RunName {
            producer: producer(),
            epoch: 5,
        },
        page,
    }
}

/// The headers of a producer with the default interval.
fn plain_headers() -> PageHeaders {
    PageHeaders {
        interval: Duration::from_secs(1),
        ..headers()
    }
}

/// The body of a page.
fn body(write: impl FnOnce(&mut PageWriter)) -> Bytes {
    let mut writer = PageWriter::new(&producer());
    write(&mut writer);
    writer.finish()
}

#[test]
fn a_stored_page_is_read_and_written_as_before() {
    let stored = stored_message("page");
    assert_has(&stored, &page_subject(1), &headers());
    let histogram = Histogram {
        count: 3,
        sum: Some(4.5),
        min: Some(0.5),
        max: Some(3.0),
        bounds: [1.0, 5.0].into(),
        counts: vec![2, 1, 0],
    };
    let cumulative = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let values = [
        (counter("c"), MergeMode::Add, 3, Value::Int(10)),
        (series("g", Data::Gauge), MergeMode::Max, 0, Value::Double(1.5)),
        (
            series("h", cumulative),
            MergeMode::Add,
            3,
            Value::Histogram(Box::new(histogram)),
        ),
    ];
    let ended = series("e", Data::Gauge);
    let page = decode(&stored.body).unwrap();
    assert_eq!((page.ended, page.windows), (vec![Key::of(&ended)], Vec::new()));
    assert_eq!(page.reports.len(), values.len());
    for (found, (series, mode, start, value)) in page.reports.iter().zip(&values) {
        let report = RunReport {
            start: *start,
            mode: *mode,
            ..run(3, value.clone())
        };
        assert_eq!((&*found.series, found.key), (series, Key::of(series)));
        assert_eq!(found.report, report);
    }
    let written = body(|writer| {
        for (series, mode, start, value) in values {
            writer.value(&series, mode, (start, 4), value);
        }
        writer.value(&ended, MergeMode::Last, (0, 4), Value::NoRecordedValue);
    });
    assert_eq!(written, stored.body);
}

#[test]
fn a_stored_page_of_a_stream_is_read_and_written_as_before() {
    let stored = stored_message("stream");
    assert_has(&stored, &page_subject(2), &plain_headers());
    let schema = "https://opentelemetry.io/schemas/1.38.0";
    let stream = Series {
        resource: Arc::new(Resource {
            attributes: [("service.name", "engine"), ("service.instance.id", "gpu-7")]
                .into_iter()
                .collect(),
            schema_url: schema.into(),
        }),
        scope: Arc::new(Scope {
            name: "vllm".into(),
            version: "0.19".into(),
            attributes: [("short_name", "v")].into_iter().collect(),
            schema_url: schema.into(),
        }),
        metric: Arc::new(Metric {
            name: "requests".into(),
            description: "".into(),
            unit: "{request}".into(),
            data: COUNTER,
            metadata: Attributes::default(),
        }),
        attributes: [
            ("model", AttributeValue::from("llama")),
            ("rank", AttributeValue::Int(3)),
        ]
        .into_iter()
        .collect(),
    };
    let total = StreamTotal {
        time: 4,
        value: Value::Int(10),
    };
    // Its partition id is a test vector of the engine: it begins with 02.
    let streams = ProducerName::new("tidegate.streams.02").unwrap();
    let report = PageReport {
        key: Key::of(&stream),
        report: total.clone().report(streams.id(), 5, 3),
        series: Arc::new(stream.clone()),
    };
    let page = decode(&stored.body).unwrap();
    assert_eq!(page.reports, [report]);
    assert_eq!(body(|writer| writer.stream(&stream, 3, &total)), stored.body);
}

#[test]
fn a_stored_window_is_read_and_written_as_before() {
    let stored = stored_message("window");
    assert_has(&stored, &page_subject(3), &plain_headers());
    let mut distribution = ExponentialHistogram {
        count: 2,
        sum: Some(2.5),
        min: Some(1.0),
        max: Some(1.5),
        ..ExponentialHistogram::default()
    };
    distribution.positive.counts = vec![2];
    let part = |start, distribution| SubWindow {
        start,
        end: start + 10,
        count: 2.0,
        sum: 2.5,
        min: Some(1.0),
        max: Some(1.5),
        last: None,
        distribution,
    };
    let parts = [part(10, Some(distribution)), part(20, None)];
    let group: Attributes = [("model", "m")].into_iter().collect();
    let expected = parts.clone().map(|part| WindowReport {
        composite: "p99".into(),
        group: group.clone(),
        part,
    });
    let page = decode(&stored.body).unwrap();
    assert_eq!(page.windows, expected);
    let written = body(|writer| writer.window(&"p99".into(), &group, &parts));
    assert_eq!(written, stored.body);
}

#[test]
fn a_stored_record_is_read_and_written_as_before() {
    let stored = stored_message("record");
    let subject = Subject::Retained {
        partition: 0,
        producer: producer(),
    };
    assert_has(&stored, &subject, &PageHeaders::RETAINED);
    let part = |start, value| CompactedPart {
        start,
        time: start + 1,
        value,
    };
    let series = Arc::new(counter("c"));
    let totals = vec![RetainedSeries {
        key: Key::of(&series),
        series,
        total: RetainedTotal {
            producer: producer().id(),
            compacted: Some(CompactedTotal {
                start: 1,
                starts: vec![1, 2, u64::MAX],
                runs: 9,
                parts: vec![part(1, Value::Int(4)), part(2, Value::Double(0.5))],
            }),
            runs: vec![run(7, Value::Int(1)), run(8, Value::Int(2))],
        },
    }];
    assert_eq!(encode_record(&producer(), &totals), stored.body);
    let read = decode_record(&producer(), &stored.body, PageLimits::default());
    assert_eq!(read, Ok(totals));
}
