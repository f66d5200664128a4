// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask kubernetes`: a real API server with etcd, and a real target allocator, for the parts that use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::progress::LongTask;
use crate::{Outcome, deploy, golang, testenv};

/// The version of Kubernetes in `tests/go/kubernetes/go.mod`.
const VERSION: &str = "1.36.3";

/// The target allocator of the OpenTelemetry operator, and its version in `tests/go/allocator/go.mod`.
const ALLOCATOR: &str = "github.com/open-telemetry/opentelemetry-operator/cmd/otel-allocator";
const ALLOCATOR_VERSION: &str = "0.148.0";

/// The kinds that others define: the module, its version, and the file in it.
const DEFINITIONS: [(&str, &str, &str); 5] = [
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_scrapeconfigs.yaml",
    ),
    (
        "github.com/kedacore/keda/v2",
        "v2.18.0",
        "config/crd/bases/keda.sh_scaledobjects.yaml",
    ),
];

/// The directory of the definitions. It has another name if the list above or the build changes, so that older caches are
/// completed. The 5 definitions are those of `crds-5`, whose API server had no version.
const CRDS: &str = "crds-6";

/// Builds the API server, etcd and the target allocator if they are missing (about 16 minutes of processor time), and runs
/// `tests/kubernetes`. Arguments go to pytest.
pub(crate) fn kubernetes(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    let home = golang::cache()?.join(format!("kubernetes-{VERSION}"));
    let definitions = home.join(CRDS);
    let allocator = home.join(format!("allocator-{ALLOCATOR_VERSION}"));
    // A cache may have one of them only.
    let parts: [(&str, &Path, u64, Install); 2] = [
        ("API server and etcd", definitions.as_path(), 15, install),
        ("target allocator", allocator.as_path(), 10, install_allocator),
    ];
    for (what, part, minutes, make) in parts {
        if !part.exists() {
            let _progress = LongTask::new(format!("kubernetes: build of {what}"))
                .expected(Duration::from_secs(minutes * 60))
                .begin(String::new);
            eprintln!("building {what} in {}", home.display());
            make(&home, part)?;
        }
    }
    let programs = [
        ("TIDEGATE_APISERVER", home.join("bin/apiserver")),
        ("TIDEGATE_ETCD", home.join("bin/etcd")),
        ("TIDEGATE_ALLOCATOR", allocator.join("otel-allocator")),
        ("TIDEGATE_CRDS", definitions),
    ];
    deploy::pytest(
        &["tests/kubernetes", "-s"],
        &["tests/deploy"],
        &programs,
        arguments,
    )
}

/// Makes a directory of the cache, which is the first argument.
type Install = fn(&Path, &Path) -> Outcome;

/// The definitions come last: with them, the API server and etcd are complete.
fn install(home: &Path, definitions: &Path) -> Outcome {
    let scratch = home.join("build");
    // Otherwise, the API server says a version that clients can't read.
    let version = ("k8s.io/component-base/version.gitVersion", format!("v{VERSION}"));
    golang::build_packages(
        "kubernetes",
        &["./etcd", "./apiserver"],
        &[version],
        &home.join("bin"),
        &scratch,
    )?;
    let part = definitions.with_extension("part");
    fs::create_dir_all(&part).map_err(|error| describe(&part, &error))?;
    for (module, version, file) in DEFINITIONS {
        let from = golang::module(module, version, &scratch)?.join(file);
        let name = from.file_name().map(PathBuf::from).unwrap_or_default();
        fs::copy(&from, part.join(name)).map_err(|error| describe(&from, &error))?;
    }
    finish(&part, definitions, &scratch)
}

fn install_allocator(home: &Path, directory: &Path) -> Outcome {
    let scratch = home.join("build");
    let part = home.join("allocator.part");
    golang::build_packages("allocator", &[ALLOCATOR], &[], &part, &scratch)?;
    finish(&part, directory, &scratch)
}

/// What is complete gets its name, and the caches of Go go.
fn finish(part: &Path, directory: &Path, scratch: &Path) -> Outcome {
    fs::rename(part, directory).map_err(|error| describe(part, &error))?;
    fs::remove_dir_all(scratch).map_err(|error| describe(scratch, &error))
}

fn describe(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_have_the_versions_of_the_cache() {
        for (program, module) in [
            ("kubernetes", format!("k8s.io/kubernetes v{VERSION} h1:")),
            (
                "allocator",
                format!("opentelemetry-operator v{ALLOCATOR_VERSION} h1:"),
            ),
        ] {
            assert!(golang::sources(program).contains(&module), "{module}");
        }
    }
}
