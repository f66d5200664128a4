// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask dist`: the files of a release, with their checksums, in `target/dist`.
//!
//! Two runs over the same inputs give the same bytes. Times are that of the commit, entries are sorted, owners are root,
//! modes do not depend on the user's mask, and compressors run with one thread.

mod archive;
mod deb;
mod deploy;
mod documents;
mod gateway;
mod rpm;
mod sdk;
mod tarball;
mod tree;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::gateway::Gateway;
use crate::deploy::HELM;
use crate::progress::LongTask;
use crate::test::{build_gateway, workspace};
use crate::{Outcome, deny, golang, process, pytest, testenv};

/// Reads the workflows that make a release.
const ACTIONLINT: golang::GoTool = golang::GoTool {
    name: "actionlint",
    package: "github.com/rhysd/actionlint/cmd/actionlint",
    version: "1.7.12",
};

const USAGE: &str = "usage: cargo xtask dist [--binary FILE] [--notices FILE] [--output EMPTY-DIRECTORY] \
                     [--only KIND,...] [--debug] [--zig]
KIND: tarball, deb, rpm (from the binary, which is built unless it is named), sdk (C and C++), python, deploy (chart, dashboards,
      alerts)
--debug: libraries without optimisation, and the fastest compression
--zig: a wheel for old systems, linked by Zig";

/// The version of everything in a release.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const CHECKSUMS: &str = "SHA256SUMS";

/// The tests of what a user does first, with one file of a release.
const FIRST_MINUTES: &str = "tests/dist/test_first_minutes.py";

/// The variables of these tests for empty systems, each with its part of the test environment.
const EMPTY_SYSTEMS: [(&str, &str); 3] = [
    ("TIDEGATE_DEBIAN_ROOT", "debian-root"),
    ("TIDEGATE_DEBIAN_PYTHON", "debian-python"),
    ("TIDEGATE_DEBIAN_COMPILERS", "debian-compilers"),
];

/// The part of the test environment with pytest.
const PYTEST: &str = "python-tools";

/// A kind of package.
struct PackageKind {
    name: &'static str,
    build: BuildSource,
}

enum BuildSource {
    /// From the binary of the gateway.
    OfGateway(fn(&Release, &Gateway) -> Outcome),
    /// From the source.
    OfSource(fn(&Release) -> Outcome),
}

const KINDS: &[PackageKind] = &[
    PackageKind {
        name: "tarball",
        build: BuildSource::OfGateway(tarball::build),
    },
    PackageKind {
        name: "deb",
        build: BuildSource::OfGateway(deb::build),
    },
    PackageKind {
        name: "rpm",
        build: BuildSource::OfGateway(rpm::build),
    },
    PackageKind {
        name: "sdk",
        build: BuildSource::OfSource(sdk::build),
    },
    PackageKind {
        name: "python",
        build: BuildSource::OfSource(wheel::build),
    },
    PackageKind {
        name: "deploy",
        build: BuildSource::OfSource(deploy::build),
    },
];

/// What the command line asks for.
#[derive(Default)]
struct DistOptions {
    binary: Option<PathBuf>,
    notices: Option<PathBuf>,
    output: Option<PathBuf>,
    only: Option<String>,
    is_debug: bool,
    with_zig: bool,
}

/// What all kinds of packages need.
struct Release {
    /// The directory of the packages.
    output: PathBuf,
    /// The directory of trees that become packages.
    stage: PathBuf,
    /// The licences of all crates in the binaries.
    notices: PathBuf,
    /// The time of all files, in seconds since 1970.
    epoch: String,
    is_debug: bool,
    with_zig: bool,
}

/// Builds the kinds of packages that the arguments name, or all.
pub(crate) fn dist(arguments: &[String]) -> Outcome {
    let options = DistOptions::of(arguments)?;
    let kinds = options.kinds()?;
    let is_gateway_needed = kinds
        .iter()
        .any(|kind| matches!(kind.build, BuildSource::OfGateway(_)));
    let before_kinds = 1 + usize::from(is_gateway_needed);
    let steps = before_kinds + kinds.len();
    let begin = |number: usize, name: &str| {
        eprintln!("cargo xtask dist: {name} (step {number} of {steps})");
        LongTask::new(format!("dist: {name}"))
            .step(number, steps)
            .begin(String::new)
    };
    let progress = begin(1, "licences");
    let release = Release::prepare(&options)?;
    drop(progress);
    let gateway = if is_gateway_needed {
        let _progress = begin(2, "gateway");
        Some(Gateway::of(options.binary.as_deref(), options.is_debug)?)
    } else {
        None
    };
    for (index, kind) in kinds.into_iter().enumerate() {
        let _progress = begin(before_kinds + index + 1, kind.name);
        match (&kind.build, &gateway) {
            (BuildSource::OfGateway(build), Some(gateway)) => build(&release, gateway)?,
            (BuildSource::OfGateway(_), None) => unreachable!("each kind of the gateway has one"),
            (BuildSource::OfSource(build), _) => build(&release)?,
        }
    }
    if release.stage.exists() {
        let stage = release.stage.display();
        fs::remove_dir_all(&release.stage).map_err(|error| format!("{stage}: {error}"))?;
    }
    release.write_checksums()
}

impl DistOptions {
    fn of(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--binary" => options.binary = Some(value()?.into()),
                "--notices" => options.notices = Some(value()?.into()),
                "--output" => options.output = Some(value()?.into()),
                "--only" => options.only = Some(value()?.clone()),
                "--debug" => options.is_debug = true,
                "--zig" => options.with_zig = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    fn kinds(&self) -> Result<Vec<&'static PackageKind>, String> {
        let Some(only) = &self.only else {
            return Ok(KINDS.iter().collect());
        };
        let find = |name: &str| KINDS.iter().find(|kind| kind.name == name);
        only.split(',')
            .map(|name| find(name).ok_or_else(|| USAGE.to_owned()))
            .collect()
    }
}

impl Release {
    fn prepare(options: &DistOptions) -> Result<Self, String> {
        let output = match &options.output {
            Some(output) => {
                create_empty(output)?;
                absolute(output)?
            }
            None => {
                let output = process::target().join("dist");
                testenv::clear(&output)?;
                output
            }
        };
        let notices = match &options.notices {
            Some(notices) => absolute(notices)?,
            None => {
                let notices = process::target().join("THIRD-PARTY-NOTICES.txt");
                deny::notices(&[notices.display().to_string()])?;
                notices
            }
        };
        Ok(Self {
            stage: output.join(".stage"),
            output,
            notices,
            epoch: epoch()?,
            is_debug: options.is_debug,
            with_zig: options.with_zig,
        })
    }

    /// A command that takes the time of the release for its own.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = process::by_hand(program);
        command
            .env("SOURCE_DATE_EPOCH", &self.epoch)
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        command
    }

    /// Writes the checksums of all packages, as `sha256sum --check` reads them.
    fn write_checksums(&self) -> Outcome {
        let describe = |error| format!("{}: {error}", self.output.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.output).map_err(describe)? {
            names.push(entry.map_err(describe)?.file_name());
        }
        names.sort();
        let (sums, ended) =
            process::printed(Command::new("sha256sum").args(&names).current_dir(&self.output))?;
        ended?;
        fs::write(self.output.join(CHECKSUMS), &sums).map_err(describe)?;
        print!("{sums}");
        Ok(())
    }
}

/// The time of the commit, or the one that the environment names, in seconds since 1970.
fn epoch() -> Result<String, String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    // An archive of the source has no repository: Git wrote the time into this file.
    let archived = fs::read_to_string(workspace().join(".git_archival.txt")).unwrap_or_default();
    let mut lines = archived.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("seconds: "));
    if let Some(seconds) = seconds.filter(|seconds| !seconds.starts_with('$')) {
        return Ok(seconds.to_owned());
    }
    let (seconds, ended) = process::printed(
        Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(workspace()),
    )?;
    ended.map_err(|error| format!("{error}: set SOURCE_DATE_EPOCH"))?;
    Ok(seconds.trim().to_owned())
}

/// The name of a package that belongs to this processor.
fn name_for_machine(name: &str) -> String {
    format!("{name}-{VERSION}-{}-linux", std::env::consts::ARCH)
}

/// The version as Debian and RPM compare it: `1.0.0~rc.1` is older than `1.0.0`.
fn sortable_version() -> String {
    VERSION.replace('-', "~")
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Leaves `directory` there. It must be empty, so that the checksums are of one release.
fn create_empty(directory: &Path) -> Outcome {
    let describe = |error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(describe)?;
    match fs::read_dir(directory).map_err(describe)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("{} is not empty", directory.display())),
    }
}

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Packs the debug build twice, with different masks, and runs `tests/dist` on the packages. It takes a minute or two when
/// the gateway, its libraries, actionlint and Helm are built.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    build_gateway()?;
    let folder = process::target().join("dist-test");
    testenv::clear(&folder)?;
    // Symbols are a third of its bytes.
    let (binary, built) = (folder.join("tidegate"), process::target().join("debug/tidegate"));
    process::run(Command::new("strip").arg("-o").args([&binary, &built]))?;
    let (first, again) = (folder.join("first"), folder.join("again"));
    pack_for_test(&binary, &first, "022", &[])?;
    // The bytes of the Python package are maturin's: a release compares them.
    pack_for_test(&binary, &again, "077", &["--only", "tarball,deb,rpm,sdk,deploy"])?;
    let programs = [
        ("TIDEGATE_DIST", first),
        ("TIDEGATE_DIST_AGAIN", again),
        ("TIDEGATE_PACKAGING", testenv::part("packaging")),
        ("TIDEGATE_DEBIAN_ROOT", testenv::part("debian-root")),
        ("TIDEGATE_CONTAINER_ROOT", testenv::part("container-root")),
        ("TIDEGATE_DEBIAN_PYTHON", testenv::part("debian-python")),
        ("TIDEGATE_DEBIAN_COMPILERS", testenv::part("debian-compilers")),
        ("TIDEGATE_PYTHON_BUILD", process::target().join("python/build")),
        ("TIDEGATE_SYSTEMD", testenv::part("systemd")),
        ("TIDEGATE_NIXL", testenv::part("nixl-1.5.1")),
        ("TIDEGATE_ACTIONLINT", ACTIONLINT.installed()?),
        ("TIDEGATE_HELM", HELM.installed()?),
        ("PATH", path_with(testenv::part("zstd/usr/bin"))?),
    ];
    let folders = ["deploy-tools", "python", "python-tools"].map(testenv::part);
    // The roots of the tests take gigabytes.
    let options = ["tests/dist", "--quiet", "-o", "tmp_path_retention_policy=none"];
    pytest::run(&options, &folders, &programs, arguments)
}

/// Runs the first minutes of a user with the files in `target/dist`, and installs only what they need. Arguments go to pytest.
pub(crate) fn first_minutes(arguments: &[String]) -> Outcome {
    let release = process::target().join("dist");
    if !release.join(CHECKSUMS).exists() {
        let release = release.display();
        return Err(format!("{release} has no release: run `cargo xtask dist` first"));
    }
    for (_, system) in EMPTY_SYSTEMS {
        testenv::setup_part(system)?;
    }
    testenv::setup_part(PYTEST)?;
    let systems = EMPTY_SYSTEMS.map(|(variable, system)| (variable, testenv::part(system)));
    pytest::watch(
        FIRST_MINUTES,
        pytest::python(&[testenv::part(PYTEST)])?
            .args(["-m", "pytest", "-p", "no:cacheprovider", FIRST_MINUTES, "--quiet"])
            .args(["-o", "tmp_path_retention_policy=none"])
            .args(arguments)
            .env("TIDEGATE_DIST", release)
            .envs(systems),
    )
}

/// The search path for programs, with one more directory at the end.
fn path_with(directory: PathBuf) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([directory]);
    let joined = std::env::join_paths(directories).map_err(|error| error.to_string())?;
    Ok(joined.into())
}

/// Runs the command on a binary as a user with this mask of modes would.
fn pack_for_test(binary: &Path, output: &Path, mask: &str, more: &[&str]) -> Outcome {
    let us = std::env::current_exe().map_err(|error| format!("the path of xtask: {error}"))?;
    let _progress = LongTask::new(format!("packages: pack with the mask {mask}")).begin(String::new);
    process::run(
        Command::new("sh")
            .args(["-c", "umask \"$0\" && exec \"$@\"", mask])
            .arg(us)
            .args(["dist", "--debug", "--binary"])
            .arg(binary)
            .arg("--notices")
            .arg(workspace().join("LICENSE"))
            .arg("--output")
            .arg(output)
            .args(more),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<DistOptions, String> {
        DistOptions::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_kinds_are_all_or_the_named_ones() {
        let names = |words: &[&str]| -> Result<Vec<&'static str>, String> {
            let kinds = options(words)?.kinds()?;
            Ok(kinds.iter().map(|kind| kind.name).collect())
        };
        let all = names(&[]).expect("no options are options");
        assert_eq!(all, ["tarball", "deb", "rpm", "sdk", "python", "deploy"]);
        assert_eq!(names(&["--only", "rpm,deb"]), Ok(vec!["rpm", "deb"]));
        for wrong in [&["--only", "msi"][..], &["--only"], &["--binary"], &["deb"]] {
            assert_eq!(names(wrong), Err(USAGE.to_owned()), "{wrong:?}");
        }
    }
}
