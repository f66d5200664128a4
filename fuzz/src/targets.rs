// SPDX-License-Identifier: Apache-2.0

//! The targets by name, each a function of bytes that returns whatever the bytes are.

mod files;

use std::sync::Arc;

use bytes::Bytes;
use tidegate::commands::load;
use tidegate::component::Shared;
use tidegate::config::Loader;
use tidegate::net::{Coding, decompress};
use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{ScrapeDecoder, Settings, Target};
use tidegate::service::{Graph, Plan};
use tidegate_engine::{Attributes, Buckets, ExponentialHistogram, Limits, Rule, StreamId, Table, Value};
use tidegate_exposition::{Format, NativeHistograms};
use tidegate_otlp::{Signal, convert, json, wire};
use tidegate_promql::{FloatHistogram, HistogramSample, NAME, Query, QuerySeries, Sample};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Names as `cargo xtask fuzz` gives them.
pub(crate) const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("otlp", otlp),
    ("json", json_request),
    ("config", config),
    ("ring", files::ring),
    ("store", files::store),
    ("cells", files::cells),
    ("events", tidegate::receivers::uds::fuzz::events),
    ("statsd", tidegate::receivers::uds::fuzz::statsd),
    ("compression", compression),
    ("authority", authority),
    ("log", files::log),
    ("query", query),
    ("state", state),
    ("exposition", exposition),
    ("plugin_frames", tidegate_plugin::host::fuzz::frames),
    (
        "remote_write",
        tidegate::receivers::prometheusremotewrite::fuzz::requests,
    ),
];

fn signal(choice: u8) -> Signal {
    Signal::ALL[usize::from(choice) % Signal::ALL.len()]
}

/// A query has a value, or says why it has none.
fn query(data: &[u8]) {
    let Ok(query) = std::str::from_utf8(data)
        .map_err(drop)
        .and_then(|text| Query::parse(text).map_err(drop))
    else {
        return;
    };
    let series = |name: &str, zone: &str, step: i64| QuerySeries {
        labels: [(NAME, name), ("zone", zone), ("le", zone)].into_iter().collect(),
        samples: (1..20)
            .map(|tick| Sample {
                time: tick * 10_000,
                value: ((tick * step) % 17) as f64,
            })
            .collect(),
        histograms: Vec::new(),
    };
    let native = |tick: i64, scale: i32| HistogramSample {
        time: tick * 10_000,
        value: Arc::new(FloatHistogram::from(&ExponentialHistogram {
            scale,
            count: 7 + tick as u64 % 11,
            sum: Some(tick as f64),
            zero_threshold: f64::from(scale) / 2.0,
            zero_count: 1,
            positive: Buckets {
                offset: -3,
                counts: vec![1, 0, 5, tick as u64 % 11],
            },
            ..ExponentialHistogram::default()
        })),
    };
    let histograms = |name: &str, zone: &str, scale: i32| QuerySeries {
        histograms: (1..20).map(|tick| native(tick, scale)).collect(),
        samples: Vec::new(),
        ..series(name, zone, 1)
    };
    let mut store = vec![
        series("a", "0.5", 3),
        series("a", "+Inf", 5),
        series("b", "0.5", 7),
    ];
    store.extend([histograms("a", "x", 2), histograms("b", "y", 1)]);
    let _ = query.instant(&store, 150_000);
    let _ = query.range(&store, 0, 150_000, 70_000);
}

/// A page counts or does not, whatever was expected of it; what was known of it makes no difference.
fn exposition(data: &[u8]) {
    let Some((how, page)) = data.split_first() else {
        return;
    };
    let format = [Format::Text, Format::OpenMetrics, Format::Protobuf][usize::from(how % 3)];
    let native = [
        NativeHistograms::Native,
        NativeHistograms::Classic,
        NativeHistograms::Both,
    ];
    let settings = Settings {
        parser: tidegate_exposition::Options {
            native_histograms: native[usize::from(how / 3 % 3)],
        },
        honor_timestamps: how & 64 == 0,
        ..Settings::default()
    };
    let mut decoder = ScrapeDecoder::new(settings, Box::new(Anything));
    let mut points = Vec::new();
    let first = decoder.page(format, page, 1_700_000_000_000_000_000, &mut points);
    let second = decoder.page(format, page, 1_700_000_001_000_000_000, &mut points);
    match (first, second) {
        (Ok(first), Ok(second)) => assert_eq!((first.samples, 0), (second.samples, second.series_added)),
        (Err(first), Err(second)) => assert_eq!(first.failure, second.failure),
        (first, second) => panic!("{first:?}, then {second:?}"),
    }
    decoder.end(1_700_000_002_000_000_000, &mut points);
    for point in points {
        match &point.value {
            Value::Histogram(histogram) => assert!(histogram.is_sound(), "{histogram:?}"),
            Value::ExponentialHistogram(histogram) => assert!(histogram.is_sound(), "{histogram:?}"),
            _ => {}
        }
    }
}

/// A target without labels of its own.
struct Anything;

impl Target for Anything {
    fn relabel(&mut self, _: &mut LabelSet) -> bool {
        true
    }

    fn resource(&self, _: &str, _: &str) -> Attributes {
        Attributes::default()
    }
}

/// A saved state is restored, or is none.
fn state(data: &[u8]) {
    let identify: fn(&tidegate_engine::Series) -> StreamId = |_| StreamId::default();
    let table = Table::new("fuzz", vec![Rule::newest()], Limits::default()).identified_by(identify);
    let _ = table.restore(data);
    let saved = table.save();
    let again = Table::new("fuzz", vec![Rule::newest()], Limits::default()).identified_by(identify);
    assert!(again.restore(&saved).is_some(), "what we save can be restored");
    let _ = tidegate_engine::Events::load(data, 1);
}

/// A request that passes the check can be decoded, and survives JSON with as many items.
fn otlp(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let signal = signal(*choice);
    let Ok(encoded) = wire::check(signal, Bytes::copy_from_slice(bytes)) else {
        return;
    };
    if signal == Signal::Metrics {
        let points = convert::points(&encoded).expect("what is checked can be decoded");
        assert_eq!(points.len(), encoded.items());
    }
    let text = json::to_json(&encoded).expect("what is checked can be written");
    let again = json::to_protobuf(signal, text.as_bytes()).expect("what we write can be read");
    let again = wire::check(signal, again).expect("what we read is sound");
    assert_eq!(again.items(), encoded.items());
}

/// A request that is read out of JSON is valid.
fn json_request(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else {
        return;
    };
    let signal = signal(*choice);
    if let Ok(bytes) = json::to_protobuf(signal, text) {
        wire::check(signal, bytes).expect("what we read is sound");
    }
}

/// A configuration is loaded, or every problem can be shown; a loaded configuration can be built, or the error says why
/// not.
fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Files of the machine that runs this are not an input.
    if text.contains("file") {
        return;
    }
    let loader = Loader::default()
        .env(|_| Some("value".to_owned()))
        .text("fuzz.yaml", text);
    let loaded = loader.load(&load::Kinds);
    let mut problems = loaded.problems;
    let plan = loaded
        .document
        .and_then(|document| Plan::resolve(&document, &mut problems));
    let _ = problems.to_string();
    let Some(plan) = plan.filter(|_| !problems.has_errors()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let _ = Graph::build(&plan, &std::sync::Arc::new(Shared::default()));
}

/// Nothing is unpacked beyond the limit.
fn compression(data: &[u8]) {
    const LIMIT: usize = 1 << 16;
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let names = ["gzip", "zstd", "deflate", "snappy", "lz4"];
    let Some(coding) = Coding::named(names[usize::from(*choice) % names.len()]) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    if let Ok(unpacked) = runtime.block_on(decompress(coding, Bytes::copy_from_slice(body), LIMIT)) {
        assert!(unpacked.len() <= LIMIT);
    }
}

/// The output of the filter of authorities depends on its input, not on the pieces. A second pass changes nothing, and
/// h2 reads the output.
fn authority(data: &[u8]) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let filtered = |bytes: &[u8], piece: usize| {
        let (client, server) = tokio::io::duplex(piece);
        let bytes = bytes.to_vec();
        runtime.block_on(async move {
            let mut filter = tidegate::net::authority::AuthorityFilter::new(server);
            let (mut client, mut out) = (client, Vec::new());
            let write = async {
                client.write_all(&bytes).await.expect("it is read");
                drop(client);
            };
            let (_, read) = tokio::join!(write, filter.read_to_end(&mut out));
            read.expect("no error of its own");
            out
        })
    };
    let Some((piece, rest)) = data.split_first() else {
        return;
    };
    let bytes = [PREFACE, rest].concat();
    let whole = filtered(&bytes, bytes.len());
    assert_eq!(filtered(&bytes, usize::from(*piece) + 1), whole);
    assert_eq!(filtered(&whole, whole.len()), whole);
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(bytes.len());
        client.write_all(&bytes).await.expect("there is room");
        client.shutdown().await.expect("it is open");
        let filter = tidegate::net::authority::AuthorityFilter::new(server);
        let read = tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
        let mut builder = h2::server::Builder::new();
        let builder = builder.max_frame_size(1 << 20).max_header_list_size(64 << 10);
        if let Ok(mut connection) = builder.handshake::<_, Bytes>(filter).await {
            while let Some(Ok(_)) = connection.accept().await {}
        }
        read.abort();
    });
}
