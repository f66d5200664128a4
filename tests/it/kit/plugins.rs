// SPDX-License-Identifier: Apache-2.0

//! Exporter plugins, built once by the compilers of their languages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where the plugins of `examples/plugins` are.
pub(crate) fn examples() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build);
    &BUILT
}

fn build() -> PathBuf {
    // Not under target/: a checkout may be in a folder that all users may write to, and no plugin is loaded from there. All
    // runs of a user share it.
    let user = rustix::process::getuid().as_raw();
    let directory = std::env::temp_dir().join(format!("tidegate-tests-{user}"));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    compile(
        "cc",
        "c11",
        "examples/plugins/csv-c/csv.c",
        &directory.join(file("csv_c")),
        &[],
    );
    compile(
        "c++",
        "c++17",
        "examples/plugins/csv-cpp/csv.cpp",
        &directory.join(file("csv_cpp")),
        &[],
    );
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plugins/target");
    run(Command::new(env!("CARGO"))
        .args([
            "build",
            "--offline",
            "--quiet",
            "--package",
            "tidegate-exporter-csv-rust",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(root()));
    put(
        &target.join("debug").join(file("csv_rust")),
        &directory.join(file("csv_rust")),
    );
    directory
}

/// The plugin of `crates/tidegate-plugin/tests/odd.c`, which does what its configuration says, at `path`.
pub(crate) fn odd(path: &Path, defines: &[&str]) {
    compile("cc", "gnu11", "crates/tidegate-plugin/tests/odd.c", path, defines);
}

/// The file name of a plugin.
pub(crate) fn file(name: &str) -> String {
    format!("libtidegate_exporter_{name}.so")
}

/// Another process may be running tests with the file that is there: it is replaced, not written to.
fn compile(compiler: &str, standard: &str, source: &str, to: &Path, defines: &[&str]) {
    let fresh = to.with_extension(format!("{}.new", std::process::id()));
    run(Command::new(compiler)
        .args([
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
        ])
        .args(["-O2", "-shared", "-fPIC", "-I", "crates/tidegate-plugin/include"])
        .args(defines)
        .args([source, "-o"])
        .arg(&fresh)
        .current_dir(root()));
    std::fs::rename(fresh, to).expect("the same directory");
}

fn put(from: &Path, to: &Path) {
    let fresh = to.with_extension(format!("{}.new", std::process::id()));
    std::fs::copy(from, &fresh).expect("cargo built it");
    std::fs::rename(fresh, to).expect("the same directory");
}

fn run(command: &mut Command) {
    let output = command.output().expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
