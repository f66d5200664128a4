// SPDX-License-Identifier: Apache-2.0

//! The kit of whole-gateway tests.
//!
//! Everything here blocks, panics with the error, and cleans up when dropped, so a test is a plain function. Conditions
//! are awaited with [`wait_until`], never slept for.

#![allow(dead_code, reason = "a kit offers more than the tests of one day use")]

pub(crate) mod alertmanager;
pub(crate) mod any_metrics;
pub(crate) mod authority;
pub(crate) mod broker;
pub(crate) mod cases;
pub(crate) mod command;
pub(crate) mod exporters;
pub(crate) mod exposer;
pub(crate) mod fixture;
pub(crate) mod gateway;
pub(crate) mod go_collector;
pub(crate) mod go_sink;
pub(crate) mod http;
pub(crate) mod http_peer;
pub(crate) mod kafka_broker;
pub(crate) mod keda;
pub(crate) mod ledgers;
pub(crate) mod nats_server;
pub(crate) mod numbered;
pub(crate) mod otlp_sink;
pub(crate) mod pages;
pub(crate) mod plugins;
pub(crate) mod points;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod query_api;
pub(crate) mod reader;
pub(crate) mod repeated;
pub(crate) mod script;
pub(crate) mod target;
mod tests;
pub(crate) mod victoria_metrics;

pub(crate) use alertmanager::Alertmanager;
pub(crate) use authority::Authority;
pub(crate) use broker::Broker;
pub(crate) use exporters::Exporter;
pub(crate) use gateway::Gateway;
pub(crate) use go_sink::GoSink;
pub(crate) use http_peer::HttpPeer;
pub(crate) use ledgers::Ledgers;
pub(crate) use otlp_sink::{OtlpSink, Trouble};
pub(crate) use prometheus::{Prometheus, Release, promtool_check, promtool_reads, promtool_test_rules};
pub(crate) use query_api::QueryApi;
pub(crate) use repeated::Repeated;
pub(crate) use script::Script;
pub(crate) use target::{Answer, Target};
pub(crate) use victoria_metrics::VictoriaMetrics;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use tidegate_runtime::testing::free_port;

/// How long a thing that should happen soon may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Short enough that polling adds nothing to see, long enough to leave the processor to others.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Listens on a port, which can be that of a listener that was dropped a moment ago. A child that another test starts has a
/// copy of that listener until it executes its program.
pub(crate) fn listen(address: &str, port: u16) -> TcpListener {
    let listener = wait_for(SOON, "the port is free", || {
        match TcpListener::bind((address, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            bound => Some(bound.expect("an address of this machine")),
        }
    });
    listener.set_nonblocking(true).expect("a socket option");
    listener
}

/// Polls `condition` until it holds.
///
/// # Panics
/// After `deadline`, naming `what` was awaited.
pub(crate) fn wait_until(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(deadline, what, || condition().then_some(()));
}

/// Polls `attempt` until it gives something.
///
/// # Panics
/// After `deadline`, naming `what` was awaited.
pub(crate) fn wait_for<T>(deadline: Duration, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started.elapsed() < deadline, "not within {deadline:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Asks again until an answer is right, for [`SOON`] at most. Gives the last answer, whose faults the test then shows.
///
/// A test that asks a scraping server needs it: on a busy machine a scrape may be late, and its series are missing until
/// the next one.
pub(crate) fn last_answer<T>(mut ask: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let started = Instant::now();
    loop {
        let answer = ask();
        if is_right(&answer) || started.elapsed() >= SOON {
            return answer;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A directory or program of the test environment, such as `nixl-1.5.1`.
///
/// # Panics
/// If it isn't installed.
pub(crate) fn testenv(part: &str) -> PathBuf {
    let root = match std::env::var_os("TIDEGATE_TESTENV") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("testenv"),
    };
    let path = root.join(part);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask setup`",
        path.display()
    );
    path
}
