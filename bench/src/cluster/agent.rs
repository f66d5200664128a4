// SPDX-License-Identifier: Apache-2.0

//! A run of a simulated agent: it counts, publishes its totals, and ends in one of several ways.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use tidegate_cluster::SentItem;
use tidegate_cluster::{
    CallId, PageLimits, PageSender, ProducerName, SenderConfig, StoreEvent, StoreSession,
};
use tidegate_engine::{Histogram, Point, Series, UnixNanos, Value, clock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::model::{Model, RunNumber};
use super::rows::{BOUNDS, Form, OBSERVED, ROWS, Row, UPDATES_ROW, cells};
use crate::BenchError;

/// The name of the cluster.
pub(super) const CLUSTER: &str = "sim";

/// The interval at which a run that waits for its end asks for calls that are due.
const LOOK: Duration = Duration::from_millis(100);

/// Gauges are below this.
const MAX_GAUGE: u64 = 1_000;

/// The totals of a process. A restart with `storage` hands them on.
#[derive(Debug)]
pub(super) struct RunCounts {
    /// The start of each row; 0: it has not counted yet.
    starts: Vec<UnixNanos>,
    cells: Vec<u64>,
}

impl RunCounts {
    pub(super) fn new() -> Self {
        Self {
            starts: vec![0; ROWS.len()],
            cells: vec![0; cells()],
        }
    }

    /// Adds one to each count. Counts that were 0 begin at `now`.
    pub(super) fn raise(&mut self, now: UnixNanos) {
        for (at, start) in self
            .starts
            .iter_mut()
            .enumerate()
            .filter(|(_, start)| **start == 0)
        {
            // No two starts are equal.
            *start = now + at as u64;
        }
        self.cells.iter_mut().for_each(|count| *count += 1);
    }
}

/// The options of the sender of an agent.
pub(super) fn sender_config(producer: ProducerName, interval: Duration, nonce: u32) -> SenderConfig {
    SenderConfig {
        cluster: CLUSTER.to_owned(),
        producer,
        partitions: 1,
        rules: 0,
        interval,
        refresh: Duration::from_secs(30),
        max_bytes_per_second: 8 << 20,
        max_series: 100_000,
        max_body_bytes: PageLimits::default().max_body_bytes,
        max_in_flight: 16,
        nonce,
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// It counts nothing more, and is killed when the store has all its pages.
    Killed,
    /// It publishes its last pages and a goodbye.
    Stopped,
    /// It is killed at once. The next run has its totals.
    Kept,
}

/// A command to a run.
#[derive(Debug)]
pub(super) enum Order {
    /// It counts nothing more, and answers when the store has all its pages.
    Freeze(oneshot::Sender<()>),
    End(RunEnd),
}

/// The properties of a run.
pub(super) struct RunSetup {
    pub(super) agent: Arc<str>,
    /// The difference of its clock from the true time, in nanoseconds.
    pub(super) skew: i64,
    /// The interval of the pages, and the time between two counts.
    pub(super) interval: Duration,
    pub(super) updates: Duration,
    pub(super) counts: RunCounts,
    pub(super) random: SmallRng,
}

/// A run.
pub(super) struct AgentRun {
    agent: Arc<str>,
    number: RunNumber,
    skew: i64,
    interval: Duration,
    updates: Duration,
    counts: RunCounts,
    random: SmallRng,
    series: Vec<Arc<Series>>,
    model: Arc<Mutex<Model>>,
    sender: PageSender,
    session: StoreSession,
    /// Calls without an answer.
    calls: BTreeSet<CallId>,
    next: Instant,
    next_update: Instant,
    frozen: Option<oneshot::Sender<()>>,
    end: Option<RunEnd>,
    is_counting: bool,
}

impl AgentRun {
    pub(super) fn new(
        setup: RunSetup,
        session: StoreSession,
        model: Arc<Mutex<Model>>,
    ) -> Result<Self, BenchError> {
        let RunSetup {
            agent,
            skew,
            interval,
            updates,
            counts,
            mut random,
        } = setup;
        let sender = PageSender::new(sender_config(
            ProducerName::new(&agent)?,
            interval,
            random.random(),
        ));
        let number = model.lock().begin_run(&agent);
        let begin = Instant::now() + updates.mul_f64(random.random());
        Ok(Self {
            series: ROWS.iter().map(|row| Arc::new(row.series(&agent))).collect(),
            // Agents do not publish at one moment.
            next: begin,
            next_update: begin,
            agent,
            number,
            skew,
            interval,
            updates,
            counts,
            random,
            model,
            sender,
            session,
            calls: BTreeSet::new(),
            frozen: None,
            end: None,
            is_counting: true,
        })
    }

    /// Runs until its end. Gives its totals, which the next run may keep.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) -> Result<RunCounts, BenchError> {
        // A producer with restored totals publishes them also if it is stopped at once.
        if self.counts.starts.iter().any(|start| *start > 0) {
            let now = self.clock();
            // A gauge of an earlier run is not kept.
            let items = items(&self.series, &self.counts, now, |row| !row.is_gauge());
            self.sender.update(items, now);
        }
        while !self.is_over() {
            tokio::select! {
                event = self.session.events.recv() => match event {
                    Some(event) => self.take(event),
                    None => return Err("the engine has ended".into()),
                },
                () = sleep_until(self.next.into()) => self.tick(),
                order = orders.recv() => match order {
                    Some(order) => self.handle(order),
                    None => return Err("nobody asks for the end of a run".into()),
                },
            }
            self.start_calls();
        }
        let stats = self.sender.stats(self.clock());
        let has_settled = self.end != Some(RunEnd::Kept);
        self.model
            .lock()
            .end_run(&self.agent, self.number, &stats, has_settled);
        Ok(self.counts)
    }

    /// Now, by its own clock.
    fn clock(&self) -> UnixNanos {
        clock::now().saturating_add_signed(self.skew)
    }

    fn take(&mut self, event: StoreEvent) {
        let now = self.clock();
        match event {
            StoreEvent::Done(id, result) => {
                self.calls.remove(&id);
                let last = self.epoch();
                self.sender.answer(id, result, now);
                if let Some(epoch) = self.epoch().filter(|epoch| last != Some(*epoch)) {
                    self.model.lock().note_epoch(self.number, epoch);
                }
            }
            StoreEvent::Connected => self.sender.reconnected(now),
            StoreEvent::Read(..) | StoreEvent::Current(..) | StoreEvent::Confirmed(..) => {}
        }
    }

    fn epoch(&self) -> Option<u64> {
        self.sender.run().map(|run| run.epoch)
    }

    fn tick(&mut self) {
        if self.is_counting {
            // Heartbeats need no update.
            if self.next_update <= self.next {
                self.update();
                self.next_update += self.updates;
            }
            self.next += self.interval;
        } else {
            self.next = Instant::now() + LOOK;
        }
    }

    fn handle(&mut self, order: Order) {
        self.is_counting = false;
        self.model.lock().freeze(&self.agent);
        match order {
            Order::Freeze(reply) => self.frozen = Some(reply),
            Order::End(end) => {
                self.end = Some(end);
                self.model.lock().note_order(&self.agent, self.number, end);
                if end == RunEnd::Stopped {
                    self.sender.stop();
                }
            }
        }
        self.next = Instant::now();
    }

    fn start_calls(&mut self) {
        let now = self.clock();
        while let Some((id, call)) = self.sender.poll(now) {
            self.calls.insert(id);
            self.session.store.start(id, call);
        }
        if self.has_settled()
            && let Some(reply) = self.frozen.take()
        {
            // Nobody waits for it if this fails.
            let _ = reply.send(());
        }
    }

    fn is_over(&self) -> bool {
        match self.end {
            None => false,
            Some(RunEnd::Kept) => true,
            Some(RunEnd::Killed) => self.has_settled(),
            Some(RunEnd::Stopped) => self.sender.is_finished(),
        }
    }

    /// Whether the store has all that the run has said.
    fn has_settled(&self) -> bool {
        let has_said_all = self.sender.run().is_some() && self.calls.is_empty();
        has_said_all && self.sender.stats(self.clock()).waiting == 0
    }

    /// Counts, and says the totals. The model knows them first.
    fn update(&mut self) {
        let now = self.clock();
        let mut model = self.model.lock();
        for (at, row) in ROWS.iter().enumerate() {
            let (cell, amount) = step(row, at, &mut self.random);
            if row.is_gauge() {
                self.counts.cells[cell] = amount;
            } else if amount > 0 {
                self.counts.cells[cell] += amount;
                model.count(&self.agent, cell, amount);
            }
            if amount > 0 && self.counts.starts[at] == 0 {
                // No two starts are equal.
                self.counts.starts[at] = now + at as u64;
            }
        }
        let stats = self.sender.stats(now);
        model.update(&self.agent, self.number, &self.counts.cells, stats);
        drop(model);
        let items = items(&self.series, &self.counts, now, |_| true);
        self.sender.update(items, now);
    }
}

/// The values of the wanted rows.
pub(super) fn items(
    series: &[Arc<Series>],
    counts: &RunCounts,
    now: UnixNanos,
    is_wanted: impl Fn(&Row) -> bool,
) -> Vec<SentItem> {
    let rows = ROWS.iter().zip(series).zip(&counts.starts);
    let begun = rows.filter(|((row, _), start)| is_wanted(row) && (row.is_gauge() || **start > 0));
    let items = begun.map(|((row, series), start)| {
        let point = Point {
            series: series.clone(),
            start: if row.is_gauge() { 0 } else { *start },
            time: now,
            value: value(row, &counts.cells[row.cells.clone()]),
            exemplars: Vec::new(),
        };
        SentItem::Value(row.mode(), point)
    });
    items.collect()
}

/// The cell of a row that changes, and the amount. A gauge takes the amount as its value.
fn step(row: &Row, at: usize, random: &mut SmallRng) -> (usize, u64) {
    let cell = random.random_range(row.cells.clone());
    let amount = match row.form {
        _ if at == *UPDATES_ROW => 1,
        Form::Gauge(_) => random.random_range(0..MAX_GAUGE),
        _ if random.random_bool(0.5) => random.random_range(1..10),
        _ => 0,
    };
    (cell, amount)
}

fn value(row: &Row, counts: &[u64]) -> Value {
    let count = counts.first().copied().unwrap_or_default();
    match row.form {
        Form::Whole | Form::Gauge(_) => Value::Int(count.cast_signed()),
        Form::Double(unit) => Value::Double(count as f64 * unit),
        Form::Histogram => {
            let mut histogram = Histogram::empty(BOUNDS.into());
            let observed = OBSERVED.iter().zip(counts).filter(|(_, times)| **times > 0);
            observed.for_each(|(value, times)| histogram.observe(*value, *times));
            Value::Histogram(Box::new(histogram))
        }
    }
}
