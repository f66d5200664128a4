// SPDX-License-Identifier: Apache-2.0

//! The task that sends: it gives the tables to the sender at each interval, and carries its calls to the store.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::json;
use tidegate_cluster::{CallId, PageSender, SenderStats, StoreCall, StoreEvent, StoreSession};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout, timeout_at};

use super::config::PartialsExporterConfig;
use super::items::Statement;
use super::streams::StreamBuffer;
use crate::component::worker::in_background;
use crate::component::{Cluster, Context, unix_now};
use crate::exporters::tables::ExporterTables;
use crate::prom::catalog::Exposes as _;

/// The most calls that one pass takes from the sender. The others follow after their answers.
const CALLS_AT_ONCE: usize = 64;

/// Counts that the sender does not have.
#[derive(Default)]
struct StatementCounts {
    duplicates: u64,
    gauges: u64,
    fallen: u64,
}

/// What the background thread works on.
struct SenderState {
    sender: PageSender,
    counts: StatementCounts,
}

/// Sends pages.
pub(super) struct PageDriver {
    base: Context,
    config: Arc<PartialsExporterConfig>,
    cluster: Arc<Cluster>,
    tables: Arc<ExporterTables>,
    streams: Option<Arc<StreamBuffer>>,
    /// Locked by one thread at a time: the task waits while the background thread works.
    state: Arc<Mutex<SenderState>>,
    session: StoreSession,
}

impl PageDriver {
    pub(super) fn new(
        base: Context,
        config: Arc<PartialsExporterConfig>,
        cluster: Arc<Cluster>,
        (tables, streams): (Arc<ExporterTables>, Option<Arc<StreamBuffer>>),
        sender: PageSender,
        session: StoreSession,
    ) -> Self {
        let counts = StatementCounts::default();
        Self {
            base,
            config,
            cluster,
            tables,
            streams,
            state: Arc::new(Mutex::new(SenderState { sender, counts })),
            session,
        }
    }

    /// Sends until the deadline of the stop is set, and then the last pages and the goodbye.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<Option<Instant>>) {
        let mut ticks = interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                event = self.session.events.recv() => match event {
                    Some(event) => self.take(event),
                    None => return tracing::error!(exporter = %self.base.id, "the engine of the cluster has ended"),
                },
                _ = ticks.tick() => self.update().await,
                _ = stop.changed() => break,
            }
        }
        let deadline = stop.borrow().unwrap_or_else(Instant::now);
        self.finish(deadline).await;
        self.cluster.report(&self.base.path, None);
    }

    /// Gives the tables to the sender, and starts the calls that are due.
    async fn update(&mut self) {
        let (tables, state, streams) = (self.tables.clone(), self.state.clone(), self.streams.clone());
        let (base, cluster) = (self.base.clone(), self.cluster.clone());
        let updated = in_background(move || {
            let now = unix_now();
            tables.own().expire(now);
            let mut statement = Statement::of(&tables.all(), now);
            let mut fallen = 0;
            if let Some(streams) = &streams {
                statement.note_added_streams(&tables.live());
                let (items, smaller) = streams.take_all();
                statement.items.extend(items);
                fallen = smaller;
            }
            let mut state = state.lock();
            if let Some(streams) = &streams {
                // The table and the streams share one bound.
                let left = streams.max_bytes().saturating_sub(tables.own().stats().bytes);
                state.sender.set_max_stream_bytes(left);
            }
            state.counts.duplicates += statement.duplicates;
            state.counts.gauges += statement.gauges;
            state.counts.fallen += fallen;
            let mismatch = state.sender.mismatch().map(|mismatch| mismatch.to_string());
            let notices = statement.notices.into_iter().chain(mismatch).collect();
            base.shared.notices.set(&base.path, notices);
            state.sender.update(statement.items, now);
            report(&state, &base, &cluster);
            calls(&mut state.sender)
        });
        // A panic is in the log. The next round continues.
        self.start(updated.await.unwrap_or_default());
    }

    fn take(&mut self, event: StoreEvent) {
        let now = unix_now();
        let mut state = self.state.lock();
        let run = state.sender.run();
        match event {
            StoreEvent::Done(id, result) => state.sender.answer(id, result, now),
            StoreEvent::Connected => state.sender.reconnected(now),
            StoreEvent::Read(..) | StoreEvent::Current(..) | StoreEvent::Confirmed(..) => return,
        }
        // The next round is up to an interval away. The status would show no run until then.
        if state.sender.run() != run {
            report(&state, &self.base, &self.cluster);
        }
        let due = calls(&mut state.sender);
        drop(state);
        self.start(due);
    }

    fn start(&mut self, calls: Vec<(CallId, StoreCall)>) {
        for (id, call) in calls {
            self.session.store.start(id, call);
        }
    }

    /// Sends the last pages, and then the goodbye.
    async fn finish(&mut self, deadline: Instant) {
        // Collecting the tables may take longer than there is time.
        let _ = timeout_at(deadline.into(), self.update()).await;
        self.state.lock().sender.stop();
        let polls = self.config.interval / 10;
        while !self.state.lock().sender.is_finished() {
            let due = calls(&mut self.state.lock().sender);
            self.start(due);
            tokio::select! {
                event = timeout(polls, self.session.events.recv()) => match event {
                    Ok(Some(event)) => self.take(event),
                    Ok(None) => break,
                    Err(_) => {}
                },
                () = sleep_until(deadline.into()) => break,
            }
        }
        let state = self.state.lock();
        report(&state, &self.base, &self.cluster);
        if !state.sender.is_finished() {
            let waiting = state.sender.stats(unix_now()).waiting;
            tracing::warn!(exporter = %self.base.id, waiting, "stopped before the store had the last pages");
        }
    }
}

/// The calls that are due now.
fn calls(sender: &mut PageSender) -> Vec<(CallId, StoreCall)> {
    let now = unix_now();
    let due = std::iter::from_fn(|| sender.poll(now));
    due.take(CALLS_AT_ONCE).collect()
}

/// Shows the counts in the gateway's own metrics and in the status of the cluster.
fn report(state: &SenderState, base: &Context, cluster: &Cluster) {
    let stats = state.sender.stats(unix_now());
    let run = state.sender.run();
    record_metrics(&stats, &state.counts, base);
    let epoch = run.as_ref().map_or(0, |run| run.epoch);
    metrics::gauge!("tidegate_partials_run", "exporter" => base.id.to_string()).set(epoch as f64);
    cluster.report(
        &base.path,
        Some(json!({
            "kind": "producer",
            "producer": state.sender.producer().as_str(),
            "run": run.as_ref().map(|run| run.epoch),
            "series": stats.series,
            "waiting_pages": stats.waiting,
            "oldest_wait_seconds": seconds(stats.oldest_wait_ns),
        })),
    );
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn record_metrics(stats: &SenderStats, counts: &StatementCounts, base: &Context) {
    let labels = [("exporter", base.id.to_string())];
    metrics::counter!("tidegate_partials_stored_pages_total", &labels).absolute(stats.stored);
    metrics::counter!("tidegate_partials_failed_pages_total", &labels).absolute(stats.failed);
    metrics::counter!("tidegate_partials_late_pages_total", &labels).absolute(stats.late);
    metrics::counter!("tidegate_partials_bytes_total", &labels).absolute(stats.bytes);
    metrics::counter!("tidegate_partials_new_runs_total", &labels).absolute(stats.runs);
    metrics::gauge!("tidegate_partials_series", &labels).set(stats.series as f64);
    metrics::gauge!("tidegate_partials_carried_series", &labels).set(stats.carried as f64);
    metrics::gauge!("tidegate_partials_waiting_pages", &labels).set(stats.waiting as f64);
    metrics::gauge!("tidegate_partials_oldest_wait_seconds", &labels).set(seconds(stats.oldest_wait_ns));
    for (reason, count) in [
        ("limit", stats.refused),
        ("invalid", stats.invalid),
        ("too_large", stats.too_large),
        ("fallen", stats.fallen + counts.fallen),
        ("duplicate", counts.duplicates),
        ("gauge_in_window", counts.gauges),
    ] {
        let labels = [("exporter", base.id.to_string()), ("reason", reason.to_owned())];
        metrics::counter!("tidegate_partials_refused_series_total", &labels).absolute(count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_cluster::local::LocalEngine;
    use tidegate_cluster::{ClusterEngine as _, ProducerName};
    use tidegate_engine::{Limits, Rule, Table};

    use super::*;
    use crate::component::testing::{add_cluster, context, settings};

    #[tokio::test]
    async fn the_status_has_the_run_without_another_round() {
        let base = context("exporters", "partials");
        let cluster = add_cluster(&base.shared);
        let settings = settings::<PartialsExporterConfig>("{cluster: cluster}");
        let config: Arc<PartialsExporterConfig> = settings.get();
        let own = Table::new("test", vec![Rule::newest()], Limits::default());
        let tables = Arc::new(ExporterTables::new(Arc::new(own)));
        let sender = PageSender::new(config.sender(&cluster, ProducerName::new("a").unwrap()));
        let engine = LocalEngine::new();
        let session = engine.open();
        let mut driver = PageDriver::new(base, config, cluster.clone(), (tables, None), sender, session);
        driver.update().await;
        let report = || cluster.status()["components"]["exporters::partials"].clone();
        assert_eq!(report()["producer"], "a");
        assert!(report()["run"].is_null());
        let answers = async {
            while report()["run"].is_null() {
                let event = driver.session.events.recv().await.unwrap();
                driver.take(event);
            }
        };
        timeout(Duration::from_secs(60), answers).await.unwrap();
    }
}
