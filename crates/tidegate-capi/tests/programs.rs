// SPDX-License-Identifier: Apache-2.0

//! The examples, built against the installed library by the machine's compilers, and what they show.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::path::Path;

use kit::{command, compile, compile_with, pkg_config, prefix, run};
use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

const SERVICE: &str = "\
mean 0.8 s
slow
# HELP service_inflight Requests in flight
# TYPE service_inflight gauge
service_inflight{model=\"llama\"} 2
# HELP service_requests_total Requests processed
# TYPE service_requests_total counter
service_requests_total{model=\"llama\",status=\"200\"} 3
# HELP service_ttft_seconds Time to the first token
# TYPE service_ttft_seconds histogram
";

#[test]
fn what_is_installed_is_what_packages_expect() {
    let lib = prefix().join("lib");
    assert_eq!(
        std::fs::read_link(lib.join("libtidegate.so")).unwrap(),
        Path::new("libtidegate.so.1")
    );
    for file in [
        "libtidegate.a",
        "libtidegate.so.1",
        "pkgconfig/tidegate.pc",
        "cmake/tidegate/tidegate-config.cmake",
        "cmake/tidegate/tidegate-config-version.cmake",
    ] {
        assert!(lib.join(file).is_file(), "{file}");
    }
    for file in ["tidegate.h", "tidegate.hpp", "tidegate/handle.hpp"] {
        assert!(prefix().join("include").join(file).is_file(), "{file}");
    }
    assert_eq!(pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    // Programs remember the number of the ABI.
    let directory = TempDir::new().unwrap();
    let program = compile("examples/service.c", directory.path());
    let dynamic = run(std::process::Command::new("readelf").arg("-d").arg(program));
    assert!(dynamic.contains("[libtidegate.so.1]"), "{dynamic}");
}

#[test]
fn the_guides_programs_say_the_same_in_c_and_in_cpp() {
    let directory = TempDir::new().unwrap();
    let c = run(&mut command(&compile("examples/service.c", directory.path())));
    assert!(c.starts_with(SERVICE), "{c}");
    assert!(
        c.contains("service_ttft_seconds_bucket{model=\"llama\",le=\"0.5\"} 1\n"),
        "{c}"
    );
    assert!(
        c.contains("service_ttft_seconds_count{model=\"llama\"} 3\n"),
        "{c}"
    );
    let cpp = run(&mut command(&compile("examples/service.cpp", directory.path())));
    assert_eq!(cpp, c);
}

#[test]
fn a_declared_struct_has_its_instruments_all_or_none() {
    let directory = TempDir::new().unwrap();
    let c = run(&mut command(&compile("examples/set.c", directory.path())));
    for line in [
        "service_requests_total{model=\"llama\",status=\"200\"} 3\n",
        "service_inflight{model=\"llama\"} 2\n",
        "service_ttft_seconds_count{model=\"llama\"} 1\n",
    ] {
        assert!(c.contains(line), "{c}");
    }
    let page = c.strip_suffix("TG_CONFLICT, nothing\n").expect("all or nothing");
    let cpp = run(&mut command(&compile("examples/set.cpp", directory.path())));
    assert_eq!(cpp, page);
}

#[test]
fn a_program_can_have_the_library_within() {
    let directory = TempDir::new().unwrap();
    let mut flags = pkg_config(&["--cflags"]);
    flags.push(prefix().join("lib/libtidegate.a").display().to_string());
    let private = pkg_config(&["--libs", "--static"]);
    flags.extend(private.into_iter().filter(|flag| flag != "-ltidegate"));
    let program = compile_with("examples/service.c", directory.path(), &flags);
    let said = run(command(&program).env_remove("LD_LIBRARY_PATH"));
    assert!(said.starts_with(SERVICE), "{said}");
}

#[test]
fn the_guide_shows_the_very_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("../../docs/c.md")).unwrap();
    for example in ["service.c", "service.cpp", "set.c", "set.cpp"] {
        let text = std::fs::read_to_string(root.join("examples").join(example)).unwrap();
        // The guide leaves out the line of the licence.
        let (_, program) = text.split_once("\n\n").unwrap();
        assert!(guide.contains(program), "docs/c.md has another {example}");
    }
}

#[test]
fn the_guide_of_three_languages_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("../../docs/guides/sdk.md")).unwrap();
    let text = std::fs::read_to_string(root.join("examples/cells.c")).unwrap();
    let (_, program) = text.split_once("\n\n").unwrap();
    assert!(
        guide.contains(&format!("<<'END'\n{program}END\n")),
        "docs/guides/sdk.md has another cells.c"
    );
    let directory = TempDir::new().unwrap();
    compile("examples/cells.c", directory.path());
}

const JOBS: &str = "\
# HELP jobs_total Jobs done
# TYPE jobs_total counter
jobs_total{queue=\"a\"} 2
";

const CALLS: &str = "\
family 1 is jobs
family 2 is size
1 grows by 2
2 observes 1000
";

#[test]
fn a_component_does_not_know_its_registry() {
    let directory = TempDir::new().unwrap();
    let program = compile("examples/switch.c", directory.path());
    let switch = |arguments: &[&str]| run(command(&program).args(arguments));

    let prometheus = switch(&["prometheus"]);
    assert!(prometheus.starts_with(JOBS), "{prometheus}");
    assert!(
        prometheus.contains("size_bytes_bucket{le=\"1024\"} 1\n"),
        "{prometheus}"
    );

    let cells = directory.path().join("cells");
    let cells = cells.to_str().unwrap();
    assert_eq!(switch(&["shm", cells]), prometheus);
    // The values of the first process are still there.
    assert!(switch(&["shm", cells]).contains("jobs_total{queue=\"a\"} 4\n"));

    assert_eq!(switch(&["null"]), "");
    assert_eq!(switch(&["foreign"]), format!("{CALLS}{prometheus}released\n"));
    assert_eq!(switch(&["fanout"]), format!("{CALLS}{prometheus}released\n"));
}

#[test]
fn forked_processes_count_together() {
    let directory = TempDir::new().unwrap();
    let program = compile("examples/fork.c", directory.path());
    let page = run(command(&program).arg(directory.path().join("cells")));
    assert!(page.contains("jobs_total 31\n"), "{page}");
}

#[test]
fn a_ring_is_drained() {
    let directory = TempDir::new().unwrap();
    let program = compile("examples/ring.c", directory.path());
    let rings = directory.path().join("rings");
    std::fs::create_dir(&rings).unwrap();
    std::fs::write(rings.join("no ring"), "at all").unwrap();
    let mut writer = Writer::create(rings.join("agent"), Layout::V4, 16).unwrap();
    for (kind, value) in [(0, 4096), (7, 12)] {
        let timestamp_us = 0;
        assert!(writer.push(Event {
            kind,
            value,
            timestamp_us
        }));
    }
    writer.flush();
    let kind = |at: usize| (tidegate_ring::KINDS[at].name, tidegate_ring::KINDS[at].unit);
    let ((first, bytes), (second, unit)) = (kind(0), kind(7));
    let said = run(command(&program).arg(&rings));
    assert_eq!(
        said,
        format!("version 4, 2 events\n{first} 4096 {bytes}\n{second} 12 {unit}\n2 taken, 0 lost\n")
    );
    assert_eq!(
        run(command(&program).arg(&rings)),
        "version 4, 0 events\n0 taken, 0 lost\n"
    );
}

#[test]
fn the_header_is_for_every_compiler() {
    let directory = TempDir::new().unwrap();
    let flags = pkg_config(&["--cflags"]);
    for (compiler, standard, suffix) in [
        ("cc", "c11", "c"),
        ("cc", "c17", "c"),
        ("c++", "c++11", "cpp"),
        ("c++", "c++20", "cpp"),
    ] {
        let source = directory.path().join("empty").with_extension(suffix);
        std::fs::write(&source, "#include <tidegate.h>\nint main(void) { return 0; }\n").unwrap();
        run(std::process::Command::new(compiler)
            .args([
                &format!("-std={standard}"),
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
            ])
            .args(&flags)
            .arg(&source));
    }
}
