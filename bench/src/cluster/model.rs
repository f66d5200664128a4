// SPDX-License-Identifier: Apache-2.0

//! The model: what all agents have counted, and so what a perfect replica shows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

use tidegate_cluster::SenderStats;
use tidegate_engine::MergeMode;

use super::agent::RunEnd;
use super::rows::{ROWS, cells, updates_sample};

/// The number of a run of an agent. No other run has it.
pub(super) type RunNumber = u64;

/// The totals of an agent, and its runs that live.
#[derive(Debug)]
struct AgentTotals {
    counts: Vec<u64>,
    /// When each update was made.
    updates: Vec<Instant>,
    /// The runs that live.
    runs: BTreeMap<RunNumber, LivingRun>,
    /// Whether a run still counts.
    is_counting: bool,
}

#[derive(Debug, Default)]
struct LivingRun {
    /// Its gauges, at their cells.
    gauges: Vec<u64>,
    stats: SenderStats,
}

/// What all agents have counted.
#[derive(Debug, Default)]
pub(super) struct Model {
    shared: Vec<u64>,
    agents: BTreeMap<String, AgentTotals>,
    /// The samples of a producer that is a real gateway.
    gateway: BTreeMap<String, u64>,
    runs: RunNumber,
    /// The counts of the senders of ended runs.
    sent: SentTotals,
    /// The begins and ends of runs.
    log: String,
    /// The store was put back: replicas may show different totals of ended runs until then.
    pub(super) differ_until: Option<Instant>,
}

/// The sums of the counts of senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentTotals {
    pub(super) runs: u64,
    pub(super) stored: u64,
    pub(super) failed: u64,
    pub(super) late: u64,
    pub(super) bytes: u64,
    /// Series that were refused, not valid or too large.
    pub(super) refused: u64,
    /// Pages that waited when a run ended that had said all.
    pub(super) waiting: u64,
}

impl SentTotals {
    fn add(&mut self, stats: &SenderStats) {
        self.runs += 1;
        self.stored += stats.stored;
        self.failed += stats.failed;
        self.late += stats.late;
        self.bytes += stats.bytes;
        self.refused += stats.refused + stats.invalid + stats.too_large;
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            shared: vec![0; cells()],
            ..Self::default()
        }
    }

    /// Begins a run of an agent.
    pub(super) fn begin_run(&mut self, agent: &str) -> RunNumber {
        self.runs += 1;
        self.note(&format!("{agent} begins its run {}", self.runs));
        let totals = self
            .agents
            .entry(agent.to_owned())
            .or_insert_with(|| AgentTotals {
                counts: vec![0; cells()],
                updates: Vec::new(),
                runs: BTreeMap::new(),
                is_counting: true,
            });
        totals.runs.insert(self.runs, LivingRun::default());
        totals.is_counting = true;
        self.runs
    }

    fn note(&mut self, event: &str) {
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        // Writes to a text never fail.
        let _ = writeln!(self.log, "{now} {event}");
    }

    /// The begins and ends of all runs, with their times.
    pub(super) fn log(&self) -> &str {
        &self.log
    }

    /// An agent counts. Call it before anybody can know the counts.
    pub(super) fn count(&mut self, agent: &str, cell: usize, amount: u64) {
        if let Some(shared) = self.shared.get_mut(cell) {
            *shared += amount;
        }
        let own = self
            .agents
            .get_mut(agent)
            .and_then(|totals| totals.counts.get_mut(cell));
        if let Some(own) = own {
            *own += amount;
        }
    }

    /// A gateway counts. Call it before it knows the counts.
    pub(super) fn count_at_gateway(&mut self, sample: &str, amount: u64) {
        *self.gateway.entry(sample.to_owned()).or_default() += amount;
    }

    /// Notes the number with which a run publishes.
    pub(super) fn note_epoch(&mut self, run: RunNumber, epoch: u64) {
        self.note(&format!("run {run} is {epoch}"));
    }

    /// Notes an update of a run: the values of its gauges, and the counts of its sender before.
    pub(super) fn update(&mut self, agent: &str, run: RunNumber, gauges: &[u64], stats: SenderStats) {
        if let Some(totals) = self.agents.get_mut(agent) {
            totals.updates.push(Instant::now());
            let gauges = gauges.to_vec();
            totals.runs.insert(run, LivingRun { gauges, stats });
        }
    }

    /// The agent counts nothing more for now.
    pub(super) fn freeze(&mut self, agent: &str) {
        if let Some(totals) = self.agents.get_mut(agent) {
            totals.is_counting = false;
        }
    }

    /// Notes how a run shall end.
    pub(super) fn note_order(&mut self, agent: &str, run: RunNumber, end: RunEnd) {
        self.note(&format!("{agent} gets the order to end its run {run}: {end:?}"));
    }

    /// Ends a run. Its gauges go. `has_settled`: the store must have all that it said.
    pub(super) fn end_run(&mut self, agent: &str, run: RunNumber, stats: &SenderStats, has_settled: bool) {
        let end = if has_settled { "ends" } else { "is killed in" };
        self.note(&format!("{agent} {end} its run {run}: {stats:?}"));
        if let Some(totals) = self.agents.get_mut(agent) {
            totals.runs.remove(&run);
        }
        self.sent.add(stats);
        if has_settled {
            self.sent.waiting += stats.waiting as u64;
        }
    }

    /// The counts of all senders.
    pub(super) fn sent(&self) -> SentTotals {
        let mut sent = self.sent;
        let living = self.agents.values().flat_map(|totals| totals.runs.values());
        living.for_each(|run| sent.add(&run.stats));
        sent
    }

    /// The samples of all counters and histograms.
    pub(super) fn totals(&self) -> BTreeMap<String, f64> {
        let gateway = self.gateway.iter();
        let mut samples: BTreeMap<_, _> = gateway
            .map(|(sample, count)| (sample.clone(), *count as f64))
            .collect();
        for row in ROWS.iter().filter(|row| !row.is_gauge()) {
            let mut add = |agent: &str, counts: &[u64]| {
                let counts = &counts[row.cells.clone()];
                if counts.iter().any(|count| *count > 0) {
                    samples.extend(row.samples(agent, counts));
                }
            };
            if row.is_own {
                self.agents
                    .iter()
                    .for_each(|(agent, totals)| add(agent, &totals.counts));
            } else {
                add("", &self.shared);
            }
        }
        samples
    }

    /// The samples of all gauges. The newest of two runs of one agent depends on their clocks: agents have one run.
    pub(super) fn gauges(&self) -> BTreeMap<String, f64> {
        let mut samples = BTreeMap::new();
        for row in ROWS.iter().filter(|row| row.is_gauge()) {
            let cell = row.cells.start;
            let runs = self.agents.iter().flat_map(|(agent, totals)| {
                let values = totals.runs.values();
                values.filter_map(move |run| Some((agent, *run.gauges.get(cell)?)))
            });
            for (agent, value) in runs {
                for (name, value) in row.samples(agent, &[value]) {
                    let known = samples.entry(name).or_insert_with(|| match row.mode() {
                        MergeMode::Level => 0.0,
                        _ => value,
                    });
                    *known = merged(row.mode(), *known, value);
                }
            }
        }
        samples
    }

    /// The number of series that are shown.
    pub(super) fn series(&self) -> usize {
        let rows = ROWS.iter().map(|row| {
            let is_there = |counts: &[u64]| counts[row.cells.clone()].iter().any(|count| *count > 0);
            let has_gauge = |totals: &&AgentTotals| totals.runs.values().any(|run| !run.gauges.is_empty());
            let agents = self.agents.values();
            match (row.is_gauge(), row.is_own) {
                (true, true) => agents.filter(has_gauge).count(),
                (true, false) => usize::from(agents.filter(has_gauge).count() > 0),
                (false, true) => agents.filter(|totals| is_there(&totals.counts)).count(),
                (false, false) => usize::from(is_there(&self.shared)),
            }
        });
        rows.sum::<usize>() + self.gateway.len()
    }

    /// The age of the newest update that is shown, of each agent that counts.
    pub(super) fn staleness(
        &self,
        shown: impl Fn(&str) -> Option<f64>,
        now: Instant,
    ) -> Vec<(String, Duration)> {
        let mut ages = Vec::new();
        for (agent, totals) in &self.agents {
            let count = shown(&updates_sample(agent)).unwrap_or_default() as usize;
            let is_whole = count >= totals.updates.len();
            if totals.runs.is_empty() || (is_whole && !totals.is_counting) {
                continue;
            }
            // Nothing is shown yet: the first update waits.
            if let Some(at) = totals.updates.get(count.saturating_sub(1)) {
                ages.push((agent.clone(), now.saturating_duration_since(*at)));
            }
        }
        ages
    }

    /// The number of agents with a run, and of all that ever were.
    pub(super) fn agents(&self) -> (usize, usize) {
        let living = self.agents.values().filter(|totals| !totals.runs.is_empty());
        (living.count(), self.agents.len())
    }
}

fn merged(mode: MergeMode, one: f64, other: f64) -> f64 {
    match mode {
        MergeMode::Level => one + other,
        MergeMode::Min => one.min(other),
        MergeMode::Max => one.max(other),
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::UPDATES_ROW;
    use super::*;

    fn model() -> Model {
        let mut model = Model::new();
        for agent in ["a", "b"] {
            let run = model.begin_run(agent);
            model.count(agent, 0, 3);
            model.count(agent, ROWS[*UPDATES_ROW].cells.start, 1);
            let gauges: Vec<u64> = (0..cells() as u64).map(|cell| cell + run).collect();
            model.update(agent, run, &gauges, SenderStats::default());
        }
        model
    }

    #[test]
    fn shared_counts_add_up_and_own_counts_do_not() {
        let totals = model().totals();
        assert_eq!(totals["sim_whole_0_total"], 6.0);
        assert_eq!(totals[&updates_sample("a")], 1.0);
        assert_eq!(totals.len(), 3);
        assert_eq!(model().series(), 3 + 4 + 2 * 2);
    }

    #[test]
    fn counts_of_a_gateway_are_totals_and_series() {
        let mut model = model();
        let series = model.series();
        model.count_at_gateway("real_total", 2);
        model.count_at_gateway("real_total", 3);
        assert_eq!(model.totals()["real_total"], 5.0);
        assert_eq!(model.series(), series + 1);
    }

    #[test]
    fn gauges_of_ended_runs_go_and_totals_stay() {
        let mut model = model();
        let both = model.gauges();
        assert_eq!(both["sim_largest_0"], both["sim_level_1"] / 2.0 + 1.5);
        model.end_run("b", 2, &SenderStats::default(), true);
        let one = model.gauges();
        assert_eq!(one["sim_largest_0"], one["sim_level_1"] + 1.0);
        assert!(!one.contains_key("sim_newest_0{agent=\"b\"}"));
        assert_eq!(model.totals().len(), 3);
        assert_eq!(model.agents(), (1, 2));
    }

    #[test]
    fn an_agent_that_shows_all_and_rests_is_not_stale() {
        let mut model = model();
        let later = Instant::now() + Duration::from_secs(5);
        assert_eq!(model.staleness(|_| Some(1.0), later).len(), 2);
        model.freeze("a");
        let ages = model.staleness(|_| Some(1.0), later);
        assert!(ages.len() == 1 && ages[0].1 >= Duration::from_secs(4), "{ages:?}");
        assert_eq!(model.staleness(|_| None, later).len(), 2);
    }
}
