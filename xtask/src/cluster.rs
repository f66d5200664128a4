// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask cluster`: a cluster of gateways under faults.

use std::path::Path;

use std::process::Command;

use crate::bench::Programs;
use crate::{Outcome, apt, kafka, process, testenv};

/// The option that chooses a build without optimisations.
const DEBUG: &str = "--debug";

/// The option that gives a run a network and file systems of its own, the programs that it needs, and their packages.
const NAMESPACES: &str = "--namespaces";
const PROGRAMS: [(&str, &str); 4] = [
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
];

/// The small run: 20 s with few agents. Its seed stays the same, and its times do not.
const SMALL: [&str; 5] = ["0.34", "--agents", "10", "--seed", "1"];

/// Simulated agents, a broker and two replicas, all of which are killed again and again. The figures are in
/// `target/cluster`. The gateway has a release build, unless `--debug` is among the arguments.
pub(crate) fn cluster(arguments: &[String]) -> Outcome {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let build: fn() -> Result<Programs, String> = if arguments.contains(&DEBUG) {
        Programs::of_tests
    } else {
        Programs::release
    };
    let rest: Vec<&str> = arguments
        .into_iter()
        .filter(|argument| *argument != DEBUG)
        .collect();
    run(build, &process::target().join("cluster"), &rest)
}

/// The small run, with NATS and a build without optimisations.
pub(crate) fn small() -> Outcome {
    run(
        Programs::of_tests,
        &process::target().join("cluster-small"),
        &SMALL,
    )
}

fn run(build: fn() -> Result<Programs, String>, output: &Path, arguments: &[&str]) -> Outcome {
    let peers = testenv::directory();
    let (server, prometheus) = (
        peers.join("nats/bin/nats-server"),
        peers.join("prometheus/usr/bin/prometheus"),
    );
    let jars = kafka::jars()?;
    let missing = [&server, &prometheus, &jars]
        .into_iter()
        .find(|path| !path.exists());
    if let Some(missing) = missing {
        return Err(format!("no {}: run `cargo xtask setup`", missing.display()));
    }
    let mut harness = build()?.command();
    if arguments.contains(&NAMESPACES) {
        install_programs()?;
        harness = in_namespaces(&harness);
    }
    harness
        .arg("cluster")
        .arg(output)
        .arg("--server")
        .arg(server)
        .arg("--jars")
        .arg(jars)
        .arg("--prometheus")
        .arg(prometheus);
    process::last_words(harness.args(arguments))
}

/// Installs the programs of namespaces that are missing.
fn install_programs() -> Outcome {
    for (program, package) in PROGRAMS {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("installing {package} on the system, for `{program}`");
            process::retry(package, process::PAUSE, || apt::install(&[package])).map_err(|error| {
                format!("{NAMESPACES} needs root and Debian's package `{package}`\n{error}")
            })?;
        }
    }
    Ok(())
}

/// The same command as root of a network and a table of mounts that end with it.
fn in_namespaces(command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--mount", "--"]).arg(command.get_program());
    inside.args(command.get_args());
    inside.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let Some(directory) = command.get_current_dir() {
        inside.current_dir(directory);
    }
    inside
}
