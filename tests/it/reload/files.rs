// SPDX-License-Identifier: Apache-2.0

//! Files and directories that can't be used: the old configuration runs on until they are mended.

use super::state::with_storage;
use super::*;
use crate::kit::Authority;

/// A gateway that takes and delivers data across its reloads.
struct Steady {
    live: Live,
    sink: OtlpSink,
    sender: Sender,
}

impl Steady {
    /// The time of the last reload that succeeded, or of the start, in seconds since 1970.
    fn reloaded_at(&self) -> f64 {
        let at = self
            .live
            .gateway
            .own_metric("tidegate_config_reload_timestamp_seconds", &[]);
        assert!(at > 0.0, "{at}");
        at
    }

    /// Sends over the connection of before, and waits until all has arrived.
    fn delivers(&mut self) {
        self.sender.send().expect("the connection of before");
        let sent = self.sender.sent;
        self.sink
            .wait_until("all arrived", |sink| all_arrived(sink, sent));
    }

    /// A reload that fails with these parts in its error.
    fn refuses(&mut self, config: &str, parts: &[&str]) {
        let before = self.reloaded_at();
        let why = self.live.refuses(config);
        for part in parts {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(self.reloaded_at(), before, "the time is that of the last success");
        self.delivers();
    }

    /// A reload that succeeds. Returns the lines about changes.
    fn applies(&mut self, config: &str) -> Vec<String> {
        let before = self.reloaded_at();
        let lines = self.live.applies(config);
        assert!(self.reloaded_at() > before, "the time moves");
        self.delivers();
        lines
    }
}

#[test]
fn unusable_files_fail_a_reload_until_they_are_mended() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let base = config(ports, &sink.endpoint(), BASE);
    let live = Live::start(ports.admin, &base);
    let sender = Sender::connect(ports.input);
    let mut steady = Steady { live, sink, sender };
    steady.delivers();

    let [certificate, key, storage] =
        ["own.pem", "own.key", "state"].map(|name| steady.live.gateway.path(name));
    let port = free_port();
    let second = format!(
        "receivers:
  otlp/secure: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", tls: {{cert_file: {certificate:?}, key_file: {key:?}}}}}}}}}
"
    );
    let secure = base.replace("receivers:\n", &second).replace(
        "metrics: {receivers: [otlp]",
        "metrics: {receivers: [otlp, otlp/secure]",
    );
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    steady.refuses(
        &secure,
        &[
            "receivers::otlp/secure: can't read a certificate",
            "own.pem (`cert_file`)",
        ],
    );
    fs::write(&certificate, "not a certificate").expect("a file of the test");
    steady.refuses(
        &secure,
        &[
            "receivers::otlp/secure: no certificate in",
            "own.pem (`cert_file`)",
        ],
    );
    assert!(!listens());
    Authority::new().write_signed(&certificate, &key);
    assert_eq!(steady.applies(&secure), ["added receivers::otlp/secure"]);
    assert!(listens());

    let stored = with_storage(&secure).replace(
        "otlphttp: {",
        "otlphttp: {sending_queue: {storage: file_storage}, ",
    );
    fs::write(&storage, "not a directory").expect("a file of the test");
    let error = "extensions::file_storage: directory: `state`";
    steady.refuses(&stored, &[error, "can't be made"]);
    let expected = stored.replace(", create_directory: true", "");
    assert_ne!(expected, stored);
    steady.refuses(&expected, &[error, "is not a directory"]);
    fs::remove_file(&storage).expect("a file of the test");
    let lines = steady.applies(&stored);
    for line in ["added extensions::file_storage", "rebuilt exporters::otlphttp"] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
    }
    assert!(storage.is_dir());
    steady.live.gateway.stop();
}
