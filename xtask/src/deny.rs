// SPDX-License-Identifier: Apache-2.0

//! Licences and sources of the dependencies: `cargo xtask deny` checks licences, versions and sources by `deny.toml`,
//! `cargo xtask notices` writes the notices that go with the binaries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, bench, golang::cache, process, test::workspace};

/// A program from crates.io, kept in a cache that outlives the checkout: it takes minutes to build.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Arguments of `cargo install`.
    pub(crate) install: &'static [&'static str],
}

/// Its checks take a second without optimisation, which would take longer to make.
const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    install: &["--debug"],
};

const CARGO_ABOUT: Tool = Tool {
    name: "cargo-about",
    version: "0.9.3",
    install: &["--features", "cli"],
};

/// Checks both workspaces for what needs no network; with `--advisories` also what is known of vulnerabilities, for which the database of
/// advisories is cloned.
pub(crate) fn deny(arguments: &[String]) -> Outcome {
    let mut checks = vec!["bans", "licenses", "sources"];
    match arguments {
        [] => {}
        [option] if option == "--advisories" => checks.push("advisories"),
        _ => return Err("usage: cargo xtask deny [--advisories]".into()),
    }
    let program = CARGO_DENY.installed()?;
    for manifest in ["Cargo.toml", bench::MANIFEST] {
        let mut deny = Command::new(&program);
        deny.arg("--manifest-path")
            .arg(workspace().join(manifest))
            .args([
                "--workspace",
                "--log-level",
                "error",
                "check",
                "--hide-inclusion-graph",
            ])
            .args(&checks)
            .current_dir(workspace());
        process::stream(&mut deny)?;
    }
    Ok(())
}

/// Writes the licences of the crates in the binaries to the file named, or to `target/THIRD-PARTY-NOTICES.txt`.
pub(crate) fn notices(arguments: &[String]) -> Outcome {
    let output = match arguments {
        [] => process::target().join("THIRD-PARTY-NOTICES.txt"),
        [path] => PathBuf::from(path),
        _ => return Err("usage: cargo xtask notices [FILE]".into()),
    };
    let output = std::path::absolute(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let program = CARGO_ABOUT.installed()?;
    // It looks at the crates of every platform, of which a build has only those of ours.
    process::retry("cargo fetch", process::PAUSE, || {
        process::stream(
            process::cargo()
                .args(["fetch", "--locked", "--quiet"])
                .current_dir(workspace()),
        )
    })?;
    let mut about = Command::new(program);
    about
        .args([
            "generate",
            "--locked",
            "--offline",
            "--fail",
            // The gateway does not have all crates of the Python package.
            "--workspace",
            "--config",
            "about.toml",
        ])
        .arg("--output-file")
        .arg(&output)
        .arg("about.hbs");
    process::stream(about.current_dir(workspace()))?;
    println!("{}", output.display());
    Ok(())
}

impl Tool {
    /// The path of the program, which is installed first if the cache has none.
    pub(crate) fn installed(&self) -> Result<PathBuf, String> {
        let Self { name, version, .. } = self;
        let root = cache()?.join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if !program.exists() {
            eprintln!("installing {name} {version} in {}", root.display());
            process::retry(name, process::PAUSE, || self.install(&root))?;
        }
        Ok(program)
    }

    fn install(&self, root: &Path) -> Outcome {
        let mut install = process::cargo();
        install
            .args(["install", self.name, "--version", self.version, "--locked"])
            .args(self.install)
            .arg("--root")
            .arg(root)
            .arg("--target-dir")
            .arg(process::target().join(self.name))
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        process::stream(&mut install)
    }
}
