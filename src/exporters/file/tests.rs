// SPDX-License-Identifier: Apache-2.0

//! Files in every format, rotation, and a disk that is full for a while.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use tidegate_engine::{EventKind, Events, Instrument, Lease, Schema, Source, SourceId, Values};

use super::config::FileExporterConfig;
use super::encode::{CSV_HEADER, encode};
use super::files::Files;
use super::log::{Disk, Log};
use crate::batch::{Batch, Signal, json, wire};
use crate::component::testing::{options, settings};
use crate::delivery::ExportRequest;

fn config(directory: &Path, options: &str) -> Arc<FileExporterConfig> {
    let path = directory.join("out.txt");
    settings::<FileExporterConfig>(&format!(
        "{{path: {}, flush_interval: 0s{options}}}",
        path.display()
    ))
    .get()
}

/// A directory, and the options of a file in it.
fn in_directory(options: &str) -> (TempDir, Arc<FileExporterConfig>) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), options);
    (directory, config)
}

/// Opens the file as the first exporter of a process does.
fn open(config: &FileExporterConfig, header: &'static str) -> io::Result<Arc<Mutex<Log>>> {
    Files::default().open(config, header)
}

fn write(log: &Mutex<Log>, bytes: impl AsRef<[u8]>) {
    log.lock().write(bytes.as_ref()).unwrap();
}

fn text(config: &FileExporterConfig) -> String {
    std::fs::read_to_string(&config.path).unwrap()
}

fn logs() -> ExportRequest {
    let text = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"WARN"}]}]}]}"#;
    let request = json::to_protobuf(Signal::Logs, text.as_bytes()).unwrap();
    ExportRequest::new(Batch::new(wire::check(Signal::Logs, request).unwrap()))
}

fn events() -> ExportRequest {
    let kind = |name: &str, category: &str| EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: [("category", category)].into_iter().collect(),
    };
    ExportRequest::new(Batch::new(Events {
        source: Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: Default::default(),
            lease: Arc::new(Lease::new(std::time::Duration::from_secs(1), 0)),
        }),
        schema: Arc::new(Schema {
            kinds: vec![kind("agent_tx_bytes", "TRANSFER"), kind("odd,name", "CUSTOM")],
        }),
        kinds: vec![0, 1],
        values: Values::U64(vec![4096, 7]),
        times: Some(vec![1_700_000_000_000_001_000, 1_700_000_000_000_002_000]),
        weights: None,
        observed: 0,
    }))
}

#[test]
fn events_become_the_lines_of_nixls_sample_plugin() {
    let (_directory, config) = in_directory(", format: csv");
    let log = open(&config, CSV_HEADER).unwrap();
    let lines = encode(&config, &events()).unwrap().bytes;
    write(&log, &lines);
    let expected = "timestamp_us,category,event_name,value\n\
        1700000000000001,TRANSFER,agent_tx_bytes,4096\n1700000000000002,CUSTOM,\"odd,name\",7\n";
    assert_eq!(text(&config), expected);
}

#[test]
fn requests_are_lines_of_json_or_frames() {
    let directory = tempfile::tempdir().unwrap();
    let json = encode(&config(directory.path(), ""), &logs()).unwrap().bytes;
    assert!(json.ends_with(b"\n") && json.iter().filter(|byte| **byte == b'\n').count() == 1);
    let proto = encode(&config(directory.path(), ", format: proto"), &logs())
        .unwrap()
        .bytes;
    let (length, message) = proto.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().unwrap()) as usize,
        message.len()
    );
    assert_eq!(
        wire::check(Signal::Logs, message.to_vec().into())
            .unwrap()
            .items(),
        1
    );
    let compressed = encode(&config(directory.path(), ", compression: zstd"), &logs())
        .unwrap()
        .bytes;
    assert_eq!(
        zstd::decode_all(&compressed[4..]).unwrap(),
        json[..json.len() - 1]
    );
}

#[test]
fn files_are_rotated_by_size_and_the_oldest_go() {
    let (directory, config) = in_directory(", rotation: {max_megabytes: 1, max_backups: 2}");
    let log = open(&config, "head\n").unwrap();
    for _ in 0..5 {
        log.lock().write(&vec![b'x'; 700 << 10]).unwrap();
    }
    let mut files: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        assert_eq!(
            std::fs::metadata(&file).unwrap().len(),
            5 + (700 << 10),
            "{file:?}"
        );
    }
}

#[test]
fn names_of_old_files_are_in_utc() {
    let said = options::<FileExporterConfig>("{path: a, rotation: {localtime: true}}").unwrap_err();
    assert!(said.contains("names of old files are in UTC only"), "{said}");
}

#[test]
fn an_existing_file_is_replaced_or_continued() {
    let directory = tempfile::tempdir().unwrap();
    for (options, expected) in [("", "h\nx\n"), (", append: true", "h\nx\nx\n")] {
        let config = config(directory.path(), options);
        write(&open(&config, "h\n").unwrap(), b"x\n");
        assert_eq!(text(&config), expected);
    }
}

#[test]
fn a_file_is_truncated_by_the_first_write_and_not_by_the_start() {
    let (_directory, config) = in_directory("");
    std::fs::write(&config.path, "before\n").unwrap();
    // A start that fails.
    drop(open(&config, "h\n").unwrap());
    assert_eq!(text(&config), "before\n");
    let files = Files::default();
    let first = files.open(&config, "h\n").unwrap();
    // A reload before the first write.
    let second = files.open(&config, "h\n").unwrap();
    drop(first);
    assert_eq!(text(&config), "before\n");
    write(&second, b"1\n");
    assert_eq!(text(&config), "h\n1\n");
}

#[test]
fn successors_go_on_with_a_file_until_the_process_ends() {
    let (_directory, config) = in_directory("");
    let files = Files::default();
    let first = files.open(&config, "h\n").unwrap();
    write(&first, b"1\n");
    let second = files.open(&config, "h\n").unwrap();
    write(&second, b"2\n");
    // Members that a failed reload builds again.
    let third = files.open(&config, "h\n").unwrap();
    drop((first, second));
    write(&third, b"3\n");
    // A reload led the data elsewhere, and a later one leads it back.
    drop(third);
    let last = files.open(&config, "h\n").unwrap();
    write(&last, b"4\n");
    assert_eq!(text(&config), "h\n1\n2\n3\n4\n");
    // Another process.
    drop((last, files));
    write(&open(&config, "h\n").unwrap(), b"5\n");
    assert_eq!(text(&config), "h\n5\n");
}

#[test]
fn a_second_process_is_refused_while_the_first_one_has_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let rotated = config(directory.path(), ", rotation: {max_megabytes: 1}");
    let first = open(&rotated, "").unwrap();
    let refused = || open(&rotated, "").err().unwrap().to_string();
    assert!(
        refused().starts_with("another process writes this file: "),
        "{}",
        refused()
    );
    for _ in 0..2 {
        first.lock().write(&vec![b'x'; 700 << 10]).unwrap();
    }
    assert_eq!(std::fs::metadata(&rotated.path).unwrap().len(), 700 << 10);
    assert!(refused().starts_with("another process writes this file: "));
    drop(first);
    open(&rotated, "").unwrap();
}

#[test]
fn a_successor_goes_on_with_a_file_that_was_moved_to_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let (before, other) = (config(directory.path(), ""), directory.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    let after = config(&other, "");
    let files = Files::default();
    let first = files.open(&before, "").unwrap();
    write(&first, b"1\n");
    std::fs::rename(&before.path, &after.path).unwrap();
    // The first exporter has stopped, and still has the lock.
    write(&files.open(&after, "").unwrap(), b"2\n");
    assert_eq!(text(&after), "1\n2\n");
    write(&files.open(&before, "").unwrap(), b"3\n");
    assert_eq!(text(&before), "3\n");
}

#[test]
fn a_successor_writes_the_same_form_or_a_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let (json, proto) = (config(directory.path(), ""), ", format: proto, compression: zstd");
    let proto = config(directory.path(), proto);
    let files = Files::default();
    let first = files.open(&json, "").unwrap();
    // Nothing is written yet.
    let second = files.open(&proto, "").unwrap();
    drop(first);
    let frame = encode(&proto, &logs()).unwrap().bytes;
    write(&second, &frame);
    let refused = files.open(&json, "").err().unwrap().to_string();
    assert!(refused.contains("another format or compression"), "{refused}");
    // Frames of a successor follow those of its predecessor.
    let third = files.open(&proto, "").unwrap();
    write(&third, &frame);
    assert_eq!(std::fs::read(&proto.path).unwrap(), [&*frame, &*frame].concat());
    std::fs::rename(&proto.path, directory.path().join("moved")).unwrap();
    write(&files.open(&json, "").unwrap(), b"line\n");
    assert_eq!(text(&json), "line\n");
}

/// A disk with room for `room` bytes. A longer write fails after the part that fits.
struct Full {
    content: Arc<Mutex<Vec<u8>>>,
    room: Arc<Mutex<usize>>,
}

impl Disk for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut content = self.content.lock();
        let fits = bytes.len().min(self.room.lock().saturating_sub(content.len()));
        content.extend_from_slice(&bytes[..fits]);
        if fits == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.content.lock().truncate(length as usize);
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_whole_lines_and_what_failed_can_be_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (content, room) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(Mutex::new(10)));
    let disk = Full {
        content: content.clone(),
        room: room.clone(),
    };
    let mut log = Log::new(&config(directory.path(), ""), "", Box::new(disk), 0);
    log.write(b"first\n").unwrap();
    for _ in 0..3 {
        assert_eq!(
            log.write(b"second\n").unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert_eq!(*content.lock(), b"first\n", "a torn line stayed");
    }
    *room.lock() = 100;
    log.write(b"second\n").unwrap();
    assert_eq!(*content.lock(), b"first\nsecond\n");
}

#[test]
fn files_are_for_their_owner_and_no_link_of_another_user_is_followed() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    let directory = tempfile::tempdir().unwrap();
    let plain = config(directory.path(), "");
    let mode = || std::fs::metadata(&plain.path).unwrap().permissions().mode() & 0o777;
    open(&plain, "").unwrap().lock().write(b"x").unwrap();
    assert_eq!(mode(), 0o600);
    std::fs::remove_file(&plain.path).unwrap();
    open(&config(directory.path(), ", mode: \"0640\""), "").unwrap();
    assert_eq!(mode(), 0o640);

    // Our own link is followed; it may lead to a file that is not there yet.
    std::fs::remove_file(&plain.path).unwrap();
    let target = directory.path().join("target");
    symlink(&target, &plain.path).unwrap();
    open(&plain, "").unwrap().lock().write(b"mine").unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    assert_eq!(std::fs::metadata(&target).unwrap().mode() & 0o777, 0o600);

    // A link of another user is followed only with `follow_links`. Only root can create one.
    if lchown(&plain.path, Some(12_345), None).is_ok() {
        let refused = open(&plain, "").err().unwrap().to_string();
        assert!(refused.contains("follow_links"), "{refused}");
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        open(&config(directory.path(), ", follow_links: true"), "").unwrap();
    }
}

#[test]
fn opening_a_named_pipe_without_a_reader_fails_at_once() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, mknodat};

    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), "");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &config.path, FileType::Fifo, mode, 0).unwrap();
    let refused = open(&config, "").err().unwrap().to_string();
    assert!(refused.contains("no process reads"), "{refused}");

    let reading = rustix::fs::open(&config.path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let mut reader = std::fs::File::from(reading.unwrap());
    open(&config, "").unwrap().lock().write(b"line\n").unwrap();
    let mut text = [0; 5];
    std::io::Read::read_exact(&mut reader, &mut text).unwrap();
    assert_eq!(&text, b"line\n");
    let file = super::log::Opening::of(&config).open(&config.path).unwrap();
    assert!(
        !fcntl_getfl(&*file).unwrap().contains(OFlags::NONBLOCK),
        "writes wait"
    );
}

#[test]
fn room_for_what_is_written_is_enough_for_the_worst_text() {
    use prost::Message;
    use tidegate_requests::{attribute, gauge, int, request};
    // Characters that are escaped with six others, and many small fields.
    let points = (0..1000).map(|number| {
        let mut point = int(number);
        point.attributes = vec![attribute("\u{1}", "\u{2}".repeat(30)); 3];
        point
    });
    let bytes = request(Vec::new(), "", [gauge("g", points)]).encode_to_vec();
    let export = || {
        ExportRequest::new(Batch::new(
            wire::check(Signal::Metrics, bytes.clone().into()).unwrap(),
        ))
    };
    let directory = tempfile::tempdir().unwrap();
    let forms = [
        "json",
        "proto",
        "json, compression: zstd",
        "proto, compression: zstd",
        "csv",
    ];
    for form in forms {
        let config = config(directory.path(), &format!(", format: {form}"));
        let room = super::encode::bytes(&config, &export());
        let made = encode(&config, &export()).unwrap().bytes.len();
        assert!(room > made, "{form}: {room} for {made}");
    }
}
