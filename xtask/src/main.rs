// SPDX-License-Identifier: Apache-2.0

//! The project's own chores: `cargo xtask COMMAND`.
//!
//! A command is one row of [`COMMANDS`] and one function; it gets the arguments after its name.

mod abuse;
mod api;
mod apt;
mod bench;
mod capi;
mod cluster;
mod crates_picture;
mod deny;
mod deploy;
mod dist;
mod docs;
mod editor;
mod failures;
mod fuzz;
mod golang;
mod headers;
mod instructions;
mod interop;
mod kafka;
mod kubernetes;
mod loom;
mod metadata;
mod node;
mod page;
mod pgo;
mod pip;
mod process;
#[path = "../../bench/src/progress.rs"]
mod progress;
mod pytest;
mod python;
mod rules;
mod sdk;
mod test;
mod testenv;

use std::process::ExitCode;

/// The result of a command: the error is printed as it is, and the exit status becomes 1.
type Outcome = Result<(), String>;

struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "setup",
        about: "install what the tests need: NIXL wheels, Python packages, Go programs, Kafka, Helm, Prometheus and related servers",
        run: testenv::setup,
    },
    Command {
        name: "test",
        about: "setup, then every test; arguments go to `cargo test`",
        run: test::test,
    },
    Command {
        name: "python",
        about: "setup, then the Python package alone: wheel, types, tests; arguments go to pytest",
        run: python::test_alone,
    },
    Command {
        name: "deploy",
        about: "setup, then the tests of deploy/: Helm chart, Kustomize, Compose, systemd, container, dashboards, alerts; arguments go to pytest",
        run: deploy::test_alone,
    },
    Command {
        name: "dashboards",
        about: "write the dashboards, alerts and runbooks from deploy/monitoring",
        run: deploy::dashboards,
    },
    Command {
        name: "dist",
        about: "pack a release into target/dist: tarball, deb, rpm, SDK for C, Python, files of deploy/; --binary FILE, --only KIND,..., --output DIRECTORY",
        run: dist::dist,
    },
    Command {
        name: "packages",
        about: "setup, then pack the debug build twice, and install and try the packages; arguments go to pytest",
        run: dist::test_alone,
    },
    Command {
        name: "first-minutes",
        about: "after `dist`: the first commands of users with the files of target/dist, in empty systems; arguments go to pytest",
        run: dist::first_minutes,
    },
    Command {
        name: "page",
        about: "setup, then the page of admin in a real browser: views, contrast, keyboard, access; arguments go to pytest; --open [MINUTES] (60) measures pages that stay open: --pages N (20), --binary GATEWAY, --publish",
        run: page::test_alone,
    },
    Command {
        name: "editor",
        about: "setup, then the schema of the configuration in a YAML language server: marks, completion, hover; arguments go to pytest",
        run: editor::test_alone,
    },
    Command {
        name: "capi",
        about: "install the C and C++ library: --prefix DIRECTORY [--debug]",
        run: capi::capi,
    },
    Command {
        name: "bench",
        about: "measure the release binary; arguments choose groups or jobs (otlp, otlp/grpc-1000, sdk, instructions); --publish writes docs/benchmarks.md",
        run: bench::bench,
    },
    Command {
        name: "pgo",
        about: "build target/pgo/tidegate: the gateway, laid out by a profile of itself under load (20 minutes)",
        run: pgo::pgo,
    },
    Command {
        name: "soak",
        about: "run everything at once for [MINUTES] (default: 10): memory must stay constant, and no data may get lost; with --reloads after the minutes, the configuration changes 100 times a minute, and answers during reloads must come within 50 ms (p99)",
        run: bench::soak,
    },
    Command {
        name: "cluster",
        about: "kill, suspend and cut off replicas, the broker and agents of a cluster for [MINUTES] (default: 2): totals must be exact; --agents N,... (100), --engine nats|kafka|direct, --servers N (1), --no-sync, --seed S, --faults FAULT,..., --interval SECONDS (1), --updates SECONDS (the interval), --gpus N (1), --namespaces (as root: cuts lose packets, and a disk gets full), --debug",
        run: cluster::cluster,
    },
    Command {
        name: "interop",
        about: "build an OpenTelemetry Collector, and run the tests that have it at the other end of Kafka (4 minutes the first time)",
        run: interop::interop,
    },
    Command {
        name: "kubernetes",
        about: "build an API server of Kubernetes with etcd (15 minutes the first time), and run the tests that need it; arguments go to pytest",
        run: kubernetes::kubernetes,
    },
    Command {
        name: "abuse",
        about: "attack the release binary, with honest clients beside; arguments choose attacks; --peer also attacks a Collector, --small, --publish",
        run: abuse::abuse,
    },
    Command {
        name: "loom",
        about: "the account of memory under every interleaving of threads (30 seconds); arguments go to the tests",
        run: loom::loom,
    },
    Command {
        name: "rules",
        about: "check the layers of folders and crates, the names and licences of the source, and the links of documents (a second)",
        run: rules::rules,
    },
    Command {
        name: "crates",
        about: "write docs/crates.svg: which crate of the workspace depends on which other",
        run: crates_picture::crates,
    },
    Command {
        name: "reference",
        about: "write docs/reference from what the newest build says of its components, commands, metrics and API",
        run: docs::reference,
    },
    Command {
        name: "docs",
        about: "setup, then the tests of the documents: reference, site, links, search; arguments go to pytest",
        run: docs::test_alone,
    },
    Command {
        name: "site",
        about: "build the site of docs/ into target/site",
        run: docs::site,
    },
    Command {
        name: "deny",
        about: "check licences, versions and sources of all crates; --advisories also asks the database of vulnerabilities",
        run: deny::deny,
    },
    Command {
        name: "api",
        about: "compare the public API of the Rust SDK, its cells and model, the C library and the plugin interface with the newest tag v*",
        run: api::api,
    },
    Command {
        name: "notices",
        about: "write the licences of all crates in the binaries to [FILE] (default: target/THIRD-PARTY-NOTICES.txt)",
        run: deny::notices,
    },
    Command {
        name: "fuzz",
        about: "libFuzzer on all that reads outside bytes: [SECONDS a target] [TARGET...]",
        run: fuzz::fuzz,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return usage(name);
    };
    match (command.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the commands; a request for help is not a failure.
fn usage(name: &str) -> ExitCode {
    println!("usage: cargo xtask COMMAND [ARGUMENT...]\n");
    for command in COMMANDS {
        println!("  {:9} {}", command.name, command.about);
    }
    if ["--help", "-h", "help"].contains(&name) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
