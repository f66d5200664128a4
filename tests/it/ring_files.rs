// SPDX-License-Identifier: Apache-2.0

//! `ring ls` and `ring inspect`: the verdict comes first, and the exit code says it to scripts.

use super::kit::command::{Finished, finished};
use super::kit::gateway::tidegate;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tidegate_ring::{Layout, Writer};

fn ring(command: &str, path: &Path) -> Finished {
    finished(tidegate().args(["ring", command]).arg(path))
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

    // A directory may have other files. A file that is named may not be another one.
    for (path, expected) in [(directory.path(), 0), (&*good, 0), (&*other, 1)] {
        let Finished { code, output, errors } = ring("ls", path);
        assert_eq!(code, Some(expected), "{output}{errors}");
        assert!(output.starts_with("KIND "), "{output}");
        assert_eq!(output.contains("ring v4"), path != other, "{output}");
    }
}
