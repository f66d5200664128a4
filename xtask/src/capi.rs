// SPDX-License-Identifier: Apache-2.0

//! The C and C++ library, installed as packages expect it: library, headers, files for pkg-config and CMake.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::progress::LongTask;
use crate::test::{self, workspace};
use crate::{Outcome, process};

const USAGE: &str = "usage: cargo xtask capi --prefix DIRECTORY [--debug]";

/// The libraries of the system that `libtidegate.a` needs.
const STATIC_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Installs the library, with lines of progress.
pub(crate) fn capi(arguments: &[String]) -> Outcome {
    let _progress = LongTask::new("capi: build of the library").begin(String::new);
    install(arguments)
}

/// Builds the library (optimised, without `--debug`) and puts it below the prefix.
pub(crate) fn install(arguments: &[String]) -> Outcome {
    let (mut prefix, mut is_debug) = (None, false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--prefix" => prefix = arguments.next(),
            "--debug" => is_debug = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let prefix = Path::new(prefix.ok_or(USAGE)?);
    let built = build(is_debug)?;
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let headers = workspace().join("crates/tidegate-capi/include");
    create(&lib.join("pkgconfig"))?;
    copy_all(&headers, &include)?;
    let abi = abi(&headers.join("tidegate.h"))?;
    let numbered = format!("libtidegate.so.{abi}");
    copy(&built.join("libtidegate_capi.so"), &lib.join(&numbered))?;
    copy(&built.join("libtidegate_capi.a"), &lib.join("libtidegate.a"))?;
    let link = lib.join("libtidegate.so");
    let _ = fs::remove_file(&link); // what can't be removed shows below
    symlink(&numbered, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    let file = lib.join("pkgconfig/tidegate.pc");
    fs::write(&file, pkg_config()).map_err(|error| format!("{}: {error}", file.display()))?;
    add_cmake(&lib.join("cmake/tidegate"), &abi)
}

/// Writes the files that CMake's `find_package(tidegate)` reads.
fn add_cmake(directory: &Path, abi: &str) -> Outcome {
    create(directory)?;
    let templates = workspace().join("crates/tidegate-capi/cmake");
    // CMake writes a list with semicolons, and names of libraries without `-l`.
    let libraries = STATIC_LIBRARIES.replace("-l", "").replace(' ', ";");
    for name in ["tidegate-config.cmake", "tidegate-config-version.cmake"] {
        let (from, to) = (templates.join(name), directory.join(name));
        let template = fs::read_to_string(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        let text = template
            .replace("@ABI@", abi)
            .replace("@STATIC_LIBRARIES@", &libraries)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(&to, text).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Gives the directory that the library is in.
fn build(is_debug: bool) -> Result<PathBuf, String> {
    if is_debug {
        // Cargo can't choose one library with the features of all tests. The tests need the others too.
        test::build(&["--lib"])?;
        return Ok(process::target().join("debug"));
    }
    let mut cargo = process::cargo();
    cargo
        .args(["build", "--release", "--package", "tidegate-capi", "--target-dir"])
        .arg(process::target())
        .current_dir(workspace());
    process::stream(&mut cargo)?;
    Ok(process::target().join("release"))
}

/// The number in the library's name, as the header has it.
fn abi(header: &Path) -> Result<String, String> {
    let text = fs::read_to_string(header).map_err(|error| format!("{}: {error}", header.display()))?;
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix("#define TG_ABI_VERSION "));
    let number = number.ok_or_else(|| format!("{}: no TG_ABI_VERSION", header.display()))?;
    Ok(number.trim().to_owned())
}

/// Says where things are relative to itself: the tree may be moved.
fn pkg_config() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: tidegate
Description: Metrics, composites, callbacks, spans and NIXL rings for C and C++
Version: {version}
License: Apache-2.0
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -ltidegate
Libs.private: {STATIC_LIBRARIES}
"
    )
}

fn create(directory: &Path) -> Outcome {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

/// The files of a directory and of those within.
fn copy_all(from: &Path, to: &Path) -> Outcome {
    create(to)?;
    let describe = |error| format!("{}: {error}", from.display());
    for entry in fs::read_dir(from).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_all(&path, &to)?;
        } else {
            copy(&path, &to)?;
        }
    }
    Ok(())
}

/// Programs may be running with the file that is there: it is replaced, not written to.
fn copy(from: &Path, to: &Path) -> Outcome {
    let fresh = to.with_extension(format!("{}.new", std::process::id()));
    fs::copy(from, &fresh)
        .and_then(|_| fs::rename(&fresh, to))
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}
