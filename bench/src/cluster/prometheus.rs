// SPDX-License-Identifier: Apache-2.0

//! A real Prometheus, which scrapes the replicas through a load balancer and counts resets.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::balancer::Balancer;
use super::check::Violations;
use super::member::Member;
use super::replica::MAX_LAG;
use crate::BenchError;
use crate::gateway::free_port;
use crate::http::Scraper;

/// The longest time of a start.
const START: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(50);

/// Without a confirmation, a ready replica may be older than another one by `max_lag`. So one interval is longer.
const INTERVAL: Duration = MAX_LAG.saturating_add(Duration::from_secs(1));

/// The counters that were reset are named, up to this number.
const NAMED: usize = 5;

/// The names of all counters.
const COUNTERS: &str = "__name__=~\"(sim|real)_.+_(total|bucket|sum|count)\"";

/// `metric` keeps the name of a counter: `resets` removes it.
const CONFIG: &str = "
scrape_configs:
  - job_name: second
    scrape_interval: 1s
    scrape_timeout: 1s
    static_configs: [{targets: [\"127.0.0.1:PORT\"]}]
    metric_relabel_configs: [{source_labels: [__name__], target_label: metric}]
  - job_name: rested
    scrape_interval: INTERVALs
    scrape_timeout: 1s
    static_configs: [{targets: [\"127.0.0.1:PORT\"]}]
    metric_relabel_configs: [{source_labels: [__name__], target_label: metric}]
";

/// The server, and the balancer that it scrapes.
pub(super) struct Prometheus {
    pub(super) member: Member,
    _balancer: Balancer,
    api: u16,
    begun: Instant,
}

/// What it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Resets {
    /// The number of counters.
    pub(super) counters: f64,
    /// The scrapes that were answered.
    pub(super) scrapes: f64,
    /// Resets at an interval longer than `max_lag`.
    pub(super) rested: f64,
    /// Resets at an interval of 1 s, which is shorter than `max_lag`. If the store confirms each page, it is 0.
    pub(super) second: f64,
}

impl Prometheus {
    /// Starts a server that scrapes the pages of these ports in turn.
    pub(super) fn start(binary: &Path, pages: Vec<u16>, logs: &Path) -> Result<Self, BenchError> {
        let (balancer, api) = (Balancer::start(pages)?, free_port()?);
        let config = CONFIG
            .replace("PORT", &balancer.port.to_string())
            .replace("INTERVAL", &INTERVAL.as_secs().to_string());
        let mut member = Member::new("prometheus".to_owned(), logs);
        member.start(|directory| {
            let file = directory.path().join("prometheus.yml");
            std::fs::write(&file, config)?;
            let mut command = Command::new(binary);
            command
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", directory.path().display()))
                .arg(format!("--web.listen-address=127.0.0.1:{api}"))
                .arg("--log.level=warn");
            Ok(command)
        })?;
        let begun = Instant::now();
        while !Scraper::connect_within(api, "/-/ready", START).is_ok_and(|mut api| api.get().is_ok()) {
            if begun.elapsed() > START {
                return Err("Prometheus did not start in time".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Self {
            member,
            _balancer: balancer,
            api,
            begun,
        })
    }

    /// Asks for the resets of all counters since the start. Those at an interval longer than `max_lag` are violations. With
    /// `confirms`, all are.
    pub(super) fn check(&self, violations: &Violations, confirms: bool) -> Result<Resets, BenchError> {
        let range = format!("[{}s]", self.begun.elapsed().as_secs() + 1);
        let resets = |job: &str| format!("resets({{{COUNTERS},job=\"{job}\"}}{range})");
        let sum = |of: String| self.number(&format!("sum({of})"));
        let result = Resets {
            counters: self.number(&format!("count(resets({{{COUNTERS},job=\"rested\"}}{range}))"))?,
            scrapes: sum(format!("sum_over_time(up{range})"))?,
            rested: sum(resets("rested"))?,
            second: sum(resets("second"))?,
        };
        if result.counters == 0.0 {
            violations.add("Prometheus has not seen a counter".to_owned());
        }
        let wrong = [
            ("rested", result.rested, true),
            ("second", result.second, confirms),
        ];
        for (job, found, _) in wrong
            .into_iter()
            .filter(|(_, found, is_wrong)| *is_wrong && *found > 0.0)
        {
            let reset = self.ask(&format!("topk({NAMED}, {} > 0)", resets(job)))?;
            let names = reset.iter().map(|sample| sample["metric"]["metric"].to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            violations.add(format!(
                "Prometheus sees {found} resets of counters in the job `{job}`, for example of {names}"
            ));
        }
        Ok(result)
    }

    /// The value of an expression with one result; 0: it has none.
    fn number(&self, expression: &str) -> Result<f64, BenchError> {
        let samples = self.ask(expression)?;
        let value = samples.first().and_then(|sample| sample["value"][1].as_str());
        Ok(value.map_or(Ok(0.0), str::parse)?)
    }

    fn ask(&self, expression: &str) -> Result<Vec<Value>, BenchError> {
        let mut api = Scraper::connect_within(self.api, "/", START)?;
        let query = format!("query={}", escaped(expression));
        let answer = api.post(
            "/api/v1/query",
            "application/x-www-form-urlencoded",
            query.as_bytes(),
        )?;
        let mut answer: Value = serde_json::from_str(answer)?;
        match answer["data"]["result"].take() {
            Value::Array(samples) => Ok(samples),
            _ => Err(format!("Prometheus answers {answer} to {expression}").into()),
        }
    }
}

/// The text of a value of a form.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_forms_have_letters_and_digits_only() {
        assert_eq!(escaped("a{b=~\"c+\"}"), "a%7Bb%3D%7E%22c%2B%22%7D");
    }
}
