// SPDX-License-Identifier: Apache-2.0

//! A real grpc-go OTLP server (`tests/go/otlpsink`): it answers in the compression of the request, as every Go server
//! does, and counts what comes.

use super::process::Process;
use super::testenv;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;

/// The counts so far.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) items: u64,
    /// Requests by `grpc-encoding`; an empty name is none.
    pub(crate) encodings: BTreeMap<String, u64>,
}

/// The running server; it ends when dropped.
pub(crate) struct GoSink {
    process: Process,
    port: u16,
    answers: usize,
}

impl GoSink {
    /// Listens on a free port.
    pub(crate) fn start() -> Self {
        let program = testenv("otlpsink").join("otlpsink");
        let process = Process::start("otlpsink", &mut Command::new(program));
        let mut sink = Self {
            process,
            port: 0,
            answers: 0,
        };
        sink.port = sink.answer().parse().expect("a port");
        sink
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The counts so far.
    pub(crate) fn counts(&mut self) -> Counts {
        self.process.write_line("counts");
        serde_json::from_str(&self.answer()).expect("counts as JSON")
    }

    /// From now on every answer is a partial success that rejects `items` items.
    pub(crate) fn reject(&mut self, items: u64) {
        self.process.write_line(&format!("reject {items}"));
        // Commands are obeyed in order: once this one is answered, the first one holds.
        self.counts();
    }

    /// The next line that it prints.
    fn answer(&mut self) -> String {
        let (stdout, at) = (self.process.stdout.clone(), self.answers);
        self.answers += 1;
        let line = || stdout.text().lines().nth(at).map(str::to_owned);
        self.process.wait_until("it answers", || line().is_some());
        line().expect("it was there just now")
    }
}
