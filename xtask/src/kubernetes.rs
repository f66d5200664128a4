// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask kubernetes`: a real API server with etcd, for the parts that use one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::progress::LongTask;
use crate::{Outcome, deploy, golang, testenv};

/// The version of Kubernetes in `tests/go/kubernetes/go.mod`.
const VERSION: &str = "1.36.3";

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

/// The directory of the definitions. It has another name if the list above changes, so that older caches are completed.
const CRDS: &str = "crds-5";

/// Builds the API server and etcd if they are missing (about ten minutes of processor time), and runs `tests/kubernetes`.
/// Arguments go to pytest.
pub(crate) fn kubernetes(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    let home = golang::cache()?.join(format!("kubernetes-{VERSION}"));
    let definitions = home.join(CRDS);
    if !definitions.exists() {
        let _progress = LongTask::new("kubernetes: build of API server and etcd")
            .expected(Duration::from_secs(15 * 60))
            .begin(String::new);
        install(&home)?;
    }
    let programs = [
        ("TIDEGATE_APISERVER", home.join("bin/apiserver")),
        ("TIDEGATE_ETCD", home.join("bin/etcd")),
        ("TIDEGATE_CRDS", definitions),
    ];
    deploy::pytest(
        &["tests/kubernetes", "-s"],
        &["tests/deploy"],
        &programs,
        arguments,
    )
}

/// The definitions come last: with them, the directory is complete.
fn install(home: &Path) -> Outcome {
    let describe = |path: &Path, error| format!("{}: {error}", path.display());
    let scratch = home.join("build");
    eprintln!("building Kubernetes {VERSION} in {}", home.display());
    golang::build_packages(
        "kubernetes",
        &["./etcd", "./apiserver"],
        &home.join("bin"),
        &scratch,
    )?;
    let part = home.join("crds.part");
    fs::create_dir_all(&part).map_err(|error| describe(&part, error))?;
    for (module, version, file) in DEFINITIONS {
        let from = golang::module(module, version, &scratch)?.join(file);
        let name = from.file_name().map(PathBuf::from).unwrap_or_default();
        fs::copy(&from, part.join(name)).map_err(|error| describe(&from, error))?;
    }
    fs::rename(&part, home.join(CRDS)).map_err(|error| describe(&part, error))?;
    fs::remove_dir_all(&scratch).map_err(|error| describe(&scratch, error))?;
    Ok(())
}
