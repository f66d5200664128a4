// SPDX-License-Identifier: Apache-2.0

//! A reader behind a load balancer: it asks the replicas in turn, and another one if a replica does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::check::{Page, PageChecker, Violations};
use super::model::Model;
use super::producer::{WINDOW, unix_seconds};
use super::replica::MAX_LAG;
use crate::BenchError;
use crate::http::Scraper;

/// Between two pages.
const INTERVAL: Duration = Duration::from_secs(1);

/// A replica on a busy machine notices its lag this late, and an answer takes time.
pub(super) const TOLERANCE: Duration = Duration::from_secs(1);

/// A page may be older than another one that was read this long before, unless the replicas confirm their pages by the store.
pub(super) fn max_age(confirms: bool) -> Duration {
    if confirms {
        Duration::ZERO
    } else {
        MAX_LAG + TOLERANCE
    }
}

/// The parts of the window of a composite.
const SUB_WINDOW: Duration = Duration::from_secs(1);

/// The age of the newest observation in the composite of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompositeAge {
    /// The age at the end of the answer.
    pub(super) seconds: f64,
    /// The end of the answer, and how long it took.
    pub(super) answered: Instant,
    pub(super) took: Duration,
}

impl CompositeAge {
    /// The age at the question, in seconds: a slow answer makes it no older.
    pub(super) fn when_asked(&self) -> f64 {
        self.seconds - self.took.as_secs_f64()
    }
}

/// The results of all asks.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadResult {
    pub(super) answered: u64,
    /// Answers with 503.
    pub(super) refused: u64,
    /// Asks without an answer.
    pub(super) failed: u64,
    /// Rounds in which no replica answered.
    pub(super) missed: u64,
    /// The longest time between two pages.
    pub(super) longest_gap: Duration,
    /// Pages with a total below that of an earlier page, which was read less than `max_lag` before.
    pub(super) lower: u64,
    /// Ages of the newest update that is shown, in seconds, of each agent on each page.
    pub(super) staleness: Vec<f64>,
    /// Ages of the composite of a page.
    pub(super) composite_ages: Vec<CompositeAge>,
    pub(super) highest_age: f64,
    /// The agent with the highest age.
    pub(super) stalest: String,
}

/// The page of a port. One that takes longer has failed.
pub(super) fn page(port: u16, timeout: Duration) -> Result<Page, BenchError> {
    let mut scraper = Scraper::connect_within(port, "/metrics", timeout)?;
    Ok(Page::parse(scraper.get()?))
}

/// The reader.
pub(super) struct RoundRobin {
    is_over: Arc<AtomicBool>,
    is_quiet: Arc<AtomicBool>,
    thread: JoinHandle<ReadResult>,
}

impl RoundRobin {
    /// Begins to ask the ports of the pages. `max_age`: a page may be older than another one that was read this long before.
    pub(super) fn start(
        ports: Vec<u16>,
        (timeout, max_age): (Duration, Duration),
        model: Arc<Mutex<Model>>,
        violations: Violations,
    ) -> Self {
        let (is_over, is_quiet) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let mut state = RoundRobinState {
            ports,
            timeout,
            model,
            violations,
            is_quiet: is_quiet.clone(),
            checker: PageChecker::new(max_age),
            begun: Instant::now(),
            last: Instant::now(),
            result: ReadResult::default(),
        };
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut due = Instant::now();
            for round in 0.. {
                if over.load(Relaxed) {
                    break;
                }
                state.ask(round);
                due = (due + INTERVAL).max(Instant::now());
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            state.result
        });
        Self {
            is_over,
            is_quiet,
            thread,
        }
    }

    /// The faults are over: gaps and ages count no more, and checks go on.
    pub(super) fn quiet(&self) {
        self.is_quiet.store(true, Relaxed);
    }

    pub(super) fn end(self) -> Result<ReadResult, BenchError> {
        self.is_over.store(true, Relaxed);
        self.thread.join().map_err(|_| "the reader panicked".into())
    }
}

struct RoundRobinState {
    ports: Vec<u16>,
    timeout: Duration,
    model: Arc<Mutex<Model>>,
    violations: Violations,
    is_quiet: Arc<AtomicBool>,
    checker: PageChecker,
    begun: Instant,
    /// The time of the last page.
    last: Instant,
    result: ReadResult,
}

impl RoundRobinState {
    fn ask(&mut self, round: usize) {
        for attempt in 0..self.ports.len() {
            let number = (round + attempt) % self.ports.len();
            let asked = Instant::now();
            match page(self.ports[number], self.timeout) {
                Ok(page) => return self.take(page, number, asked),
                Err(error) if error.to_string().contains(" 503 ") => self.result.refused += 1,
                Err(_) => self.result.failed += 1,
            }
        }
        self.result.missed += 1;
    }

    fn take(&mut self, page: Page, number: usize, asked: Instant) {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let model = self.model.lock();
        let most = model.totals();
        let ages = model.staleness(|sample| page.value(sample), now);
        self.checker.may_differ = model.differ_until.is_some_and(|until| asked < until);
        drop(model);
        let composite_age = page.clock().map(|shown| CompositeAge {
            seconds: unix_seconds(wall) - shown,
            answered: now,
            took: now.saturating_duration_since(asked),
        });
        self.check_composite(composite_age, number);
        let found = self.checker.take(page, (asked, now), &most);
        let seconds = self.begun.elapsed().as_secs_f64();
        let check = format!("a page of replica-{number} after {seconds:.1} s");
        self.violations.add_all(&check, &found.wrong);
        self.result.answered += 1;
        self.result.lower += u64::from(!found.fell.is_empty() && found.wrong.is_empty());
        let gap = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        if !self.is_quiet.load(Relaxed) {
            self.result.longest_gap = self.result.longest_gap.max(gap);
            self.note_ages(&ages);
        }
    }

    /// A composite shows nothing that has left its window, also on a page that took long.
    fn check_composite(&mut self, age: Option<CompositeAge>, number: usize) {
        let Some(age) = age else { return };
        let most = WINDOW + SUB_WINDOW + MAX_LAG + age.took + TOLERANCE;
        if age.seconds > most.as_secs_f64() {
            let seconds = self.begun.elapsed().as_secs_f64();
            self.violations.add(format!(
                "a page of replica-{number} after {seconds:.1} s: the composite is {:.1} s old",
                age.seconds
            ));
        }
        if !self.is_quiet.load(Relaxed) {
            self.result.composite_ages.push(age);
        }
    }

    fn note_ages(&mut self, ages: &[(String, Duration)]) {
        for (agent, age) in ages {
            let age = age.as_secs_f64();
            if age > self.result.highest_age {
                self.result.highest_age = age;
                self.result.stalest = format!("{agent} after {:.0} s", self.begun.elapsed().as_secs_f64());
            }
            self.result.staleness.push(age);
        }
    }
}
