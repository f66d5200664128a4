// SPDX-License-Identifier: Apache-2.0

//! Finding, checking and loading: what is refused, and that the refusal says what to do about it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::path::{Path, PathBuf};

use kit::{odd, opaque, wanted};
use tempfile::TempDir;
use tidegate_plugin::host::{Instance, Library, Refusal, Setup, Wanted};
use tidegate_plugin::{Answer, Takes};

fn setup(config: &str) -> Setup {
    Setup {
        id: "plugin/odd".to_owned(),
        config: config.to_owned(),
    }
}

/// The errors of inspecting the file and of loading it.
fn refused(wanted: &Wanted) -> (Option<String>, String) {
    let inspected = wanted.inspect().err().map(|refusal| refusal.to_string());
    let opened = Library::open(wanted).expect_err("it is refused");
    (inspected, opened.to_string())
}

#[test]
fn a_plugin_is_found_in_the_first_directory_that_has_it() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let directories = [first.path().to_owned(), second.path().to_owned()];
    let Err(Refusal::NotFound { tried, .. }) = Wanted::find("odd", &directories) else {
        panic!("no place has it");
    };
    let expected = directories.map(|directory| directory.join("libtidegate_exporter_odd.so"));
    assert_eq!(tried, expected);
    let later = odd(&second, "libtidegate_exporter_odd.so", &[]);
    let directories = [first.path().to_owned(), second.path().to_owned()];
    assert_eq!(Wanted::find("odd", &directories).unwrap().path, later);
    let earlier = odd(&first, "libtidegate_exporter_odd.so", &[]);
    assert_eq!(Wanted::find("odd", &directories).unwrap().path, earlier);
}

#[test]
fn a_plugin_says_what_it_is_and_answers() {
    let directory = TempDir::new().unwrap();
    let path = odd(&directory, "libtidegate_exporter_odd.so", &[]);
    let wanted = Wanted {
        name: Some("odd".to_owned()),
        version: Some("^1.2".parse().unwrap()),
        ..wanted(&path)
    };
    wanted.inspect().unwrap();
    let library = Library::open(&wanted).unwrap();
    let described = library.description();
    assert_eq!(
        (described.name.as_str(), described.version.as_str()),
        ("odd", "1.2.3")
    );
    assert!(described.takes.has(Takes::METRICS.and(Takes::EVENTS)));
    let answers = [
        ("fine", "ok"),
        ("partial", "partial: two are odd"),
        ("retry", "retry: busy"),
        ("deny", "refused: not for me"),
        ("invalid", "invalid"),
        ("small", "too_large"),
        ("unknown", "refused: it answered with the unknown status 77: "),
    ];
    for (config, expected) in answers {
        let mut instance = Instance::create(&library, &setup(config)).unwrap();
        let answer = instance.export(&opaque(5));
        assert_eq!(answer.to_string(), expected);
        let after = Some(std::time::Duration::from_millis(7));
        match answer {
            Answer::Partial { lost_items, .. } => assert_eq!(lost_items, 2),
            Answer::Retry { after: said, .. } => assert_eq!(said, after),
            _ => {}
        }
    }
}

#[test]
fn what_a_plugin_writes_into_its_answer_is_not_trusted() {
    let directory = TempDir::new().unwrap();
    let library = Library::open(&wanted(&odd(&directory, "a.so", &[]))).unwrap();
    let mut instance = Instance::create(&library, &setup("long-message")).unwrap();
    assert_eq!(instance.export(&opaque(1)).why(), "x".repeat(1024));
}

#[test]
fn a_plugin_that_refuses_its_configuration_is_quoted() {
    let directory = TempDir::new().unwrap();
    let library = Library::open(&wanted(&odd(&directory, "a.so", &[]))).unwrap();
    let refusal = Instance::create(&library, &setup("refuse")).err().unwrap();
    assert_eq!(
        refusal.to_string(),
        "the plugin `odd` 1.2.3 refuses its configuration: no such table: t1"
    );
}

#[test]
fn instances_are_flushed_and_destroyed() {
    let directory = TempDir::new().unwrap();
    let library = Library::open(&wanted(&odd(&directory, "a.so", &[]))).unwrap();
    let log = directory.path().join("log");
    let mut instance = Instance::create(&library, &setup(&format!("fine {}", log.display()))).unwrap();
    instance.export(&opaque(4));
    instance.flush();
    drop(instance);
    assert_eq!(
        std::fs::read_to_string(log).unwrap(),
        "export 4\nflush 1\ndestroy 1\n"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_what_was_expected_and_what_was_found() {
    let directory = TempDir::new().unwrap();
    let table: [(&[&str], &str); 10] = [
        (&["-DABI=99"], "expected plugin ABI version 1, found version 99"),
        (
            &["-DSIZE=16"],
            "expected a table of at least 64 bytes, found one of 16",
        ),
        (&["-DNAME=NULL"], "expected a name, found none"),
        (&["-DNAME=\"a/b\""], "letters, digits, `_` and `-`, found \"a/b\""),
        (
            &["-DNAME=\"other\""],
            "expected the plugin `odd`, found the plugin `other`",
        ),
        (
            &["-DVERSION=\"two\""],
            "expected a version such as 1.0.0, found \"two\"",
        ),
        (
            &["-DVERSION=\"2.0.0\""],
            "expected version ^1.2 of the plugin `odd`, found version 2.0.0",
        ),
        (
            &["-DTAKES=0"],
            "expected a plugin that takes something, found one that takes nothing",
        ),
        (&["-DTAKES=64"], "found one that takes nothing"),
        (
            &["-DEXPORT=NULL"],
            "expected a function `export_batch`, found none",
        ),
    ];
    for (at, (defines, expected)) in table.into_iter().enumerate() {
        let path = odd(&directory, &format!("{at}.so"), defines);
        let wanted = Wanted {
            path: path.clone(),
            name: Some("odd".to_owned()),
            version: Some("^1.2".parse().unwrap()),
        };
        let (inspected, opened) = refused(&wanted);
        assert_eq!(inspected, None, "only running it shows this");
        assert!(opened.starts_with(&path.display().to_string()), "{opened}");
        assert!(opened.contains(expected), "{opened}");
    }
}

#[test]
fn what_is_no_plugin_is_known_without_loading_it() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("text.so"), "no shared object").unwrap();
    std::fs::write(path("empty.so"), "").unwrap();
    let whole = std::fs::read(odd(&directory, "whole.so", &[])).unwrap();
    std::fs::write(path("torn.so"), &whole[..100]).unwrap();
    let mut other = whole;
    // e_machine: an architecture without tests.
    other[18..20].copy_from_slice(&[8, 0]);
    std::fs::write(path("other.so"), &other).unwrap();
    odd(&directory, "entry.so", &["-DNO_ENTRY"]);
    let executable = std::env::current_exe().unwrap();
    let table: [(PathBuf, &str); 8] = [
        (path("none.so"), "No such file"),
        (
            directory.path().to_owned(),
            "expected a shared object, found no regular file",
        ),
        (
            path("text.so"),
            "expected a shared object (ELF), found something else",
        ),
        (
            path("empty.so"),
            "expected a shared object (ELF), found something else",
        ),
        (path("torn.so"), "expected"),
        (path("other.so"), "found one for Mips"),
        (
            path("entry.so"),
            "exports `tidegate_exporter_plugin`, found a shared object without that symbol",
        ),
        (executable, "expected"),
    ];
    for (path, expected) in table {
        let (inspected, opened) = refused(&wanted(&path));
        assert_eq!(inspected.as_ref(), Some(&opened));
        assert!(opened.contains(expected), "{opened}");
    }
}

#[test]
fn a_missing_dependency_is_named_by_the_loader() {
    let directory = TempDir::new().unwrap();
    let library = odd(&directory, "libneeded_elsewhere.so", &["-DNO_ENTRY"]);
    let needed = format!("-L{}", directory.path().display());
    let flags = ["-Wl,--no-as-needed", &needed, "-lneeded_elsewhere"];
    let path = odd(&directory, "a.so", &flags);
    std::fs::remove_file(library).unwrap();
    wanted(&path).inspect().unwrap();
    let refusal = Library::open(&wanted(&path)).err().unwrap().to_string();
    assert!(
        refusal.contains("can't be loaded: libneeded_elsewhere.so"),
        "{refusal}"
    );
}

/// Every struct of the header has the members of ours, where ours has them.
#[test]
fn the_header_and_its_copy_in_rust_agree() {
    use tidegate_plugin::abi;
    macro_rules! layout {
        ($($name:literal = $type:ident { $($field:ident),* })*) => {
            vec![$(
                ($name, "", size_of::<abi::$type>()),
                $(($name, stringify!($field), std::mem::offset_of!(abi::$type, $field)),)*
            )*]
        };
    }
    let layout = layout! {
        "tidegate_text" = Text { data, length }
        "tidegate_bytes" = Bytes { data, length }
        "tidegate_attribute" = Attribute { key, value }
        "tidegate_kind" = Kind { name, category, unit, description, instrument, attributes, attribute_count }
        "tidegate_events" = Events {
            source, attributes, attribute_count, kinds, kind_count, count, kind, values_u64, values_f64, times_ns, weights
        }
        "tidegate_batch" = Batch { struct_size, signal, items, otlp, events, events_count }
        "tidegate_setup" = Setup { struct_size, id, config }
        "tidegate_answer" = Answer {
            struct_size, retry_after_ns, lost_items, message, message_capacity, message_length
        }
        "tidegate_exporter_table" = Table {
            abi_version, takes, struct_size, name, version, create, export_batch, flush, destroy
        }
    };
    let mut source = String::from("#include \"tidegate_plugin.h\"\n#include <assert.h>\n");
    for (name, field, value) in layout {
        source += &match field {
            "" => format!("static_assert(sizeof({name}) == {value}, \"{name}\");\n"),
            field => format!("static_assert(offsetof({name}, {field}) == {value}, \"{name}.{field}\");\n"),
        };
    }
    let numbers = [
        ("TIDEGATE_PLUGIN_ABI_VERSION", i64::from(abi::ABI_VERSION)),
        ("TIDEGATE_TAKES_METRICS", abi::takes::METRICS.into()),
        ("TIDEGATE_TAKES_TRACES", abi::takes::TRACES.into()),
        ("TIDEGATE_TAKES_LOGS", abi::takes::LOGS.into()),
        ("TIDEGATE_TAKES_EVENTS", abi::takes::EVENTS.into()),
        ("TIDEGATE_OK", abi::status::OK.into()),
        ("TIDEGATE_PARTIAL", abi::status::PARTIAL.into()),
        ("TIDEGATE_RETRY", abi::status::RETRY.into()),
        ("TIDEGATE_REFUSED", abi::status::REFUSED.into()),
        ("TIDEGATE_INVALID", abi::status::INVALID.into()),
        ("TIDEGATE_TOO_LARGE", abi::status::TOO_LARGE.into()),
        ("TIDEGATE_METRICS", 0),
        ("TIDEGATE_TRACES", 1),
        ("TIDEGATE_LOGS", 2),
        ("TIDEGATE_COUNTER", 0),
        ("TIDEGATE_UP_DOWN_COUNTER", 1),
        ("TIDEGATE_GAUGE", 2),
        ("TIDEGATE_HISTOGRAM", 3),
    ];
    for (name, value) in numbers {
        source += &format!("static_assert({name} == {value}, \"{name}\");\n");
    }
    let directory = TempDir::new().unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, standard, file) in [
        ("cc", "c11", "a.c"),
        ("c++", "c++11", "a.cpp"),
        ("c++", "c++17", "b.cpp"),
    ] {
        let path = directory.path().join(file);
        std::fs::write(&path, &source).unwrap();
        let output = std::process::Command::new(compiler)
            .arg(format!("-std={standard}"))
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
            .args([&include, &path])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{compiler} {standard}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_plugin_of_the_guide_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("../../docs/plugins.md")).unwrap();
    let source = guide.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("libtidegate_exporter_hello.so");
    std::fs::write(directory.path().join("hello.c"), source).unwrap();
    let output = std::process::Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O2",
            "-shared",
            "-fPIC",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(directory.path().join("hello.c"))
        .arg("-o")
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = Wanted::find("hello", &[directory.path().to_owned()]).unwrap();
    let library = Library::open(&found).unwrap();
    assert!(Instance::create(&library, &setup("")).is_err());
    let mut instance = Instance::create(&library, &setup("good morning")).unwrap();
    assert_eq!(instance.export(&opaque(1)), Answer::Ok);
}
