//! The library as a package would install it, and programs built with it.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    let xtask = ["run", "--offline", "--quiet", "--package", "xtask", "--"];
    let install = ["capi", "--debug", "--prefix"];
    run(Command::new(env!("CARGO")).args(xtask).args(install).arg(&prefix));
    prefix
});

/// Where `cargo xtask capi` put everything.
pub(crate) fn prefix() -> &'static Path {
    &PREFIX
}

/// What pkg-config says of the library.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let output = run(Command::new("pkg-config")
        .args(arguments)
        .arg("tidegate")
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    output.split_whitespace().map(str::to_owned).collect()
}

/// Builds a program of this package (`examples/service.c`); every warning is an error.
pub(crate) fn compile(source: &str, directory: &Path) -> PathBuf {
    compile_with(source, directory, &pkg_config(&["--cflags", "--libs"]))
}

/// The same with what the linker is told.
pub(crate) fn compile_with(source: &str, directory: &Path, flags: &[String]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let (compiler, standard) = match source.extension().and_then(|extension| extension.to_str()) {
        Some("c") => ("cc", "-std=c11"),
        _ => ("c++", "-std=c++17"),
    };
    let program = directory
        .join(source.file_name().expect("a file"))
        .with_extension("program");
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];
    run(Command::new(compiler)
        .arg(standard)
        .args(warnings)
        .args(["-O1", "-pthread"])
        .arg(source)
        .args(flags)
        .arg("-o")
        .arg(&program));
    program
}

/// A program that finds the library where it was installed.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(variable);
    }
    command
}

/// Runs to the end, and gives what was printed.
///
/// # Panics
/// It fails.
pub(crate) fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}
