//! Files that have no room are left for later, and nothing that is read falls meanwhile.

use std::path::Path;
use std::time::Duration;

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
    // Room for one record after the other: at any time, what is read is right.
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
    let grace = Duration::from_secs(60);
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
    let grace = Duration::from_secs(60);
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
