// SPDX-License-Identifier: Apache-2.0

//! Where parts come from: PyPI, Debian, Go modules and npm.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::test::workspace;
use crate::{Outcome, apt, golang, node, pip, process};

/// Where a part comes from.
pub(super) enum PackageSource {
    /// Packages with the packages they need.
    Pip(&'static [&'static str]),
    /// One package alone: NIXL's would bring gigabytes that no test touches.
    PipAlone(&'static str),
    /// The source of a package, unpacked: its own tests.
    Sdist(&'static str),
    /// Packages of the machine's Debian release, unpacked only.
    Debian(&'static [&'static str]),
    /// Packages of the machine's Debian release with the packages they need, unpacked only. Programs in them need
    /// `LD_LIBRARY_PATH`.
    Libraries(&'static [&'static str]),
    /// Packages of the machine's Debian release with all packages they need, unpacked, as the root of a system on which
    /// dpkg has them installed. Their scripts did not run.
    Root(&'static [&'static str]),
    /// What a shell script of the workspace writes into the directory that it is called with.
    Script(&'static str),
    /// The newest packages that Debian has, unpacked only. Their versions move.
    Unstable(&'static [&'static str]),
    /// A Go program of `tests/go/`.
    Go(&'static str),
    /// Packages from npm that the lock file in a folder of the workspace names.
    Npm(&'static str),
}

impl PackageSource {
    /// All that the part is made from: when it changes, setup makes the part again.
    pub(super) fn stamp(&self) -> String {
        match *self {
            PackageSource::Pip(packages) => packages.join(" "),
            PackageSource::PipAlone(package) => format!("{package} alone"),
            PackageSource::Sdist(package) => format!("{package} source"),
            PackageSource::Debian(packages) => format!("debian {}", packages.join(" ")),
            PackageSource::Libraries(packages) => format!("debian libraries {}", packages.join(" ")),
            PackageSource::Root(packages) => format!("debian root {}", packages.join(" ")),
            PackageSource::Script(script) => fs::read_to_string(workspace().join(script))
                .unwrap_or_else(|error| panic!("{script}: {error}")),
            PackageSource::Unstable(packages) => format!("debian unstable {}", packages.join(" ")),
            PackageSource::Go(program) => golang::sources(program),
            PackageSource::Npm(folder) => node::lock_text(folder),
        }
    }

    /// Fills an empty directory.
    pub(super) fn fetch(&self, directory: &Path) -> Outcome {
        match *self {
            PackageSource::Pip(packages) => process::run(pip::into(directory).args(packages)),
            PackageSource::PipAlone(package) => {
                process::run(pip::into(directory).args(["--no-deps", package]))
            }
            PackageSource::Sdist(package) => source(package, directory),
            PackageSource::Debian(packages) => apt::unpack(packages, directory),
            PackageSource::Libraries(packages) => apt::unpack_with_needs(packages, directory),
            PackageSource::Root(packages) => apt::unpack_root(packages, directory),
            PackageSource::Script(script) => {
                // Beside the parts above, it could not renew the lists. If this fails, it tries.
                let _ = apt::renew_lists();
                process::run(Command::new("sh").arg(workspace().join(script)).arg(directory))
            }
            PackageSource::Unstable(packages) => apt::unpack_unstable(packages, directory),
            PackageSource::Go(program) => golang::build(program, directory),
            PackageSource::Npm(folder) => node::install(folder, directory),
        }
    }

    /// Proves that a part works: `check` is one of its checks.
    pub(super) fn verify(&self, check: &str, directory: &Path) -> Outcome {
        match self {
            PackageSource::Debian(_) | PackageSource::Unstable(_) | PackageSource::Go(_) => {
                process::run(Command::new(directory.join(check)).arg("--version"))
            }
            PackageSource::Npm(_) => process::run(
                Command::new(node::find()?)
                    .args(["-e", check])
                    .current_dir(directory),
            ),
            PackageSource::Libraries(_) | PackageSource::Root(_) | PackageSource::Script(_) => {
                if directory.join(check).exists() {
                    Ok(())
                } else {
                    Err(format!("{check} is missing"))
                }
            }
            PackageSource::Pip(_) | PackageSource::PipAlone(_) | PackageSource::Sdist(_) => process::run(
                Command::new("python3")
                    .args(["-c", check])
                    .env("PYTHONPATH", directory),
            ),
        }
    }
}

/// Unpacks the source of a package, without the directory that everything in it is in.
fn source(package: &str, directory: &Path) -> Outcome {
    let describe = |error| format!("{}: {error}", directory.display());
    process::run(
        pip::command("download")
            .args(["--no-deps", "--no-binary", ":all:", "--dest"])
            .args([directory.as_os_str(), package.as_ref()]),
    )?;
    for entry in fs::read_dir(directory).map_err(describe)? {
        let archive = entry.map_err(describe)?.path();
        process::run(
            Command::new("tar")
                .args(["--strip-components=1", "-xzf"])
                .arg(&archive)
                .arg("-C")
                .arg(directory),
        )?;
    }
    Ok(())
}
