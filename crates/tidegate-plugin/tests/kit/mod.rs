// SPDX-License-Identifier: Apache-2.0

//! The plugin that the tests of this crate share. It obeys its configuration, and the C compiler builds it.

#![allow(dead_code, reason = "no test uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_plugin::Signal;
use tidegate_plugin::host::{ExportBatch, Wanted};

/// Builds `tests/odd.c` with these defines.
pub(crate) fn odd(directory: &TempDir, file: &str, defines: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = directory.path().join(file);
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-shared",
            "-fPIC",
        ])
        .args(defines)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/odd.c"))
        .arg("-o")
        .arg(&path)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    path
}

pub(crate) fn wanted(path: &Path) -> Wanted {
    Wanted {
        path: path.to_owned(),
        name: None,
        version: None,
    }
}

/// Bytes in place of OTLP, which the tests do not decode.
pub(crate) fn opaque(items: u64) -> ExportBatch {
    ExportBatch {
        signal: Signal::Metrics,
        items,
        otlp: b"opaque".as_slice().into(),
        events: Vec::new(),
    }
}
