// SPDX-License-Identifier: Apache-2.0

//! Every file in `tests/data/bad` renders to the text beside it; those in `good` to nothing.

use std::fs;
use std::path::{Path, PathBuf};

use super::load;
use crate::{Class, Severity, print_redacted};

fn fixtures(kind: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<_> = fs::read_dir(root.join(kind))
        .expect("the fixtures are in the repository")
        .map(|entry| entry.expect("a directory that can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// With `UPDATE_GOLDEN` set, the test writes the expected texts: look at the difference.
#[test]
fn each_bad_file_shows_all_its_problems() {
    let mut wrong = String::new();
    for path in fixtures("bad") {
        let name = path.file_name().expect("a file").to_string_lossy();
        let shown = load(&name, &read(&path)).problems.to_string();
        let golden = path.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &shown).expect("a writable checkout");
        }
        if shown.is_empty() || shown != read(&golden) {
            wrong += &format!("--- {name} now gives\n{shown}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_problem_shows_a_secret() {
    for path in fixtures("bad") {
        let loaded = load("x.yaml", &read(&path));
        let printed = loaded.document.map(|d| print_redacted(&d.root, &loaded.problems));
        let shown = format!("{} {:?}", loaded.problems, loaded.problems);
        assert!(!shown.contains("hunter2"), "{shown}");
        if path.ends_with("secrets.yaml") {
            let printed = printed.expect("a file that can be read");
            assert!(printed.contains("[REDACTED]"), "{printed}");
            let timeout = "timeout: hunter2";
            assert!(!printed.replace(timeout, "").contains("hunter2"), "{printed}");
        }
    }
}

#[test]
fn good_files_give_no_problem_and_the_whole_document() {
    for path in fixtures("good") {
        let loaded = load("x.yaml", &read(&path));
        assert!(loaded.problems.is_empty(), "{}", loaded.problems);
        let document = loaded.document.expect("a document");
        assert_eq!(document.section(Class::Receiver).len(), 2);
        assert_eq!(document.service.pipelines.len(), 2);
        assert_eq!(document.service.pipelines[1].id.to_string(), "metrics/onward");
        assert_eq!(document.service.extensions[0].id.to_string(), "health_check");
        assert!(document.service.telemetry.is_some());
    }
}

#[test]
fn problems_can_be_read_by_machines_in_file_order() {
    let text = "exporters: {debug: }\nfoo: 1\nservice: {pipelines: {metrics: {receivers: [a]}}}";
    let loaded = load("m.yaml", text);
    let found: Vec<_> = (loaded.problems.sorted().into_iter())
        .map(|p| (p.severity, p.span.map(|s| (s.line, s.column)), p.path.as_str()))
        .collect();
    let pipeline = "service::pipelines::metrics";
    let receiver = format!("{pipeline}::receivers[0]");
    let expected = [
        (Severity::Error, Some((1, 1)), ""),
        (Severity::Error, Some((2, 1)), "foo"),
        (Severity::Error, Some((3, 23)), pipeline),
        (Severity::Error, Some((3, 45)), receiver.as_str()),
    ];
    assert_eq!(found, expected);
}

#[test]
fn printing_the_effective_configuration_gives_yaml_that_means_the_same() {
    let text = "a: {b: [1, \"two\", [x, {y: ~}], {}], 'c d': 'e\"\\\n'}\nf: [true, 1.5, \"true\", \"\"]\n";
    let mut problems = crate::Problems::default();
    let root = crate::parse_text("a.yaml", text, &mut problems).expect("YAML");
    let printed = print_redacted(&root, &problems);
    let again = crate::parse_text("b.yaml", &printed, &mut problems).expect("YAML");
    assert!(problems.is_empty(), "{problems}");
    assert_eq!(printed, print_redacted(&again, &problems));
}

#[test]
fn a_secret_hides_itself_and_nothing_that_follows_it() {
    for (line, shown) in [
        (
            "{api_key: hunter2, queue: {storage: [}",
            "{api_key: [REDACTED], queue: {storage: [}",
        ),
        (
            "{api_key: \"a, \\\"b\", queue: [}",
            "{api_key: [REDACTED], queue: [}",
        ),
        ("{api_key: 'it''s', queue: [}", "{api_key: [REDACTED], queue: [}"),
        (
            "{api_key: \"${env:KEY}\", queue: [}",
            "{api_key: \"${env:KEY}\", queue: [}",
        ),
        ("{headers: {a: b, c: d}, queue: [}", "{headers: [REDACTED]"),
        (
            "{api_key: hunter2, token: hunter3, queue: [}",
            "{api_key: [REDACTED], token: [REDACTED], queue: [}",
        ),
        (
            "{headers: x: {a: \"hunter2\", b: c}, queue: [}",
            "{headers: [REDACTED]",
        ),
        ("{api_key: \"a\" hunter2, queue: [}", "{api_key: [REDACTED]"),
    ] {
        let said = load("broken.yaml", line).problems.to_string();
        assert!(said.contains(&format!("1 | {shown}\n")), "{line}: {said}");
    }
}
