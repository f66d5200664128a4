// SPDX-License-Identifier: Apache-2.0

//! Files without room wait for a later scan, and no value that was read falls meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_cells::layout::{HEADER_SIZE, MAX_SEGMENT_SIZE, header};
use tidegate_cells::{Directory, Family, FamilySpec, Follower, Kind, Limits, Options, Store, Value};

fn none(_: usize) -> bool {
    false
}

fn all(_: usize) -> bool {
    true
}

fn follower(path: &Path) -> Follower {
    Follower::new(Directory::open(path, Limits::default()).unwrap())
}

fn requests(store: &Store) -> Family {
    let spec = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    store.family(&spec).unwrap()
}

fn store(path: &Path) -> (Store, Family) {
    let options = Options {
        resource: vec![("service.name".into(), "llm".into())],
        ..Options::default()
    };
    let store = Store::create(path, options).unwrap();
    let family = requests(&store);
    (store, family)
}

fn count(family: &Family, model: &str, count: u64) {
    family.with(&[model]).counter().unwrap().add(count);
}

fn total(follower: &Follower, model: &str) -> Option<u64> {
    match follower.merged().value("requests", &[("model", model)]) {
        Some(Value::Counter(count)) => Some(*count),
        _ => None,
    }
}

#[test]
fn what_is_kept_was_asked_for_and_goes_with_the_files() {
    let temporary = tempfile::tempdir().unwrap();
    let mut follower = follower(temporary.path());
    let (mut asked, mut before) = (0, 0);
    let mut stores = Vec::new();
    for number in 0..20 {
        let (store, family) = store(temporary.path());
        (0..50).for_each(|model| count(&family, &format!("{number} {model}"), 1));
        stores.push((store, family));
        follower.look_within(&mut |bytes| {
            asked += bytes;
            true
        });
        let bytes = follower.bytes();
        assert!(before < bytes && bytes <= asked, "{before} < {bytes} <= {asked}");
        before = bytes;
    }
    for file in std::fs::read_dir(temporary.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    follower.look();
    assert_eq!((follower.bytes(), follower.without_room()), (0, 0));
}

#[test]
fn a_new_file_without_room_waits_and_known_ones_are_read() {
    let temporary = tempfile::tempdir().unwrap();
    let mut follower = follower(temporary.path());
    let (_known, family) = store(temporary.path());
    count(&family, "a", 1);
    follower.look();
    let (_new, other) = store(temporary.path());
    count(&other, "a", 10);
    count(&family, "a", 1);
    let changes = follower.look_within(&mut none);
    assert_eq!((total(&follower, "a"), follower.without_room()), (Some(2), 1));
    assert_eq!(changes.problems.len(), 1);
    assert!(changes.problems[0].why.contains("memory is short"));
    assert_eq!(follower.processes().len(), 1);
    let changes = follower.look_within(&mut all);
    assert_eq!((total(&follower, "a"), follower.without_room()), (Some(12), 0));
    assert_eq!(changes.problems, []);
}

#[test]
fn new_series_without_room_wait_and_those_that_end_meanwhile_are_not_read() {
    let temporary = tempfile::tempdir().unwrap();
    let mut follower = follower(temporary.path());
    let (_store, family) = store(temporary.path());
    count(&family, "a", 1);
    count(&family, "b", 1);
    follower.look();
    count(&family, "c", 5);
    count(&family, "b", 1);
    follower.look_within(&mut none);
    let totals = |follower: &Follower| ["a", "b", "c"].map(|model| total(follower, model));
    assert_eq!(totals(&follower), [Some(1), Some(2), None]);
    assert_eq!(follower.without_room(), 1);
    assert!(family.remove(&["a"]));
    count(&family, "b", 1);
    follower.look_within(&mut none);
    assert_eq!(totals(&follower), [None, Some(3), None]);
    // Room for one record after the other: the read values are right at any time.
    for _ in 0..10 {
        let mut left = 1;
        follower.look_within(&mut |_| {
            left -= 1;
            left >= 0
        });
        assert_eq!(totals(&follower)[..2], [None, Some(3)]);
    }
    assert_eq!(totals(&follower), [None, Some(3), Some(5)]);
    assert_eq!(follower.without_room(), 0);
}

#[test]
fn totals_of_the_dead_do_not_fall_for_want_of_room() {
    let temporary = tempfile::tempdir().unwrap();
    let mut follower = follower(temporary.path());
    let grace = Duration::from_mins(1);
    let die = |follower: &mut Follower, number: u64| {
        let (store, family) = store(temporary.path());
        count(&family, "a", number);
        follower.look();
        drop((store, family));
        follower.look();
    };
    die(&mut follower, 1);
    assert!(follower.fold_within(grace, &mut none).is_err());
    assert_eq!(follower.fold_within(grace, &mut all).unwrap().processes.len(), 1);
    follower.look();
    assert_eq!(total(&follower, "a"), Some(1));
    die(&mut follower, 10);
    follower.fold(grace).unwrap();
    // There is another retained file now: the one before and the file of the dead process have the same.
    follower.look_within(&mut none);
    assert_eq!((total(&follower, "a"), follower.without_room()), (Some(11), 1));
    assert!(follower.fold_within(Duration::ZERO, &mut none).is_err());
    follower.look_within(&mut none);
    assert_eq!(total(&follower, "a"), Some(11));
    follower.look();
    assert_eq!((total(&follower, "a"), follower.without_room()), (Some(11), 0));
    follower.fold(Duration::ZERO).unwrap();
    follower.look();
    assert_eq!(total(&follower, "a"), Some(11));
}

#[test]
fn a_dead_process_is_folded_only_once_all_of_it_is_read() {
    let temporary = tempfile::tempdir().unwrap();
    let mut follower = follower(temporary.path());
    let (store, family) = store(temporary.path());
    count(&family, "a", 1);
    follower.look();
    count(&family, "b", 2);
    drop((store, family));
    let folded = follower.fold_within(Duration::ZERO, &mut none);
    assert!(folded.unwrap().processes.is_empty(), "`b` would be lost");
    assert_eq!(follower.fold(Duration::ZERO).unwrap().processes.len(), 1);
    follower.look();
    assert_eq!([total(&follower, "a"), total(&follower, "b")], [Some(1), Some(2)]);
}

#[test]
fn what_another_reader_folds_and_removes_stays_while_its_file_has_no_room() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut ours, mut another) = (follower(temporary.path()), follower(temporary.path()));
    for number in 1..=2 {
        let (store, family) = store(temporary.path());
        count(&family, "a", number);
        ours.look();
        drop((store, family));
        another.look();
        let folded = another.fold(Duration::ZERO).unwrap();
        assert_eq!((folded.processes.len(), folded.removed), (1, 1));
        let all_of_them = (1..=number).sum::<u64>();
        for _ in 0..3 {
            ours.look_within(&mut none);
            assert_eq!((total(&ours, "a"), ours.without_room()), (Some(all_of_them), 1));
        }
        ours.look();
        assert_eq!((total(&ours, "a"), ours.without_room()), (Some(all_of_them), 0));
    }
    assert_eq!(ours.processes(), []);
}

#[test]
fn nothing_is_shown_before_there_is_room_for_what_dead_processes_counted() {
    let temporary = tempfile::tempdir().unwrap();
    let (dead, family) = store(temporary.path());
    count(&family, "a", 1);
    drop((dead, family));
    follower(temporary.path()).fold(Duration::ZERO).unwrap();
    let (_alive, family) = store(temporary.path());
    count(&family, "a", 10);
    let mut follower = follower(temporary.path());
    let changes = follower.look_within(&mut none);
    assert_eq!((total(&follower, "a"), changes.problems.len()), (None, 1));
    follower.look();
    assert_eq!(total(&follower, "a"), Some(11));
}

#[test]
fn a_folded_file_that_can_not_be_read_for_a_while_is_not_counted_twice() {
    let temporary = tempfile::tempdir().unwrap();
    let grace = Duration::from_mins(1);
    let die = |number: u64| {
        let (store, family) = store(temporary.path());
        count(&family, "a", number);
        drop((store, family));
    };
    let files = || {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_of_process = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(".cells") && name != "retained.cells"
        };
        paths.filter(is_of_process).collect::<Vec<_>>()
    };
    let fold = || follower(temporary.path()).fold(grace);
    die(1);
    assert_eq!(fold().unwrap().processes.len(), 1);
    let [folded] = &files()[..] else {
        panic!("one file");
    };
    let aside = temporary.path().join("aside");
    std::fs::rename(folded, &aside).unwrap();
    std::fs::write(folded, "for a while").unwrap();
    die(10);
    assert_eq!(fold().unwrap().processes.len(), 1);
    std::fs::rename(&aside, folded).unwrap();
    let mut follower = follower(temporary.path());
    follower.look();
    assert_eq!(total(&follower, "a"), Some(11));
}

fn file_of(directory: &Path, store: &Store) -> PathBuf {
    directory.join(format!("{}.cells", store.identity().unwrap()))
}

/// Adds a segment of values to a file, and a series of its first family at the end of it. All before it is a hole.
fn stretch(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let word = |at: usize| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64).unwrap();
        u64::from_le_bytes(word)
    };
    let put = |at: usize, word: u64| file.write_all_at(&word.to_le_bytes(), at as u64).unwrap();
    let (segments, records) = (word(header::SEGMENTS), word(header::DESCRIPTORS));
    let (mut end, mut end_of_records) = (HEADER_SIZE as u64, None);
    for at in 0..segments as usize {
        let entry = word(header::TABLE + at * 8);
        let (kind, length) = (entry >> 56, entry & (u64::MAX >> 8));
        if kind == 1 && end_of_records.is_none() {
            assert!(records + 100 < length);
            end_of_records = Some(end + records);
        }
        end += length;
    }
    end += MAX_SEGMENT_SIZE;
    file.set_len(end).unwrap();
    let mut checked = vec![3];
    checked.extend(0_u32.to_le_bytes());
    checked.extend((end / 8 - 1).to_le_bytes());
    checked.extend([0, 1, 0, 3, 0]);
    checked.extend(b"far");
    let length = checked.len() as u32 - 1;
    let checksum = crc32fast::hash(&checked);
    let record = [&length.to_le_bytes()[..], &checksum.to_le_bytes(), &checked].concat();
    file.write_all_at(&record, end_of_records.unwrap()).unwrap();
    put(header::TABLE + segments as usize * 8, 2 << 56 | MAX_SEGMENT_SIZE);
    put(header::SEGMENTS, segments + 1);
    put(header::DESCRIPTORS, records + record.len() as u64);
}

#[test]
fn a_file_with_holes_takes_its_share_and_what_is_known_of_it_is_read() {
    const SHARE: usize = 1 << 20;
    let temporary = tempfile::tempdir().unwrap();
    let (sparse, family) = store(temporary.path());
    count(&family, "a", 1);
    stretch(&file_of(temporary.path(), &sparse));
    let (_other, of_other) = store(temporary.path());
    count(&of_other, "a", 10);
    let mut follower = follower(temporary.path());
    follower.limit_files(SHARE);
    let mut asked = 0;
    let changes = follower.look_within(&mut |bytes| {
        asked += bytes;
        true
    });
    assert!(asked < SHARE && follower.bytes() < SHARE, "{asked}");
    assert_eq!((total(&follower, "a"), follower.without_room()), (Some(11), 1));
    assert_eq!(changes.problems.len(), 1);
    assert!(changes.problems[0].why.contains("more memory than one file may"));
    count(&family, "a", 1);
    follower.look();
    assert_eq!((total(&follower, "a"), total(&follower, "far")), (Some(12), None));
    follower.limit_files(usize::MAX);
    follower.look();
    assert_eq!((total(&follower, "far"), follower.without_room()), (Some(0), 0));
}

#[test]
fn a_retained_file_with_holes_is_damaged() {
    let temporary = tempfile::tempdir().unwrap();
    let (dead, family) = store(temporary.path());
    count(&family, "a", 1);
    drop((dead, family));
    follower(temporary.path()).fold(Duration::ZERO).unwrap();
    let mut sound = follower(temporary.path());
    sound.look();
    assert_eq!(total(&sound, "a"), Some(1));
    stretch(&temporary.path().join("retained.cells"));
    let mut follower = follower(temporary.path());
    let changes = follower.look();
    assert_eq!(changes.problems.len(), 1);
    assert!(changes.problems[0].why.starts_with("damaged record"));
    assert!(follower.bytes() < MAX_SEGMENT_SIZE as usize);
}
