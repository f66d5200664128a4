// SPDX-License-Identifier: Apache-2.0

//! `ring ls` and `ring inspect`: the verdict comes first, and the exit code says it to scripts.

use super::kit::command::{Finished, finished};
use super::kit::gateway::tidegate;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tidegate_ring::{Event, KINDS, Layout, Writer};

fn ring(command: &str, path: &Path) -> Finished {
    finished(tidegate().args(["ring", command]).arg(path))
}

#[test]
fn each_line_of_inspect_is_an_object_with_json() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("rank_0");
    let mut writer = Writer::create(&path, Layout::V4, 8).expect("a ring");
    let event = |kind: u16| Event {
        kind,
        ..Event::default()
    };
    assert_eq!(writer.push_all(&[event(0), event(1)]), 2);
    let mut command = tidegate();
    let Finished { code, output, errors } = finished(command.args(["ring", "inspect", "--json"]).arg(&path));
    assert_eq!(code, Some(0), "{output}{errors}");
    let lines: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["waiting"], &lines[0]["layout"]),
        (&2.into(), &"4".into())
    );
    let names: Vec<_> = lines[1..].iter().map(|line| &line["event_name"]).collect();
    assert_eq!(names, [KINDS[0].name, KINDS[1].name]);
}

#[test]
fn commands_judge_rings_and_other_files() {
    let directory = TempDir::new().expect("a temporary directory");
    let (good, other) = (directory.path().join("rank_0"), directory.path().join("other"));
    let _writer = Writer::create(&good, Layout::V4, 8).expect("a ring");
    fs::write(&other, [7; 4096]).expect("a file of the test");

    let Finished { code, output, errors } = ring("inspect", &good);
    assert_eq!(code, Some(0), "{output}{errors}");
    assert!(
        output.starts_with("verdict:          a ring, version 4\n"),
        "{output}"
    );
    let Finished { code, output, errors } = ring("inspect", &other);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.starts_with("verdict:          not a ring: "), "{output}");
    assert!(errors.contains("not a ring: "), "{errors}");

    for (path, expected) in [(&good, 0), (&other, 1)] {
        let mut command = tidegate();
        let Finished { code, output, errors } =
            finished(command.args(["ring", "inspect", "--json"]).arg(path));
        assert_eq!(code, Some(expected), "{output}{errors}");
        let line: Value = serde_json::from_str(&output).expect("one line of JSON");
        assert_eq!(line["is_ring"], expected == 0, "{line}");
        assert_eq!(line["reason"].is_null(), expected == 0, "{line}");
        assert_eq!(line["file"], path.display().to_string());
    }

    // A directory may have other files. A file that is named may not be another one.
    for (path, expected) in [(directory.path(), 0), (&*good, 0), (&*other, 1)] {
        let Finished { code, output, errors } = ring("ls", path);
        assert_eq!(code, Some(expected), "{output}{errors}");
        assert!(output.starts_with("KIND "), "{output}");
        assert_eq!(output.contains("ring v4"), path != other, "{output}");
    }
}
