// SPDX-License-Identifier: Apache-2.0

//! Reloads under load: six configurations and one that is wrong, in turn.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::answers::Period;
use crate::BenchError;
use crate::gateway::Gateway;
use crate::http::{self, Scraper};

/// Between the starts of two reloads: 100 a minute.
const GAP: Duration = Duration::from_millis(600);

/// The longest reload: an exporter that is replaced sends its queue for the drain timeout.
const LONGEST: Duration = Duration::from_secs(20);

/// An edit of the configuration: a text, and what stands instead.
type Edit = (&'static str, &'static str);

/// The edits of each configuration. The last one is wrong.
const CONFIGURATIONS: [&[Edit]; 7] = [
    &[],
    &[("compression: none", "compression: none\n    timeout: 7s")],
    &[
        ("window: 10s", "window: 5s"),
        (
            "processors:\n",
            "processors:\n  attributes: {actions: [{key: reloaded, value: yes, action: insert}]}\n",
        ),
        (
            "receivers: [otlp], processors: [memory_limiter]",
            "receivers: [otlp], processors: [memory_limiter, attributes]",
        ),
    ],
    &[("127.0.0.1:PORT\"", "127.0.0.1:PORT\", metric_expiration: 20m")],
    &[
        ("rules: nixl", "rules: nixl, interval: 20s"),
        ("exporters:\n", "exporters:\n  nop/more: {}\n"),
        (
            "  pipelines:\n",
            "  pipelines:\n    metrics/more: {receivers: [otlp, uds], exporters: [nop/more]}\n",
        ),
    ],
    &[
        ("nixl: {directories", "nixl: {poll_interval: 9ms, directories"),
        ("scrape_interval: 1s", "scrape_interval: 700ms"),
    ],
    &[("protocols: {http", "protocols: {hxxp")],
];

/// The reloads so far.
#[derive(Default)]
pub(super) struct Reloaded {
    pub(super) applied: usize,
    pub(super) refused: usize,
    /// Each from just before its signal until the gateway showed its result, in order.
    pub(super) periods: Vec<Period>,
}

impl Reloaded {
    /// The time of the longest.
    pub(super) fn longest(&self) -> Duration {
        let times = self.periods.iter().map(|reload| reload.length());
        times.max().unwrap_or_default()
    }
}

/// Reloads until it is over, and leaves the first configuration.
pub(super) fn run(
    gateway: &Gateway,
    config: &str,
    own: u16,
    over: impl Fn() -> bool,
) -> Result<Reloaded, BenchError> {
    let mut metrics = Scraper::connect(own, "/metrics")?;
    let mut reloaded = Reloaded::default();
    let mut next = 0;
    while !over() || next % CONFIGURATIONS.len() != 1 {
        let at = next % CONFIGURATIONS.len();
        let is_wrong = at == CONFIGURATIONS.len() - 1;
        let edited = edited(config, CONFIGURATIONS[at])?;
        let began = Instant::now();
        let before = state(&mut metrics)?;
        gateway.rewrite(&edited)?;
        let asked = Instant::now();
        gateway.process().signal(Signal::HUP)?;
        // The time of a success changes; a refusal sets the flag, which a success clears.
        loop {
            let now = state(&mut metrics)?;
            if if is_wrong {
                now.0 == 0.0
            } else {
                now.0 == 1.0 && now.1 != before.1
            } {
                break;
            }
            if asked.elapsed() > LONGEST {
                return Err(format!("reload {next} has no result within {LONGEST:?}").into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        reloaded.periods.push(Period::since(asked));
        if is_wrong {
            reloaded.refused += 1;
        } else {
            reloaded.applied += 1;
        }
        thread::sleep(GAP.saturating_sub(began.elapsed()));
        next += 1;
    }
    Ok(reloaded)
}

/// Whether the last reload succeeded, and the time of the last success.
fn state(metrics: &mut Scraper) -> Result<(f64, f64), BenchError> {
    let page = metrics.get()?;
    Ok((
        http::sum(page, "tidegate_config_reload_success"),
        http::sum(page, "tidegate_config_reload_timestamp_seconds"),
    ))
}

fn edited(config: &str, edits: &[Edit]) -> Result<String, BenchError> {
    let mut config = config.to_owned();
    for (from, to) in edits {
        if !config.contains(from) {
            return Err(format!("the configuration has no `{from}`").into());
        }
        config = config.replacen(from, to, 1);
    }
    Ok(config)
}
