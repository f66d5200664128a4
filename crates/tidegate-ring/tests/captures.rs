// SPDX-License-Identifier: Apache-2.0

//! Every captured file of a real NIXL agent decodes to what an independent decoder listed in
//! `DECODED.txt`, field by field.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_ring::{Batch, Error, MpStore, NixlKind, Options, Poll, RawHeader, Reader, Reject, inspect};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nixl")
}

/// One file of the listing: its name, its own lines, and its `slot` lines.
struct Listed {
    name: String,
    facts: Vec<String>,
    slots: Vec<String>,
}

/// The listing, cut at the lines that are not indented.
fn listing() -> Vec<Listed> {
    let text = fs::read_to_string(data().join("DECODED.txt")).unwrap();
    let mut files: Vec<Listed> = Vec::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            let path = line.split_whitespace().next().unwrap().trim_end_matches(':');
            files.push(Listed {
                name: path.rsplit('/').next().unwrap().to_owned(),
                facts: vec![line.to_owned()],
                slots: Vec::new(),
            });
            continue;
        }
        let file = files.last_mut().unwrap();
        if line.trim_start().starts_with("slot") {
            file.slots.push(line.trim().to_owned());
        } else {
            file.facts.push(line.trim().to_owned());
        }
    }
    files
}

/// `key=value` words; a key may carry an offset (`capacity@24`), a value a name (`cat=0(MEMORY)`).
fn fields(line: &str) -> HashMap<&str, &str> {
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let fields = words.map(|(key, value)| (key.split('@').next().unwrap(), value.trim_matches('\'')));
    fields.collect()
}

fn number<T: std::str::FromStr>(fields: &HashMap<&str, &str>, key: &str) -> T {
    let value = fields[key];
    let Ok(number) = value.parse() else {
        panic!("{key}={value} is not a number")
    };
    number
}

/// `0(MEMORY)` -> (0, "MEMORY")
fn numbered(value: &str) -> (i64, &str) {
    let (number, name) = value.trim_end_matches(')').split_once('(').unwrap();
    (number.parse().unwrap(), name)
}

fn listed_header(file: &Listed) -> RawHeader {
    let facts = fields(&file.facts[1]);
    RawHeader {
        write_pos: number(&facts, "write_pos"),
        read_pos: number(&facts, "read_pos"),
        version: number(&facts, "version"),
        expected_version: number(&facts, "expected_version"),
        capacity: number(&facts, "capacity"),
        mask: u64::from_str_radix(facts["mask"].trim_start_matches("0x"), 16).unwrap(),
    }
}

#[test]
fn every_captured_ring_decodes_to_what_is_listed() {
    let listing = listing();
    let rings: Vec<_> = listing
        .iter()
        .filter(|file| file.name.ends_with(".bin"))
        .collect();
    let on_disk = fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let on_disk = on_disk.map(|name| name.into_string().unwrap());
    let on_disk: BTreeSet<_> = on_disk.filter(|name| name.ends_with(".bin")).collect();
    assert_eq!(on_disk, rings.iter().map(|file| file.name.clone()).collect());
    assert!(rings.len() >= 45, "only {} rings are listed", rings.len());
    for file in rings {
        check_ring(file);
    }
}

fn check_ring(file: &Listed) {
    let path = data().join(&file.name);
    let header = listed_header(file);
    let found = inspect(&path).unwrap();
    assert_eq!(found.header, header, "{}", file.name);
    assert_eq!(found.file_size, number::<u64>(&fields(&file.facts[0]), "size"));
    if header.version == 0 {
        let refused = Reader::open(&path, peek()).unwrap_err();
        let reject = Reject::BadCapacity { capacity: 100 };
        assert!(
            matches!(refused, Error::Rejected { reject: r, .. } if r == reject),
            "{refused}"
        );
        return;
    }
    check_events(file, &path, &header);
}

fn peek() -> Options {
    Options {
        consume: false,
        ..Options::default()
    }
}

fn check_events(file: &Listed, path: &Path, header: &RawHeader) {
    let readable = fields(&file.facts[2]);
    let (waiting, full): (usize, bool) = (number(&readable, "readable"), readable["full"] == "True");
    let mut reader = Reader::open(path, peek()).unwrap();
    let mut batch = Batch::default();
    match reader.read(&mut batch).unwrap() {
        Poll::Events(fill) => {
            assert_eq!(
                (fill.readable, fill.full),
                (waiting as u64, full),
                "{}",
                file.name
            );
            assert_eq!(fill.capacity, header.capacity);
        }
        poll => assert_eq!((poll, waiting), (Poll::Idle, 0), "{}", file.name),
    }
    assert_eq!(batch.len(), waiting);
    let event_size = format!(
        "event_size=(size-40)/cap={}.0",
        reader.geometry().layout.event_size()
    );
    assert!(file.facts[1].ends_with(&event_size), "{}", file.name);
    // The listing stops after 24 or 40 events of a ring.
    assert!(
        file.slots.len() == waiting || file.slots.len() >= 24,
        "{}",
        file.name
    );
    for (index, line) in file.slots.iter().enumerate() {
        check_event(&reader, &batch, index, line, header);
    }
}

fn check_event(reader: &Reader, batch: &Batch, index: usize, line: &str, header: &RawHeader) {
    let (place, event) = line.split_once(": ").unwrap();
    let (slot, offset) = place.split_once(" @0x").unwrap();
    let position = (header.read_pos + index as u64) & header.mask;
    let layout = reader.geometry().layout;
    assert_eq!(slot, format!("slot[{position}]"));
    let expected = layout.header_size() as u64 + position * layout.event_size() as u64;
    assert_eq!(u64::from_str_radix(offset, 16).unwrap(), expected);

    let event = fields(event);
    let (kind, names) = (batch.kinds[index], reader.names());
    assert_eq!(batch.values[index], number::<u64>(&event, "value"), "{line}");
    match event.get("ts") {
        Some(time) => assert_eq!(batch.timestamps_us[index].to_string(), *time),
        None => assert!(batch.timestamps_us.is_empty() && !layout.has_timestamps()),
    }
    if let Some(category) = event.get("cat") {
        assert_eq!(
            numbered(category),
            (names.category(kind) as i64, names.category(kind).name())
        );
    }
    if let Some(kind_listed) = event.get("type") {
        assert_eq!(numbered(kind_listed), (i64::from(kind), names.name(kind)));
    }
    if let Some(name) = event.get("name") {
        assert_eq!(*name, NixlKind::by_id(kind).unwrap().string_name(), "{line}");
    }
}

#[test]
fn the_captured_store_decodes_to_what_is_listed() {
    let listing = listing();
    let stores = listing.iter().filter(|file| file.name.ends_with(".mmap"));
    // Two were listed, one was kept.
    let kept: Vec<_> = stores.filter(|file| data().join(&file.name).exists()).collect();
    assert_eq!(kept.len(), 1);
    check_store(kept[0]);
}

fn check_store(file: &Listed) {
    let store = MpStore::open(data().join(&file.name)).unwrap();
    let snapshot = store.snapshot().unwrap();
    let facts = fields(&file.facts[1]);
    let (identity, names) = (store.identity(), fields(&file.facts[2]));
    assert_eq!(identity.pid, number::<i64>(&facts, "pid"));
    assert_eq!(identity.instance, number::<u64>(&facts, "instance"));
    assert_eq!(snapshot.last_update_ns, number::<u64>(&facts, "lastUpdateNs"));
    assert_eq!(identity.agent_name, names["agent"]);
    assert_eq!(identity.hostname, names["host"]);
    assert_eq!(identity.local_rank.as_deref(), Some(names["local_rank"]));
    let bounds: Vec<f64> = list(&file.facts[3]);
    assert_eq!(bounds.len(), number::<usize>(&facts, "bucketCount"));

    let mut listed: HashMap<usize, &str> = HashMap::new();
    for line in &file.slots {
        listed.insert(line.split_whitespace().nth(1).unwrap().parse().unwrap(), line);
    }
    for (slot, row) in tidegate_ring::KINDS[..tidegate_ring::KNOWN_KINDS]
        .iter()
        .enumerate()
    {
        let histogram = snapshot.histogram(row.id).unwrap();
        assert_eq!(histogram.bounds, bounds);
        let Some(line) = listed.get(&slot) else {
            assert_eq!((snapshot.counters[slot], snapshot.gauges[slot]), (0, 0));
            assert_eq!((histogram.sum, histogram.count()), (0, 0));
            continue;
        };
        let values = fields(line);
        assert!(line.contains(&format!("{}:", row.name)), "{line}");
        assert_eq!(snapshot.counters[slot], number::<u64>(&values, "counter"));
        assert_eq!(snapshot.gauges[slot], number::<u64>(&values, "gauge"));
        assert_eq!(histogram.sum, number::<u64>(&values, "histsum"));
        if line.contains('(') {
            assert_eq!(histogram.buckets, list::<u64>(line));
        } else {
            assert_eq!(histogram.count(), 0);
        }
    }
}

/// The numbers between the parentheses of a line.
fn list<T: std::str::FromStr<Err: std::fmt::Debug>>(line: &str) -> Vec<T> {
    let inner = line.split_once('(').unwrap().1.trim_end_matches(')');
    inner.split(", ").map(|number| number.parse().unwrap()).collect()
}
