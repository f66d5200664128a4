// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask pgo`: the gateway, built with a profile of what it does under load.
//!
//! Two builds of the release profile and a load between them: the first counts, the second lays out and inlines by the
//! counts. Code that never ran moves away from code that did. So the build saves memory as well as time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use crate::progress::LongTask;
use crate::{Outcome, bench::Programs, process, test::workspace};

/// The training load: each way through the gateway that carries much.
const LOAD: [&str; 8] = [
    "ring",
    "aggregate",
    "otlp/grpc-1000",
    "otlp/grpc-100",
    "otlp/http-1000",
    "otlp/grpc-1000-gzip",
    "otlp/grpc-1000-zstd",
    "otlp/edit-1000",
];

/// The steps: a build that counts, the load, and a build that uses the counts.
const STEPS: usize = 3;

/// The duration of a build on 2 processors.
const BUILD: Duration = Duration::from_secs(8 * 60);

/// Builds `target/pgo/tidegate`.
pub(crate) fn pgo(_: &[String]) -> Outcome {
    let host = rustc_output("host-tuple")?;
    let tool = Path::new(&rustc_output("sysroot")?).join(format!("lib/rustlib/{host}/bin/llvm-profdata"));
    if !tool.exists() {
        return Err("no llvm-profdata: `rustup component add llvm-tools` brings it".to_owned());
    }
    let directory = process::target().join("pgo");
    let (counts, profile) = (directory.join("counts"), directory.join("profile"));
    emptied(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;

    let build = |name: &str| LongTask::new(format!("pgo: {name}")).expected(BUILD);
    let progress = build("build that counts").step(1, STEPS).begin(String::new);
    let counting = gateway(&directory.join("counting"), &host, "generate", &counts)?;
    drop(progress);
    // The programs of this step print their own progress.
    eprintln!("pgo: load (step 2 of {STEPS})");
    let mut load = Command::new(Programs::release()?.harness);
    load.arg(counting).arg("bench").arg(directory.join("report"));
    process::stream(load.args(["--only", "tidegate", "--window", "300"]).args(LOAD))?;

    let mut merge = Command::new(tool);
    merge.args(["merge", "--output"]).args([&profile, &counts]);
    process::stream(&mut merge)?;
    let _progress = build("build that uses the counts")
        .step(3, STEPS)
        .begin(String::new);
    let built = gateway(&directory.join("profiled"), &host, "use", &profile)?;
    let here = directory.join("tidegate");
    fs::copy(&built, &here).map_err(|error| format!("{}: {error}", built.display()))?;
    println!("{}", here.display());
    Ok(())
}

/// The output of `rustc --print`.
fn rustc_output(what: &str) -> Result<String, String> {
    let (said, ended) = process::printed(process::by_hand("rustc").args(["--print", what]))?;
    ended.map(|()| said.trim().to_owned())
}

fn emptied(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(directory),
    }
}

/// Builds the gateway to generate a profile, or to use one. The target is named so that build scripts and macros have no
/// part in it.
fn gateway(directory: &Path, host: &str, how: &str, profile: &Path) -> Result<PathBuf, String> {
    let build = ["build", "--release", "--package", "tidegate", "--bin", "tidegate"];
    let mut cargo = process::cargo();
    cargo
        .args(build)
        .args(["--target", host])
        .arg("--target-dir")
        .arg(directory);
    // Not RUSTFLAGS, which are cut at spaces.
    let flag = format!("-Cprofile-{how}={}", profile.display());
    process::stream(
        cargo
            .env("CARGO_ENCODED_RUSTFLAGS", flag)
            .current_dir(workspace()),
    )?;
    Ok(directory.join(host).join("release").join("tidegate"))
}
