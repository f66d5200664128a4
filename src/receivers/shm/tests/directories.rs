// SPDX-License-Identifier: Apache-2.0

//! Directories that come and go.

use super::*;
use crate::receivers::shm::directory::BUSY_FOLDS;
use crate::receivers::shm::{MOST_REFUSED, kept};

#[test]
fn directories_and_refused_paths_that_are_gone_are_forgotten() {
    let mut scene = Scene::new("{}");
    let (directory, file) = (scene.root.path().join("a"), scene.root.path().join("file"));
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    std::fs::write(&file, b"").unwrap();
    scene.look();
    let start = scene.directories.starts.of(&directory);
    assert!(start.get().is_some());
    drop(start);
    assert_eq!(
        (scene.directories.open.len(), scene.directories.refused.len()),
        (1, 1)
    );
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::remove_file(&file).unwrap();
    // The second look counts the memory after the first one.
    (0..2).for_each(|_| scene.look());
    assert!(scene.directories.open.is_empty() && scene.directories.refused.is_empty());
    assert_eq!(scene.base.shared.memory.reserved_bytes(), 0);
    assert_eq!(scene.directories.starts.of(&directory).get(), None);
    assert_eq!(scene.sent("requests").last(), Some(&Value::NoRecordedValue));
    // Another one at its path is read.
    let store = scene.process("a", "llm");
    count(&store, "a", 5);
    scene.look();
    assert_eq!(scene.sent("requests").last(), Some(&Value::Int(5)));
}

#[test]
fn an_end_that_the_pipelines_refuse_keeps_its_directory() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    drop(store);
    std::fs::remove_dir_all(scene.root.path().join("a")).unwrap();
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.directories.open.len(), 1);
    scene.look();
    assert!(scene.directories.open.is_empty());
    assert_eq!(scene.sent("requests").last(), Some(&Value::NoRecordedValue));
}

#[test]
fn refused_paths_are_remembered_up_to_a_limit() {
    let mut scene = Scene::new("{}");
    for number in 0..MOST_REFUSED + 5 {
        std::fs::write(scene.root.path().join(format!("file {number}")), b"").unwrap();
    }
    let store = scene.process("z", "llm");
    count(&store, "a", 3);
    (0..2).for_each(|_| scene.look());
    assert_eq!(scene.directories.refused.len(), MOST_REFUSED);
    assert_eq!(scene.directories.refused_further, 5);
    assert_eq!(scene.sent("requests"), [Value::Int(3)]);
    let bytes = scene.base.shared.memory.reserved_bytes();
    assert!(bytes >= MOST_REFUSED * kept::note(scene.root.path()));
}

#[test]
fn a_link_to_a_directory_is_not_read_a_second_time() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    let link = scene.root.path().join("link");
    std::os::unix::fs::symlink("a", &link).unwrap();
    scene.look();
    assert_eq!(scene.directories.open.len(), 1);
    assert!(scene.directories.refused[&link].contains("symbolic link"));
    // A path in the configuration may be one, also if a glob finds it too.
    let (named, glob) = (link.display().to_string(), scene.directories.patterns[0].clone());
    for patterns in [
        vec![named.clone()],
        vec![named.clone(), glob.clone()],
        vec![glob, named],
    ] {
        scene.directories.patterns = patterns;
        scene.reload();
        scene.look();
        assert!(scene.directories.open.contains_key(&link));
        assert!(scene.directories.refused.is_empty());
    }
}

#[test]
fn a_process_that_keeps_the_lock_of_the_merge_is_counted() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let mut scene = Scene::new("{grace_period: 0s}");
        count(&scene.process("a", "llm"), "a", 3);
        let lock = scene.root.path().join("a/.lock");
        let lock = std::fs::File::create(lock).unwrap();
        lock.lock_shared().unwrap();
        let locked = || {
            let all = page.series("tidegate_shm_refused");
            let of_lock = all.iter().find(|(labels, _)| labels.contains("\"lock\""));
            of_lock.map(|(_, count)| *count)
        };
        (1..BUSY_FOLDS).for_each(|_| scene.look());
        assert_eq!(locked(), Some(0.0), "another reader may have it");
        scene.look();
        assert_eq!(locked(), Some(1.0));
        lock.unlock().unwrap();
        scene.look();
        assert_eq!(locked(), Some(0.0));
        assert!(scene.root.path().join("a/retained.cells").exists());
    });
}
