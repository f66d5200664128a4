// SPDX-License-Identifier: Apache-2.0

//! Files of older builds.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::scan;
use tidegate_cells::Value;

/// A file of a process with format version 2, whose segments have at least 64 KiB: as a text of offsets and bytes.
const VERSION_2: &str = include_str!("data/version-2.txt");

fn file_of(text: &str) -> Vec<u8> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let size = lines.next().and_then(|line| line.strip_prefix("size ")).unwrap();
    let mut file = vec![0; size.parse().unwrap()];
    for (offset, hex) in lines.map(|line| line.split_once(' ').unwrap()) {
        let offset: usize = offset.parse().unwrap();
        for (at, digits) in hex.as_bytes().chunks(2).enumerate() {
            let digits = std::str::from_utf8(digits).unwrap();
            file[offset + at] = u8::from_str_radix(digits, 16).unwrap();
        }
    }
    file
}

#[test]
fn a_file_with_large_segments_is_read_and_folded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::write(
        path.join("17379-530538-ad78a93405d0278f.cells"),
        file_of(VERSION_2),
    )
    .unwrap();
    for folded in [false, true] {
        if folded {
            common::reader(path).fold(std::time::Duration::ZERO).unwrap();
        }
        let scan = scan(path);
        let value = |name, label| scan.merged.value(name, &[("l", label)]);
        assert_eq!(value("requests", "a"), Some(&Value::FloatCounter(41.5)));
        assert_eq!(value("requests", "b"), Some(&Value::FloatCounter(1.0)));
        let buckets = vec![1, 1, 1];
        assert_eq!(
            value("latency", "a"),
            Some(&Value::Histogram { buckets, sum: 55.5 })
        );
        assert_eq!(scan.resource, [("service.name".to_owned(), "old".to_owned())]);
    }
}
