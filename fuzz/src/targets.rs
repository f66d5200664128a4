// SPDX-License-Identifier: Apache-2.0

//! The targets by name, each a function of bytes that returns whatever the bytes are.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
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
use tidegate_ring::{Batch, MpStore, Options, Reader};
use tidegate_wal::record::{self, Epoch, Head, RecordKind};
use tidegate_wal::{Fsync, Log, Purpose, Quota, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Names as `cargo xtask fuzz` gives them.
pub(crate) const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("otlp", otlp),
    ("json", json_request),
    ("config", config),
    ("ring", ring),
    ("store", store),
    ("cells", cells),
    ("events", tidegate::receivers::uds::fuzz::events),
    ("statsd", tidegate::receivers::uds::fuzz::statsd),
    ("compression", compression),
    ("authority", authority),
    ("log", log),
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

thread_local! {
    /// A file that is written anew for each input.
    static FILE: RefCell<(TempDir, PathBuf)> = RefCell::new({
        let directory = TempDir::new_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("nixl.1.1.0.mmap");
        (directory, path)
    });
}

fn with_file(bytes: &[u8], look: impl FnOnce(&PathBuf)) {
    FILE.with_borrow(|(_, path)| {
        // A new file each time: a reader of the last one may not be surprised by this one.
        let _ = std::fs::remove_file(path);
        File::create(path)
            .and_then(|mut file| file.write_all(bytes))
            .expect("a file in memory");
        look(path);
    });
}

/// The first bytes say how: events to take, whether to consume, and where the rest is cut in two: the file as it is
/// opened, and what is written over it (from which offset), or cut off, while it is mapped.
fn ring(data: &[u8]) {
    let Some((how, rest)) = data.split_at_checked(6) else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes([how[0], how[1]])) % (rest.len() + 1);
    let offset = u64::from(u16::from_le_bytes([how[2], how[3]]));
    let (before, after) = rest.split_at(cut);
    with_file(before, |path| {
        let options = Options {
            consume: how[4] & 1 == 0,
            max_events: usize::from(how[5]) + 1,
        };
        let Ok(mut reader) = Reader::open(path, options) else {
            return;
        };
        let mut batch = Batch::default();
        for round in 0..4 {
            let _ = reader.read(&mut batch);
            reader.commit();
            if round == 1 {
                let file = OpenOptions::new().write(true).open(path).expect("our own file");
                match how[4] & 2 {
                    0 => file.write_all_at(after, offset),
                    _ => file.set_len(offset),
                }
                .expect("our own file");
            }
        }
    });
}

fn store(data: &[u8]) {
    let Some((how, rest)) = data.split_at_checked(2) else {
        return;
    };
    with_file(rest, |path| {
        let Ok(store) = MpStore::open(path) else { return };
        let _ = store.snapshot();
        let file = OpenOptions::new().write(true).open(path).expect("our own file");
        file.set_len(u64::from(u16::from_le_bytes([how[0], how[1]])))
            .expect("our own file");
        let _ = (store.snapshot(), store.alive());
    });
}

/// A file of cells is read, merged, folded and read again, as it is and with its checksums put right.
fn cells(data: &[u8]) {
    let plain = ("1-1-0000000000000001.cells".to_owned(), data.to_vec());
    for (name, bytes) in [plain, tidegate_cells::fuzz::file(data)] {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::write(directory.path().join(name), bytes).expect("our own directory");
        let limits = tidegate_cells::Limits::default();
        let mut reader = tidegate_cells::Directory::open(directory.path(), limits).expect("a directory");
        let _ = reader.scan();
        if reader
            .fold(std::time::Duration::ZERO)
            .is_ok_and(|folded| !folded.processes.is_empty())
        {
            let problems = reader.scan().problems;
            assert!(problems.is_empty(), "what was folded can't be read: {problems:?}");
        }
    }
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

/// Segments made of records as the bytes say, with damage between and over them: each record that is read back was
/// written once.
fn log(data: &[u8]) {
    /// More would measure how fast files are made.
    const MAX_SEGMENTS: usize = 16;
    const MAX_STEPS: usize = 1024;
    let directory = LOG.with(|directory| directory.path().to_owned());
    for file in std::fs::read_dir(&directory).expect("our own directory") {
        std::fs::remove_file(file.expect("our own file").path()).expect("our own file");
    }
    let epoch = match data.len() % 3 {
        0 => Epoch::fresh(7),
        1 => Epoch::reused(7),
        _ => Epoch::plain(7),
    };
    let (mut segment, mut number, mut written) = (Vec::new(), 1, Vec::new());
    let flush = |segment: &mut Vec<u8>, number: u64| {
        std::fs::write(directory.join(format!("{number:020}.seg")), &*segment).expect("a file in memory");
        segment.clear();
    };
    segment.extend(record::segment_head(number, epoch));
    let mut first = number;
    let mut segments = 0;
    for step in data.chunks(4).take(MAX_STEPS) {
        let &[how, a, b, c] = step else { break };
        match how % 8 {
            0..=3 => {
                let gap = if how & 8 != 0 { u64::from(a) << (b % 40) } else { 0 };
                number += gap;
                let head = Head {
                    kind: RecordKind::Data,
                    tag: b,
                    seq: number,
                    items: u32::from(c),
                };
                let payload = vec![a; usize::from(c)];
                record::write(&mut segment, epoch, head, &payload);
                written.push((number, payload));
                number += 1;
            }
            4 => {
                let range = [(u64::from(a), u64::from(b) << (c % 60))];
                let ranges = record::ranges_to_bytes(&range);
                let head = Head {
                    kind: RecordKind::Settled,
                    tag: 0,
                    seq: 0,
                    items: 0,
                };
                record::write(&mut segment, epoch, head, &ranges);
            }
            5 => segment.extend([a, b, c]),
            6 => {
                let at = usize::from(u16::from_le_bytes([a, b])) % segment.len();
                segment[at] ^= c;
            }
            _ if segments == MAX_SEGMENTS => {}
            _ => {
                segments += 1;
                flush(&mut segment, first);
                first = number;
                segment.extend(record::segment_head(number, epoch));
            }
        }
    }
    flush(&mut segment, first);
    let rules = Rules {
        fsync: Fsync::Never,
        segment_bytes: 1 << 20,
    };
    let (mut log, recovered) = Log::open(&directory, &rules, Quota::new(1 << 30), None).expect("a directory");
    let mut last = 0;
    let mut items = 0;
    loop {
        let back = log.read(1 << 16).expect("our own files");
        if back.stored.is_empty() {
            break;
        }
        for stored in back.stored {
            assert!(stored.seq > last, "in order, and once");
            last = stored.seq;
            let known = written
                .iter()
                .any(|(seq, payload)| *seq == stored.seq && *payload == stored.payload);
            assert!(known, "no write has {}", stored.seq);
            items += u64::from(stored.items) * u64::from(stored.tag < 3);
        }
    }
    assert_eq!(
        items,
        recovered.items.iter().sum::<u64>(),
        "what was promised is read"
    );
    log.append(
        (log.next_seq(), 0, 1),
        Purpose::Unread,
        &[Bytes::from_static(b"more")],
    )
    .expect("a file in memory");
    log.flush().expect("a file in memory");
    assert_eq!(log.read(1 << 16).expect("our own file").stored.len(), 1);
}

thread_local! {
    /// The log's directory, emptied for each input.
    static LOG: TempDir = TempDir::new_in("/dev/shm").expect("a directory in memory");
}
