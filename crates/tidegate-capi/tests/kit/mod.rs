// SPDX-License-Identifier: Apache-2.0

//! The library as a package would install it, and programs built with it.

#![allow(dead_code, reason = "a kit offers more than each of its users needs")]

use std::io::ErrorKind;
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

/// This package; the tests of whole gateways use this kit, too.
fn here() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    if package.ends_with("crates/tidegate-capi") {
        package.to_owned()
    } else {
        package.join("crates/tidegate-capi")
    }
}

/// Where `cargo xtask capi` put everything.
pub(crate) fn prefix() -> &'static Path {
    &PREFIX
}

/// The answer of pkg-config about the library.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let directory = prefix().join("lib/pkgconfig");
    let mut command = Command::new("pkg-config");
    let output = command
        .args(arguments)
        .arg("tidegate")
        .env("PKG_CONFIG_PATH", &directory);
    let said = match output.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => read(&directory, arguments),
        _ => run(output),
    };
    said.split_whitespace().map(str::to_owned).collect()
}

/// The same on a system without pkg-config.
fn read(directory: &Path, arguments: &[&str]) -> String {
    let file = std::fs::read_to_string(directory.join("tidegate.pc")).expect("the file is there");
    let mut variables = vec![("pcfiledir".to_owned(), directory.display().to_string())];
    let expand = |text: &str, variables: &[(String, String)]| {
        let replace =
            |text: String, (name, value): &(String, String)| text.replace(&format!("${{{name}}}"), value);
        variables.iter().rev().fold(text.to_owned(), replace)
    };
    let mut said = String::new();
    for line in file.lines() {
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| !name.contains(':')) {
            variables.push((name.to_owned(), expand(value, &variables)));
        } else if let Some((key, value)) = line.split_once(": ") {
            let wanted = match key {
                "Cflags" => "--cflags",
                "Libs" => "--libs",
                "Libs.private" => "--static",
                "Version" => "--modversion",
                _ => continue,
            };
            if arguments.contains(&wanted) {
                said = format!("{said} {}", expand(value, &variables));
            }
        }
    }
    said
}

/// Builds a program of this package (`examples/service.c`); every warning is an error.
pub(crate) fn compile(source: &str, directory: &Path) -> PathBuf {
    compile_with(source, directory, &pkg_config(&["--cflags", "--libs"]))
}

/// The same with arguments of the linker. `TIDEGATE_CFLAGS` is for sanitizers: `-fsanitize=address,undefined`.
pub(crate) fn compile_with(source: &str, directory: &Path, flags: &[String]) -> PathBuf {
    let source = here().join(source);
    let (compiler, standard) = match source.extension().and_then(|extension| extension.to_str()) {
        Some("c") => ("cc", "-std=c11"),
        _ => ("c++", "-std=c++17"),
    };
    let program = directory
        .join(source.file_name().expect("a file"))
        .with_extension("program");
    let more = std::env::var("TIDEGATE_CFLAGS").unwrap_or_default();
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];
    run(Command::new(compiler)
        .arg(standard)
        .args(warnings)
        .args(["-O1", "-pthread"])
        .args(more.split_whitespace())
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
