// SPDX-License-Identifier: Apache-2.0

//! The header is what the source says.

use std::path::{Path, PathBuf};

/// In the order in which a reader of the header wants them.
const SOURCES: [&str; 18] = [
    "src/status.rs",
    "src/arguments.rs",
    "src/registry.rs",
    "src/registry_names.rs",
    "src/otel.rs",
    "../tidegate-metrics/src/registries/foreign.rs",
    "src/family.rs",
    "src/instrument.rs",
    "src/set.rs",
    "src/any.rs",
    "src/composite.rs",
    "src/watch.rs",
    "src/gather.rs",
    "src/server.rs",
    "src/trace.rs",
    "src/spans.rs",
    "src/ring.rs",
    "src/ring_calls.rs",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(here("cbindgen.toml")).expect("the settings");
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES
        .iter()
        .fold(builder, |builder, source| builder.with_src(here(source)));
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    String::from_utf8(header).expect("the header is text")
}

/// With `UPDATE_GOLDEN` set the header is written again; look at the difference.
#[test]
fn the_header_matches_the_source() {
    let (path, header) = (here("include/tidegate.h"), generated());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &header).expect("the header is written");
    }
    let written = std::fs::read_to_string(&path).expect("the header is read");
    let stale = written.lines().zip(header.lines()).find(|(old, new)| old != new);
    assert!(
        written == header,
        "include/tidegate.h is stale (run with UPDATE_GOLDEN=1): {stale:?}"
    );
}
