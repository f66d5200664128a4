//! A real Prometheus server that scrapes the gateway, and promtool.

use super::process::Process;
use super::{SOON, free_port, http, testenv, wait_for};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// How often targets are scraped, unless a test says otherwise.
const SCRAPE_INTERVAL: &str = "200ms";

/// One series of an answer, with the metric's name among the labels as `__name__`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A running Prometheus server.
pub(crate) struct Prometheus {
    /// Held for its end: the server is killed when this is dropped.
    _process: Process,
    _directory: TempDir,
    port: u16,
}

impl Prometheus {
    /// Starts a server that scrapes `/metrics` of these ports of 127.0.0.1.
    pub(crate) fn scraping(ports: &[u16]) -> Self {
        let targets: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Self::start(&format!(
            "global: {{scrape_interval: {SCRAPE_INTERVAL}, scrape_timeout: {SCRAPE_INTERVAL}}}
scrape_configs:
  - {{job_name: tidegate, static_configs: [{{targets: {targets:?}}}]}}
"
        ))
    }

    /// Starts a server with this configuration and waits until it's ready. It takes remote writes
    /// and native histograms too.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_in(TempDir::new().expect("a temporary directory"), config)
    }

    /// Starts a server that holds these samples (OpenMetrics with times) and scrapes nothing.
    pub(crate) fn holding(samples: &str) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("samples.txt");
        fs::write(&file, samples).expect("a file in a fresh directory");
        let filled = Command::new(testenv("prometheus/usr/bin/promtool"))
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&file, directory.path()])
            .output()
            .expect("promtool starts");
        assert!(
            filled.status.success(),
            "{}",
            String::from_utf8_lossy(&filled.stderr)
        );
        Self::start_in(directory, "{}")
    }

    fn start_in(directory: TempDir, config: &str) -> Self {
        let port = free_port();
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config).expect("a file in a fresh directory");
        let mut process = Process::start(
            "prometheus",
            Command::new(testenv("prometheus/usr/bin/prometheus"))
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", directory.path().display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--web.enable-remote-write-receiver")
                .arg("--enable-feature=native-histograms,exemplar-storage")
                .arg("--storage.tsdb.retention.time=100y")
                .arg("--log.level=warn"),
        );
        process.wait_until("it is ready", || {
            http::get(port, "/-/ready").is_ok_and(|response| response.status == 200)
        });
        Self {
            _process: process,
            _directory: directory,
            port,
        }
    }

    /// The port of its API.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// An instant query's vector (or scalar, as one sample without labels).
    ///
    /// # Panics
    /// If Prometheus refuses the expression.
    pub(crate) fn query(&self, expression: &str) -> Vec<Sample> {
        let answer = self.api("/api/v1/query", &[("query", expression)]);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let result = &answer["data"]["result"];
        if answer["data"]["resultType"] == "scalar" {
            return vec![sample(&serde_json::json!({"value": result}))];
        }
        let series = result.as_array().expect("a vector");
        series.iter().map(sample).collect()
    }

    /// The answer of its API to a form, whatever it is.
    pub(crate) fn api(&self, path: &str, form: &[(&str, &str)]) -> serde_json::Value {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", percent_encode(value));
        let body = form.iter().map(pair).collect::<Vec<_>>().join("&");
        http::post(
            self.port,
            path,
            "application/x-www-form-urlencoded",
            body.as_bytes(),
        )
        .expect("Prometheus answers")
        .json()
    }

    /// The value of an expression that gives one series; nothing if it gives none.
    ///
    /// # Panics
    /// If it gives several.
    pub(crate) fn value(&self, expression: &str) -> Option<f64> {
        let samples = self.query(expression);
        assert!(samples.len() < 2, "{expression} gives {samples:?}");
        samples.first().map(|sample| sample.value)
    }

    /// Waits until the expression gives one series with this value.
    pub(crate) fn wait_for_value(&self, expression: &str, expected: f64) {
        let mut last = None;
        let deadline = std::time::Instant::now() + SOON;
        while last != Some(expected) {
            assert!(
                std::time::Instant::now() < deadline,
                "{expression} is {last:?}, not {expected}; targets: {}",
                self.targets()
            );
            std::thread::sleep(super::POLL_INTERVAL);
            last = self.value(expression);
        }
    }

    /// Waits until every target's last scrape is a success.
    pub(crate) fn wait_for_scrape(&self) {
        wait_for(SOON, "every target is up", || {
            let targets = self.targets().as_array().map_or(0, Vec::len);
            let up = self.query("up == 1").len();
            (targets > 0 && up == targets).then_some(())
        });
    }

    /// What the server knows of its targets, with the error of each one's last scrape.
    pub(crate) fn targets(&self) -> serde_json::Value {
        let answer = http::get(self.port, "/api/v1/targets").expect("Prometheus answers");
        answer.json()["data"]["activeTargets"].take()
    }

    /// A metric's type and help, as the API's metadata has them.
    pub(crate) fn metadata(&self, metric: &str) -> serde_json::Value {
        let path = format!("/api/v1/metadata?metric={}", percent_encode(metric));
        let answer = http::get(self.port, &path).expect("Prometheus answers");
        answer.json()["data"][metric].take()
    }
}

fn sample(series: &serde_json::Value) -> Sample {
    let labels = series["metric"].as_object().into_iter().flatten();
    let value = series["value"][1].as_str().expect("a value is a string");
    Sample {
        labels: labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        value: value
            .parse()
            .expect("Prometheus spells floats as Rust reads them"),
    }
}

fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Has `promtool check metrics` read a `/metrics` body: its complaints, if it has any.
pub(crate) fn promtool_check(body: &str) -> Result<(), String> {
    let mut promtool = Command::new(testenv("prometheus/usr/bin/promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = promtool.stdin.take().expect("it is piped");
    // It may close its input at the first error.
    let _ = stdin.write_all(body.as_bytes());
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() && said.is_empty() {
        Ok(())
    } else {
        Err(said)
    }
}
