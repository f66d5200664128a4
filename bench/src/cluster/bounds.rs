// SPDX-License-Identifier: Apache-2.0

//! The bounds of a run without faults: of the ages of what a page shows, and of the starts of replicas. One of them also holds
//! between faults.

use std::time::Duration;

use serde_json::json;

use super::check::Violations;
use super::figures::Figures;
use super::late::LateTimes;
use super::options::{EngineChoice, Options};
use super::producer::INTERVAL;
use super::reader::{CompositeAge, ReadResult, TOLERANCE};
use super::replica::MAX_LAG;
use super::rows::ROWS;
use crate::stats::Samples;

/// The most agents, times their GPUs, with which a run above a bound has failed. More of them may be too many for the
/// machine, so their runs only show whether the bounds hold.
const MOST: usize = 1_000;

/// The time from an update until a page shows it, in seconds. A quarter of the interval comes to it.
const SLACK: f64 = 0.25;

/// The most of both, in seconds.
const MOST_SLACK: f64 = 0.5;

/// What docs/cluster.md adds to `interval` and `max_lag`, in seconds: for each composite, and with an engine.
const COMPOSITE: f64 = 1.5;
const COMPOSITE_OF_KAFKA: f64 = 3.0;
const COMPOSITE_OF_DIRECT: f64 = 2.0;

/// The longest time from the start of a replica until it is ready, when the store has so many series.
const START: (Duration, usize) = (Duration::from_secs(2), 100_000);

/// The word for the outcome of a bound.
pub(super) fn outcome(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

/// The bound of the starts of replicas; none with faults, or with more series.
pub(super) fn start_bound(agents: usize, options: &Options) -> Option<Duration> {
    let (bound, most) = START;
    let series = agents * ROWS.len();
    (options.faults.is_empty() && series <= most).then_some(bound)
}

/// The bounds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AgeBounds {
    /// Of the p99 of the ages of what a page shows.
    page: f64,
    /// Of the highest age of the newest observation in a composite.
    composite: f64,
    /// Whether a run above them has failed.
    is_strict: bool,
}

impl AgeBounds {
    /// The bounds of a run with so many agents; none with faults, which make pages old.
    pub(super) fn of(agents: usize, options: &Options) -> Option<Self> {
        options.faults.is_empty().then(|| Self::calm(agents, options))
    }

    /// The bounds that a run without faults has.
    fn calm(agents: usize, options: &Options) -> Self {
        let (interval, updates) = (options.interval.as_secs_f64(), options.updates.as_secs_f64());
        // An agent counts when it sends.
        let between_updates = interval * (updates / interval).ceil();
        let of_engine = match options.engine {
            EngineChoice::Nats(_) => 0.0,
            EngineChoice::Kafka(_) => COMPOSITE_OF_KAFKA,
            EngineChoice::Direct => COMPOSITE_OF_DIRECT,
        };
        // The gateway counts once in an interval: an observation is the newest one until the next one is shown.
        let intervals = 2.0 * INTERVAL.as_secs_f64();
        Self {
            page: between_updates + (SLACK + interval / 4.0).min(MOST_SLACK),
            composite: intervals + MAX_LAG.as_secs_f64() + COMPOSITE + of_engine,
            is_strict: agents * options.gpus <= MOST,
        }
    }

    /// Adds a row for each bound. A small run above a bound has a violation.
    pub(super) fn check(self, read: &ReadResult, figures: &mut Figures, violations: &Violations) {
        let p99 =
            (!read.staleness.is_empty()).then(|| Samples::new(read.staleness.iter().copied()).quantile(0.99));
        let highest = read.composite_ages.iter().map(|age| age.seconds).reduce(f64::max);
        for (figure, key, age, bound) in [
            ("the p99 on a page", "staleness_p99_bound", p99, self.page),
            ("a composite", "composite_age_bound", highest, self.composite),
        ] {
            let Some(age) = age else { continue };
            let holds = age <= bound;
            figures.add(
                &format!("bound of the age: {figure}"),
                format!("{bound:.2} s: {}", outcome(holds)),
                &[
                    (&format!("{key}_seconds"), json!(bound)),
                    (&format!("{key}_holds"), json!(holds)),
                ],
            );
            if self.is_strict && !holds {
                violations.add(format!(
                    "{figure}: the age is {age:.2} s, and the bound {bound:.2} s"
                ));
            }
        }
    }
}

/// The shortest run with faults that the bound of its composites can fail. A shorter one runs beside tests, on a busy machine.
const SHORTEST: Duration = Duration::from_mins(1);

/// The bound of the ages of a composite with faults. It holds for each page that a replica answers, while no page of the gateway
/// is late: a replica that lags answers 503.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimelyBound {
    composite: Duration,
    /// Whether a run above it has failed.
    is_strict: bool,
}

impl TimelyBound {
    /// The bound of a run with so many agents; none without faults, where [`AgeBounds`] hold for all pages.
    pub(super) fn of(agents: usize, options: &Options) -> Option<Self> {
        let bounds = AgeBounds::calm(agents, options);
        (!options.faults.is_empty()).then(|| Self {
            composite: Duration::from_secs_f64(bounds.composite) + TOLERANCE,
            is_strict: bounds.is_strict && options.time >= SHORTEST,
        })
    }

    /// Adds a row. A small run above the bound has a violation.
    pub(super) fn check(
        self,
        read: &ReadResult,
        late: &LateTimes,
        figures: &mut Figures,
        violations: &Violations,
    ) {
        let shown = read.composite_ages.iter();
        let timely = shown.filter(|age| late.is_timely(age.answered, self.composite + age.took));
        let ages: Vec<f64> = timely.map(CompositeAge::when_asked).collect();
        let (count, all) = (ages.len(), read.composite_ages.len());
        let name = "age of a composite while no page of the gateway is late: pages, max";
        let Some(highest) = ages.into_iter().reduce(f64::max) else {
            figures.add(name, format!("0 of {all}"), &[("timely_composites", json!(0))]);
            return;
        };
        let bound = self.composite.as_secs_f64();
        let holds = highest <= bound;
        figures.add(
            name,
            format!(
                "{count} of {all}, {highest:.2} s; bound {bound:.2} s: {}",
                outcome(holds)
            ),
            &[
                ("timely_composites", json!(count)),
                ("timely_composite_age_max_seconds", json!(highest)),
                ("timely_composite_age_bound_seconds", json!(bound)),
                ("timely_composite_age_bound_holds", json!(holds)),
            ],
        );
        if self.is_strict && !holds {
            violations.add(format!(
                "a composite while no page of the gateway is late: the age is {highest:.2} s, and the bound {bound:.2} s"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::late::PageCounts;
    use super::*;

    fn bounds(agents: usize, arguments: &[&str]) -> Option<AgeBounds> {
        let server = ["--server", "nats"];
        AgeBounds::of(
            agents,
            &Options::parse(&[&server[..], arguments].concat()).unwrap(),
        )
    }

    fn age(seconds: f64, answered: Instant) -> CompositeAge {
        CompositeAge {
            seconds,
            answered,
            took: Duration::from_millis(500),
        }
    }

    fn page_bound(interval: &str, updates: &str) -> f64 {
        let arguments = ["--faults", "none", "--interval", interval, "--updates", updates];
        bounds(100, &arguments).unwrap().page
    }

    #[test]
    fn a_page_has_half_a_second_and_less_at_short_intervals() {
        for (interval, updates, expected) in [
            ("1", "1", 1.5),
            ("0.2", "0.2", 0.5),
            ("2", "2", 2.5),
            ("1", "10", 10.5),
            ("1", "1.5", 2.5),
        ] {
            let bound = page_bound(interval, updates);
            assert!((bound - expected).abs() < 1e-9, "{interval}, {updates}: {bound}");
        }
    }

    #[test]
    fn only_small_runs_without_faults_must_hold_their_bounds() {
        let calm = ["--faults", "none"];
        assert_eq!(bounds(100, &[]), None);
        assert!(bounds(1_000, &calm).unwrap().is_strict);
        assert!(!bounds(1_001, &calm).unwrap().is_strict);
        let gpus = [&calm[..], &["--gpus", "8"]].concat();
        assert!(!bounds(126, &gpus).unwrap().is_strict);
    }

    #[test]
    fn starts_have_a_bound_without_faults_and_with_up_to_100_000_series() {
        let bound = |agents, arguments: &[&str]| {
            let arguments = [&["--server", "nats"], arguments].concat();
            start_bound(agents, &Options::parse(&arguments).unwrap())
        };
        let calm = ["--faults", "none"];
        assert_eq!(bound(1_428, &calm), Some(Duration::from_secs(2)));
        assert_eq!((bound(1_429, &calm), bound(10, &[])), (None, None));
    }

    #[test]
    fn a_composite_has_the_documented_bound_of_its_engine() {
        let calm = ["--faults", "none"];
        assert_eq!(bounds(10, &calm).unwrap().composite, 5.5);
        let direct = [&calm[..], &["--engine", "direct"]].concat();
        assert_eq!(bounds(10, &direct).unwrap().composite, 7.5);
        let kafka = [&calm[..], &["--engine", "kafka", "--jars", "jars"]].concat();
        assert_eq!(bounds(10, &kafka).unwrap().composite, 8.5);
    }

    #[test]
    fn an_age_above_its_bound_is_a_violation_of_a_small_run() {
        let now = Instant::now();
        let read = ReadResult {
            staleness: vec![1.6],
            composite_ages: vec![age(1.0, now), age(2.0, now)],
            ..ReadResult::default()
        };
        for (agents, expected) in [(10, 1), (2_000, 0)] {
            let (mut figures, violations) = (Figures::default(), Violations::default());
            let bounds = bounds(agents, &["--faults", "none"]).unwrap();
            bounds.check(&read, &mut figures, &violations);
            let rows: Vec<_> = figures.rows.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(rows, ["1.50 s: MISSED", "5.50 s: holds"]);
            assert_eq!(violations.all().0, expected);
        }
    }

    #[test]
    fn with_faults_only_pages_after_timely_ones_have_a_bound() {
        let timely = |agents, arguments: &[&str]| {
            let arguments = [&["--server", "nats"], arguments].concat();
            TimelyBound::of(agents, &Options::parse(&arguments).unwrap())
        };
        assert_eq!(timely(10, &["--faults", "none"]), None);
        assert_eq!(timely(10, &[]).unwrap().composite, Duration::from_millis(6_500));
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut late = LateTimes::new(begun);
        // The gateway does not answer for a second.
        late.take(None, begun + second);
        late.take(Some(PageCounts::default()), begun + second * 60);
        for (agents, ages, expected, count) in [
            (
                10,
                [(9.0, 2), (6.9, 30)],
                "1 of 2, 6.40 s; bound 6.50 s: holds",
                0,
            ),
            (
                10,
                [(1.0, 29), (9.0, 30)],
                "2 of 2, 8.50 s; bound 6.50 s: MISSED",
                1,
            ),
            (
                2_000,
                [(1.0, 29), (9.0, 30)],
                "2 of 2, 8.50 s; bound 6.50 s: MISSED",
                0,
            ),
            (10, [(9.0, 2), (9.0, 61)], "0 of 2", 0),
        ] {
            let ages = ages.map(|(seconds, at)| age(seconds, begun + second * at));
            let read = ReadResult {
                composite_ages: ages.to_vec(),
                ..ReadResult::default()
            };
            let (mut figures, violations) = (Figures::default(), Violations::default());
            let bound = timely(agents, &[]).unwrap();
            bound.check(&read, &late, &mut figures, &violations);
            assert_eq!(figures.rows[0].1, expected);
            assert_eq!(violations.all().0, count);
        }
    }
}
