// SPDX-License-Identifier: Apache-2.0

//! The package for Debian and its relatives, packed by dpkg-deb
//! (docs/decisions/0046-packages-come-from-the-distributions-tools.md).

use std::fs;
use std::path::PathBuf;

use super::gateway::Gateway;
use super::tree::Tree;
use super::{Release, sortable_version};
use crate::test::workspace;
use crate::{Outcome, process};

pub(super) fn build(release: &Release, gateway: &Gateway) -> Outcome {
    let (version, architecture) = (sortable_version(), architecture()?);
    let tree = Tree::new(release.stage.join("deb"))?;
    gateway.install(release, &tree, "usr/share/zsh/vendor-completions")?;
    let copyright = template("copyright");
    tree.add("usr/share/doc/tidegate/copyright", &copyright)?;
    let kib = tree.bytes()?.div_ceil(1024);
    let control = template("control");
    let control = fs::read_to_string(&control).map_err(|error| format!("{}: {error}", control.display()))?;
    let control = control
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@KIB@", &kib.to_string())
        .replace("@GLIBC@", &format!(" (>= {})", gateway.glibc));
    tree.write("DEBIAN/control", &control)?;
    tree.add("DEBIAN/conffiles", &template("conffiles"))?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.add_program(&format!("DEBIAN/{script}"), &template(script))?;
    }
    tree.set_modes()?;
    let (kind, level) = if release.is_debug { ("gzip", 1) } else { ("xz", 6) };
    let name = format!("tidegate_{version}_{architecture}.deb");
    let mut dpkg_deb = release.command("dpkg-deb");
    dpkg_deb
        .args(["--root-owner-group", "--threads-max=1"])
        .arg(format!("-Z{kind}"))
        .arg(format!("-z{level}"))
        .arg("--build")
        .arg(tree.root())
        .arg(release.output.join(name));
    process::run(&mut dpkg_deb)
}

fn template(name: &str) -> PathBuf {
    workspace().join("deploy/packages/deb").join(name)
}

/// Debian's name of this processor.
fn architecture() -> Result<&'static str, String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("no package for {other}")),
    }
}
