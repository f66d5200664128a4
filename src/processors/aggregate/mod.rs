// SPDX-License-Identifier: Apache-2.0

//! `aggregate`: turns events and points into counters, gauges and histograms by declared rules.
//!
//! Data that a rule takes ends here. It is part of the state before the push returns, or with `storage` when it is
//! on disk (`journal`). The state is a table that exporters and the admin API read live. Every `interval` its
//! series are pushed on, for exporters that can't read tables. Other data passes unchanged (`absorber`).

mod absorber;
pub mod config;
mod journal;
mod nixl;
mod replica;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tidegate_engine::{Overflow, Pattern, Rule, Stats, Table};

use self::absorber::{Absorber, PointOrigin};
use self::config::AggregateConfig;
use self::journal::Journal;
use super::emit::{Emitter, Ticker};
use crate::batch::{Batch, Signal, stream_id};
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, ErrorDoc, Factory, Flow, Ledger, Lifecycle,
    OutputDescriptor, Processor, ProcessorContext, ProcessorFactory, Refused, Stability, TableSuccession,
    anomalies, collisions, unix_now,
};

/// The errors of `aggregate`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The table has `max_series` series, or memory is short. The processor rejects new series.",
        "OTLP senders get the number of rejected points in `partial_success`",
        "Group more attributes away, or raise `max_series` or the memory limit.",
    ),
    ErrorDoc::logged(
        "Several processes report the same series.",
        "several processes report the same series",
        "Add an attribute that distinguishes the processes, or group with a rule.",
    ),
    ErrorDoc::logged(
        "The gateway is one of several replicas that aggregate.",
        "this is one of several replicas that aggregate; a sender that changes replicas is counted \
         twice",
        "Route data by key with a `loadbalancing` exporter in front, or use a cluster.",
    ),
    ErrorDoc::logged(
        "Another version wrote the snapshot in the storage.",
        "the snapshot has another version: its contents can't be used",
        "Totals begin at 0. To keep them, run the former version again, with your copy of the directory.",
    ),
    ErrorDoc::logged(
        "A reload removes `storage`, and changes rules or limits.",
        "`storage` is gone, and rules or limits have changed: totals begin at 0",
        "Make the two changes in two reloads to keep the totals.",
    ),
];

/// The factory of `aggregate`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "aggregate",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "aggregates events and points to counters, gauges and histograms, across sources, resources and batches",
    errors: &[ERRORS],
    config: ConfigType::of::<AggregateConfig>(),
    build: |settings, cx| Ok(Arc::new(Aggregate::new(settings.get(), cx)?)),
};

struct Aggregate {
    config: Arc<AggregateConfig>,
    base: Context,
    absorber: Arc<Absorber>,
    succession: TableSuccession,
    journal: Option<Arc<Journal>>,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
    ticker: Ticker,
}

impl Aggregate {
    fn new(config: Arc<AggregateConfig>, cx: ProcessorContext) -> Result<Self, ComponentError> {
        let rules = config.rules().map_err(|error| cx.base.error(error.to_string()))?;
        let (table, predecessors) = table(&config, &rules, &cx);
        let absorber = Arc::new(Absorber { table, rules });
        let storage = config.storage.clone();
        let journal =
            storage.map(|storage| Arc::new(Journal::new(storage, absorber.clone(), cx.ledger.clone())));
        Ok(Self {
            config,
            base: cx.base,
            absorber,
            succession: TableSuccession::of(predecessors),
            journal,
            next: cx.next,
            ledger: cx.ledger,
            ticker: Ticker::default(),
        })
    }

    /// Takes over the state of the replaced instances. None has pushes under way.
    async fn take_over(&self) -> Result<(), ComponentError> {
        let taken = self.succession.take_over(&self.absorber.table).await;
        let taken = taken.map_err(|error| {
            let message = format!("the totals of the replaced instance can't be taken over: {error}");
            self.base.error(message)
        })?;
        if let Some(taken) = taken {
            tracing::info!(
                component = &*self.base.path,
                series = taken.series,
                streams = taken.streams,
                begun_at_0 = taken.outdated,
                "the totals of unchanged rules go on"
            );
        }
        Ok(())
    }

    /// Calls `act` with the absorber of the present state. Components that end after a reload may still push here: their
    /// data belongs to the table that has taken over the state.
    fn with_absorber<T>(&self, act: impl FnOnce(&Absorber) -> T) -> T {
        match self.succession.successor(&self.absorber.table) {
            Some(table) => {
                let rules = table.rules().to_vec();
                act(&Absorber { table, rules })
            }
            None => act(&self.absorber),
        }
    }
}

impl Processor for Aggregate {
    fn outputs(&self) -> Vec<OutputDescriptor> {
        let of_rule = |rule: &Rule| {
            let name = match (&rule.output, &rule.name) {
                (Some(output), _) => output.clone(),
                (None, Pattern::Exact(name)) => name.clone(),
                _ => return None,
            };
            OutputDescriptor::new(name, rule.instrument?, &rule.grouping)
        };
        self.absorber.rules.iter().filter_map(of_rule).collect()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        Some(&self.absorber.table)
    }

    /// Only one instance may have the log open.
    fn may_overlap(&self) -> bool {
        self.journal.is_none()
    }

    fn takes_over(&self) -> bool {
        self.succession.takes_over()
    }
}

/// The table of the replaced instance, if a reload leaves rules and limits as they are. Otherwise an empty one, and the
/// tables whose state it takes over at the start. With `storage`, the log restores the state.
fn table(config: &AggregateConfig, rules: &[Rule], cx: &ProcessorContext) -> (Arc<Table>, Vec<Arc<Table>>) {
    let replaced = cx.replaced.iter().filter(|_| config.storage.is_none()).cloned();
    let (predecessors, saved): (Vec<_>, Vec<_>) = replaced.partition(|table| table.can_be_succeeded());
    let newest = predecessors.first().or(saved.first());
    if let Some(table) = newest.filter(|table| table.has_rules_and_limits(rules, config.limits())) {
        return (table.clone(), Vec::new());
    }
    if newest.is_some() && predecessors.is_empty() {
        tracing::warn!(
            component = &*cx.base.path,
            "`storage` is gone, and rules or limits have changed: totals begin at 0"
        );
    }
    let table = Table::new(cx.base.path.clone(), rules.to_vec(), config.limits())
        .with_rule_names(config.rule_names())
        .bounded_by(cx.base.shared.memory.bounds_of_tables())
        .shared_by_sources();
    let table = match &config.storage {
        Some(_) => table.identified_by(stream_id),
        None => table,
    };
    (Arc::new(table), predecessors)
}

#[async_trait]
impl Lifecycle for Aggregate {
    async fn start(&self) -> Result<(), ComponentError> {
        if let Some(journal) = &self.journal {
            journal.open(&self.base).await?;
        }
        self.take_over().await?;
        replica::warn_of_others(&self.base);
        let emitter = Arc::new(Emitter {
            table: self.absorber.table.clone(),
            next: self.next.clone(),
            ledger: self.ledger.clone(),
        });
        let table = self.absorber.table.clone();
        let labels = [("processor", self.base.path.to_string())];
        let (base, absorber, begun) = (self.base.clone(), self.absorber.clone(), Instant::now());
        let (warn_after, reporter) = (self.config.warn_after, anomalies::AnomalyReporter::default());
        let own = self.config.own_rules();
        self.ticker.start(emitter, self.config.interval, move |now| {
            table.expire(now);
            record_metrics(&table.stats(), &labels);
            if begun.elapsed() >= warn_after {
                base.shared
                    .notices
                    .set(&base.path, match_warnings(&absorber, &own));
            }
            collisions::report(&table, &labels[0]);
            reporter.report(&[table.timestamp_anomalies()], &labels[0]);
        });
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.succession.note_stop();
        // The last emission includes the held state.
        if let Some(journal) = &self.journal {
            journal.close().await;
        }
        self.ticker.stop(deadline).await;
    }

    fn opens_log(&self) -> bool {
        self.journal.is_some()
    }
}

impl Consumer for Aggregate {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let mark = flow.mark();
        if let Some(journal) = &self.journal {
            journal.admit(batch, flow)?;
        }
        if self.with_absorber(|absorber| absorber.may_pass(&batch.payload)) {
            self.next.admit(batch, flow).inspect_err(|_| flow.undo_to(mark))
        } else {
            Ok(())
        }
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let rest = match &self.journal {
            Some(journal) => journal.take(&batch, flow),
            None => self.with_absorber(|absorber| {
                let origin = PointOrigin {
                    is_snapshot: batch.snapshot_of.is_some(),
                    lease: batch.lease.clone(),
                };
                absorber.take(&batch.payload, unix_now(), origin, &self.ledger, flow)
            }),
        };
        if let Some(rest) = rest {
            self.next.consume(batch.with(rest), flow);
        }
    }

    fn absorbs(&self) -> bool {
        true
    }
}

/// Warnings about rules that have matched nothing.
fn match_warnings(absorber: &Absorber, own: &[(usize, usize)]) -> Vec<String> {
    let of_rule = |(index, at): &(usize, usize)| {
        let rule = absorber.rules.get(*at)?;
        let name = format!("rules[{index}]");
        Some(
            absorber
                .table
                .match_tracker(*at)?
                .warnings(&name, rule.name.text()),
        )
    };
    own.iter().filter_map(of_rule).flatten().collect()
}

/// Records the size of the table in the gateway's own metrics.
fn record_metrics(stats: &Stats, labels: &[(&'static str, String); 1]) {
    let holds = [
        ("tidegate_aggregate_series", stats.series),
        ("tidegate_aggregate_bytes", stats.bytes),
        ("tidegate_aggregate_streams", stats.streams),
        ("tidegate_aggregate_sources", stats.sources),
    ];
    for (name, value) in holds {
        metrics::gauge!(name, labels).set(value as f64);
    }
    let counts = [
        ("tidegate_aggregate_expired_series_total", stats.expired_series),
        (
            "tidegate_aggregate_refused_quantiles_total",
            stats.refused_quantiles,
        ),
    ];
    for (name, value) in counts {
        metrics::counter!(name, labels).absolute(value);
    }
    for (overflow, streams) in Overflow::ALL.iter().zip(stats.overflowed_streams) {
        let [processor] = labels.clone();
        let labels = [processor, ("reason", overflow.name().to_owned())];
        metrics::counter!("tidegate_aggregate_overflowed_streams_total", &labels).absolute(streams);
    }
}

#[cfg(test)]
mod tests;
