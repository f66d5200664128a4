// SPDX-License-Identifier: Apache-2.0

//! The conditions that an attacked gateway must meet, and whether it met them.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::attacks::Attack;
use super::beside::{Observations, POINTS, SHOWN, Try};
use super::field::{AttackedGateway, AttackedProgram, LIMIT_MIB, SMALL_DEADLINE, Size};
use super::wire::Harm;
use crate::BenchError;
use crate::http::Scraper;
use crate::stats::Samples;

/// Resident memory may be above its limit by so much.
const MARGIN: f64 = 1.1;
/// From here on the memory limiter refuses.
pub(super) const SOFT_MIB: f64 = LIMIT_MIB * 0.8;
/// In which the gateway is as before.
const RECOVERY: Duration = Duration::from_secs(10);
/// The account includes the last requests by then.
const SETTLED: Duration = Duration::from_secs(60);
pub(super) const TOTAL: &str = "the honest total is on the page";
/// Of honest pushes must be accepted, in percent.
const HONEST: f64 = 95.0;

/// Times in which probes are answered, in milliseconds: the 99th percentile of health checks, and every query. A small
/// attack has no bounds, and probes must be answered at all.
struct Bounds {
    health: f64,
    queries: f64,
}

/// Something that must hold.
#[derive(Clone, Debug)]
pub(super) struct CheckLine {
    pub(super) what: &'static str,
    pub(super) figure: String,
    pub(super) holds: bool,
}

impl CheckLine {
    pub(super) fn new(what: &'static str, figure: impl Into<String>, holds: bool) -> Self {
        Self {
            what,
            figure: figure.into(),
            holds,
        }
    }
}

/// The times of an attack and of the recovery after it.
pub(super) struct AttackTimes {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    /// From the end of the attack until honest pushes were accepted and memory was below the soft limit.
    pub(super) recovered: Option<Duration>,
}

/// The measurements and the checks of one attack.
pub(super) struct AttackResult {
    pub(super) name: &'static str,
    pub(super) peak_mib: f64,
    /// It took so much memory that it was ended.
    pub(super) was_ended: bool,
    pub(super) health: f64,
    pub(super) honest: f64,
    pub(super) gap: f64,
    pub(super) queries: f64,
    pub(super) recovered: Option<Duration>,
    pub(super) lines: Vec<CheckLine>,
}

impl AttackResult {
    /// The result of an attack that could not be made.
    pub(super) fn failed(name: &'static str, error: &BenchError) -> Self {
        Self {
            name,
            peak_mib: f64::NAN,
            was_ended: false,
            health: f64::NAN,
            honest: f64::NAN,
            gap: f64::NAN,
            queries: f64::NAN,
            recovered: None,
            lines: vec![CheckLine::new("the attack can be made", error.to_string(), false)],
        }
    }

    pub(super) fn new(
        attack: &Attack,
        field: &AttackedGateway,
        role: AttackedProgram,
        harm: Result<Harm, BenchError>,
        times: &AttackTimes,
        seen: &Observations,
    ) -> Self {
        let until = times.ended + times.recovered.unwrap_or(recovery(field));
        // One that began before and ends in this time counts too: on a busy machine it may be the only one.
        let within = |tries: &[Try], until| -> Vec<Try> {
            let tries = tries
                .iter()
                .filter(|push| push.at + push.took >= times.begun && push.at <= until);
            tries.copied().collect()
        };
        let pushes = within(&seen.pushes, times.ended);
        let well = pushes.iter().filter(|push| push.went_well).count();
        let result = Self {
            name: attack.name,
            peak_mib: seen.peak_mib,
            was_ended: seen.was_ended,
            health: milliseconds(&within(&seen.health, until), 0.99),
            honest: 100.0 * well as f64 / pushes.len() as f64,
            gap: gap(&within(&seen.pushes, until), times.begun, until),
            queries: milliseconds(&within(&seen.queries, until), 1.0),
            recovered: times.recovered,
            lines: Vec::new(),
        };
        result.judged(attack, field, role, harm, seen)
    }

    fn judged(
        mut self,
        attack: &Attack,
        field: &AttackedGateway,
        role: AttackedProgram,
        harm: Result<Harm, BenchError>,
        seen: &Observations,
    ) -> Self {
        let bounds = field.pick(
            Bounds {
                health: 100.0,
                queries: 1000.0,
            },
            Bounds {
                health: f64::MAX,
                queries: f64::MAX,
            },
        );
        let ended = if seen.was_ended {
            ", and was ended for it"
        } else {
            ""
        };
        self.lines = vec![
            CheckLine::new(
                "memory stays within the limit and a tenth",
                format!("{:.0} MiB of {LIMIT_MIB}{ended}", self.peak_mib),
                self.peak_mib <= LIMIT_MIB * MARGIN && !seen.was_ended,
            ),
            CheckLine::new(
                "health checks are answered",
                within("p99", self.health, bounds.health),
                self.health <= bounds.health,
            ),
            CheckLine::new(
                "it recovers",
                format!("after {} of {} s", self.recovery(), recovery(field).as_secs()),
                self.recovered.is_some_and(|time| time <= recovery(field)),
            ),
        ];
        if role == AttackedProgram::Tidegate {
            self.lines.push(CheckLine::new(
                "query=1 and KEDA are answered",
                within("at most", self.queries, bounds.queries),
                self.queries <= bounds.queries,
            ));
        }
        // The honest pushes of a second are too few for a percentage.
        if field.size == Size::Full {
            self.lines.push(CheckLine::new(
                "honest pushes are accepted",
                format!("{:.1} % of at least {HONEST}", self.honest),
                self.honest >= HONEST,
            ));
        }
        if !self.holds() && !seen.why.is_empty() {
            self.lines
                .push(CheckLine::new("probes do not fail", seen.why.join("; "), false));
        }
        match (harm, role) {
            (Ok(harm), AttackedProgram::Tidegate) => {
                self.lines.extend(settled(|| {
                    Ok([shown(field, seen)?, ledger_lines(attack, field, &harm, seen)?].concat())
                }));
                self.lines.extend(harm.lines);
            }
            // The Collector lacks the interfaces that the other checks ask.
            (Ok(_), AttackedProgram::Collector) => self.lines.extend(settled(|| shown(field, seen))),
            (Err(error), _) => {
                self.lines
                    .push(CheckLine::new("the attack can be made", error.to_string(), false))
            }
        }
        self
    }

    pub(super) fn holds(&self) -> bool {
        self.lines.iter().all(|line| line.holds)
    }

    /// In one word.
    pub(super) fn word(&self) -> &'static str {
        if self.holds() { "holds" } else { "FAILED" }
    }

    /// The checks that failed, a line each.
    pub(super) fn failures(&self) -> String {
        let failed = self.lines.iter().filter(|line| !line.holds);
        failed.fold(String::new(), |mut text, line| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  FAILED {}: {}", line.what, line.figure);
            text
        })
    }

    pub(super) fn recovery(&self) -> String {
        self.recovered.map_or_else(
            || "never".to_owned(),
            |time| format!("{:.1} s", time.as_secs_f64()),
        )
    }
}

/// The longest time in which a gateway is as before.
pub(super) fn recovery(field: &AttackedGateway) -> Duration {
    field.pick(RECOVERY, SMALL_DEADLINE)
}

/// A quantile of times; a failed try counts as infinite.
fn milliseconds(tries: &[Try], quantile: f64) -> f64 {
    match tries {
        [] => f64::NAN,
        tries => Samples::new(tries.iter().map(|probe| {
            if probe.went_well {
                probe.took.as_secs_f64() * 1e3
            } else {
                f64::INFINITY
            }
        }))
        .quantile(quantile),
    }
}

/// A time, and its bound if it has one.
fn within(what: &str, ms: f64, bound: f64) -> String {
    if bound == f64::MAX {
        format!("{what} {ms:.0} ms")
    } else {
        format!("{what} {ms:.0} ms of {bound}")
    }
}

/// The longest time without an accepted push, in seconds.
fn gap(pushes: &[Try], begun: Instant, until: Instant) -> f64 {
    let accepted = pushes.iter().filter(|push| push.went_well).map(|push| push.at);
    let times: Vec<Instant> = std::iter::once(begun).chain(accepted).chain([until]).collect();
    let gaps = times
        .windows(2)
        .map(|pair| pair[1].saturating_duration_since(pair[0]).as_secs_f64());
    gaps.fold(0.0, f64::max)
}

/// Lines that hold once the account includes the last requests.
pub(super) fn settled(look: impl Fn() -> Result<Vec<CheckLine>, BenchError>) -> Vec<CheckLine> {
    let asked = Instant::now();
    loop {
        let lines = match look() {
            Ok(lines) => lines,
            Err(error) => vec![CheckLine::new("pages are served", error.to_string(), false)],
        };
        if lines.iter().all(|line| line.holds) || asked.elapsed() > SETTLED {
            return lines;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the page shows what was accepted of the honest sender.
fn shown(field: &AttackedGateway, seen: &Observations) -> Result<Vec<CheckLine>, BenchError> {
    let shown = field.shown(SHOWN)? as u64;
    Ok(vec![CheckLine::new(
        TOTAL,
        format!("{shown} of {}", seen.total),
        (seen.total..=seen.total + seen.unanswered.min(1)).contains(&shown),
    )])
}

/// Whether the gateway says of itself what was seen from outside.
fn ledger_lines(
    attack: &Attack,
    field: &AttackedGateway,
    harm: &Harm,
    seen: &Observations,
) -> Result<Vec<CheckLine>, BenchError> {
    let mut own = Scraper::connect(field.ports.own, "/metrics")?;
    let page = own.get()?;
    let accepted = counted(page, |name, labels| {
        name == "otelcol_receiver_accepted_metric_points"
            && ["receiver=\"otlp\"", "receiver=\"prometheusremotewrite\""]
                .iter()
                .any(|receiver| labels.contains(receiver))
    }) as u64;
    let least = seen.total * POINTS + harm.accepted;
    let most = least + harm.uncertain + seen.unanswered * POINTS;
    let mut lines = attack.refusals.lines(page, harm, seen);
    lines.push(CheckLine::new(
        "what was accepted is counted",
        format!("{accepted} counted, {least} to {most} accepted"),
        (least..=most).contains(&accepted),
    ));
    Ok(lines)
}

/// The sum of samples of the gateway's own metrics.
pub(super) fn counted_by(
    field: &AttackedGateway,
    is_meant: impl Fn(&str, &str) -> bool,
) -> Result<f64, BenchError> {
    let mut own = Scraper::connect(field.ports.own, "/metrics")?;
    Ok(counted(own.get()?, is_meant))
}

/// The sum of samples that are chosen by name and labels.
pub(super) fn counted(page: &str, is_meant: impl Fn(&str, &str) -> bool) -> f64 {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        is_meant(name, labels).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn a_probe_that_fails_took_for_ever() {
        let probe = |ms, went_well| Try {
            at: Instant::now(),
            took: Duration::from_millis(ms),
            went_well,
        };
        assert_eq!(milliseconds(&[probe(5, true), probe(9, true)], 1.0), 9.0);
        assert_eq!(
            milliseconds(&[probe(5, true), probe(1, false)], 1.0),
            f64::INFINITY
        );
        assert!(milliseconds(&[], 1.0).is_nan());
    }

    #[test]
    fn the_longest_gap_counts_what_was_not_accepted() {
        let begun = Instant::now();
        let push = |s, went_well| Try {
            at: begun + Duration::from_secs(s),
            took: Duration::ZERO,
            went_well,
        };
        let until = begun + Duration::from_secs(10);
        assert_eq!(
            gap(&[push(1, true), push(4, false), push(6, true)], begun, until),
            5.0
        );
        assert_eq!(gap(&[], begun, until), 10.0);
    }

    #[test]
    fn samples_are_chosen_by_name_and_labels() {
        let page = "# TYPE a counter\na{receiver=\"otlp\"} 3\na{receiver=\"uds\"} 4\nb 5\n";
        let otlp = counted(page, |name, labels| name == "a" && labels.contains("otlp"));
        assert_eq!(otlp, 3.0);
    }

    #[test]
    fn a_line_that_fails_is_printed_with_its_figure() {
        let mut result = AttackResult::failed("x", &"no gateway".into());
        assert!(!result.holds());
        assert_eq!(result.failures(), "  FAILED the attack can be made: no gateway\n");
        result.lines = vec![CheckLine::new("it holds", "1 of 2", true)];
        assert!(result.holds() && result.failures().is_empty());
        assert!(table::table(&[result]).ends_with("holds   |\n"));
    }
}
