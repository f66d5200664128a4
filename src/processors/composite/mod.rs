// SPDX-License-Identifier: Apache-2.0

//! `composite`: declared values of passing data. A value is a function over a window of each series, combined
//! across series.
//!
//! All data passes unchanged. Before `aggregate` it sees every single event, after it only snapshots. Each value
//! can be read at any time (admin API, live tables), and is pushed on as a gauge at every `interval`. Watchers are
//! notified when it changes or crosses a threshold.
//!
//! If a reload replaces the processor, composites with equal declarations go on in the new one (`kept`).

mod arrived;
pub mod config;
mod expression;
mod kept;
mod threshold;
mod webhook;
mod windows;

use std::sync::{Arc, Once};
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_engine::{
    BadPattern, Budget, Composite, CompositeSet, Instrument, Key, Limits, Table, UnixNanos,
};
use tokio::task::JoinHandle;

use self::arrived::ArrivedNames;
use self::config::CompositeProcessorConfig;
use self::kept::{CompositesState, kept_of, replaced, watched_of};
use self::webhook::Webhook;
use self::windows::WindowLog;
use super::emit::{Emitter, Ticker};
use crate::batch::wire::{
    self,
    points::{PointVisitor, WirePoint},
};
use crate::batch::{Batch, Payload, Signal};
use crate::component::unix_now;
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, ErrorDoc, Factory, Flow, Ledger, Lifecycle,
    OutputDescriptor, Processor, ProcessorContext, ProcessorFactory, Refused, Stability, anomalies,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::watch::Watched;

/// The errors of `composite`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The queue of a webhook is full. A crossing of a threshold is not sent.",
        "a crossing was not sent",
        "Check the address of the webhook, or raise its queue.",
    ),
    ErrorDoc::logged(
        "Another version wrote the windows in the storage.",
        "saved windows have another version and are ignored",
        "You need not do anything: the windows fill again.",
    ),
];

/// The factory of `composite`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "composite",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "computes min, avg, max, sum, count, rate, last or a quantile of metrics over a window, readable at any time",
    errors: &[ERRORS, DELIVERY_ERRORS],
    config: ConfigType::of::<CompositeProcessorConfig>(),
    build: |settings, cx| Ok(Arc::new(Composites::new(settings.get(), cx)?)),
};

struct Composites {
    config: Arc<CompositeProcessorConfig>,
    base: Context,
    set: Arc<CompositeSet>,
    arrived: Arc<ArrivedNames>,
    first_batch: Once,
    table: Arc<Table>,
    windows: Option<Arc<WindowLog>>,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
    ticker: Ticker,
    /// What the next instance goes on with.
    state: Arc<CompositesState>,
    webhooks: Vec<Webhook>,
    /// The tasks that read for watchers and compute expressions.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Composites {
    fn new(config: Arc<CompositeProcessorConfig>, cx: ProcessorContext) -> Result<Self, ComponentError> {
        let shared = &cx.base.shared;
        let declarations = config.composites.iter().map(|one| one.declaration(shared));
        let declarations: Vec<_> = declarations
            .collect::<Result<_, BadPattern>>()
            .map_err(|error| cx.base.error(error.to_string()))?;
        let before = replaced(shared, &cx.replaced);
        let kept: Vec<_> = declarations.iter().map(|one| kept_of(&before, one)).collect();
        // All composites of a processor together may take as much memory as a table.
        let known = kept.iter().flatten().next();
        let budget = match known {
            Some(watched) => watched.composite().budget().clone(),
            None => Arc::new(Budget::of(shared.memory.bounds_of_tables())),
        };
        let list = declarations.into_iter().zip(&kept);
        let list: Vec<_> = list
            .map(|(declaration, kept)| match kept {
                Some(watched) => watched.composite().clone(),
                None => Arc::new(Composite::new(declaration).bounded_by(budget.clone())),
            })
            .collect();
        let table = Arc::new(Table::new(cx.base.path.clone(), Vec::new(), Limits::default()));
        let (mut watched, mut webhooks) = (Vec::new(), Vec::new());
        for (composite, options) in list.iter().zip(&config.composites) {
            table.attach(composite.clone());
            let thresholds = options.thresholds();
            let one = watched_of(&before, composite, &thresholds)
                .unwrap_or_else(|| Arc::new(Watched::new(composite.clone(), thresholds)));
            for threshold in &options.thresholds {
                if let (Some(webhook), Some(named)) = (&threshold.webhook, threshold.threshold()) {
                    webhooks.push(Webhook::new(webhook, &cx.base, one.clone(), named.name)?);
                }
            }
            watched.push(one);
        }
        let future = (&config.future).into();
        let set = CompositeSet::new(list).with_future(future);
        let set = Arc::new(match before.first() {
            Some(before) => set.succeeding(before.set()),
            None => set,
        });
        let log = |id: String| {
            let kept = kept.iter().flatten().map(|watched| watched.composite().clone());
            Arc::new(WindowLog::new(id, cx.base.path.clone(), set.clone()).keeping(kept.collect()))
        };
        let state = CompositesState::of(shared, table.clone(), set.clone(), watched);
        Ok(Self {
            windows: config.storage.clone().map(log),
            config,
            base: cx.base,
            state,
            webhooks,
            tasks: Mutex::default(),
            set,
            arrived: Arc::new(ArrivedNames::new()),
            first_batch: Once::new(),
            table,
            next: cx.next,
            ledger: cx.ledger,
            ticker: Ticker::default(),
        })
    }

    fn observe(&self, batch: &Batch) {
        let now = unix_now();
        // At the start no data comes yet: windows are restored, receivers start later, and senders connect again. Until the first
        // batch, a group can only be a restored one. It is partial, because no source of it has reported.
        self.first_batch.call_once(|| {
            self.set.list().iter().for_each(|one| one.observes_from(now));
        });
        self.arrived.note_payload(&batch.payload);
        match &batch.payload {
            Payload::Events(events) => self.set.observe_events(events),
            Payload::Points(points) => match &batch.lease {
                Some(lease) => self.set.observe_leased(&points.points, lease, now),
                None => self.set.observe_all(&points.points, now),
            },
            Payload::Encoded(encoded) => {
                // Components that need the data refuse it if it is unreadable. Here it only passes.
                let mut observing = Observing {
                    set: &self.set,
                    arrived: &self.arrived,
                    now,
                };
                let _ = wire::points::visit(encoded, &mut observing);
            }
        }
    }
}

/// Warnings about composites that have matched nothing.
fn match_warnings(set: &CompositeSet) -> Vec<String> {
    let of_one = |composite: &Arc<Composite>| {
        let declaration = composite.declaration();
        let metric = match &declaration.expression {
            Some(expression) => &expression.text,
            None => declaration.metric.text(),
        };
        let subject = format!("the composite `{}`", declaration.name);
        composite.match_tracker().warnings(&subject, metric)
    };
    set.list().iter().flat_map(of_one).collect()
}

/// Warnings about groups that exceed a limit, which are counted.
fn shortfalls(set: &CompositeSet, processor: &str) -> Vec<String> {
    for composite in set.list() {
        let counts = [
            ("groups", composite.overflowed_groups()),
            ("series", composite.unseen_points()),
            ("bytes", composite.without_memory()),
        ];
        for (reason, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let labels = [
                ("processor", processor.to_owned()),
                ("composite", composite.declaration().name.to_string()),
                ("reason", reason.to_owned()),
            ];
            metrics::counter!("tidegate_composite_overflows_total", &labels).absolute(count);
        }
    }
    let labels = [("processor", processor.to_owned())];
    metrics::counter!("tidegate_composite_future_points_total", &labels).absolute(set.refused_points());
    set.list()
        .iter()
        .flat_map(|composite| composite.shortfalls())
        .collect()
}

/// Logs the reason why a composite has no value, if it is new.
fn log_error(composite: &Composite, logged: &mut Option<Arc<str>>, now: UnixNanos) {
    let error = composite.error(now);
    if let Some(error) = error.as_ref().filter(|error| logged.as_ref() != Some(error)) {
        tracing::error!(composite = &*composite.declaration().name, "{error}");
    }
    *logged = error.or(logged.take());
}

/// Observes the points of a request.
struct Observing<'a> {
    set: &'a CompositeSet,
    arrived: &'a ArrivedNames,
    now: UnixNanos,
}

impl PointVisitor for Observing<'_> {
    fn wants(&mut self, name: &str) -> bool {
        self.arrived.note(name);
        self.set.wants(name)
    }

    fn resource(&mut self, key: Key) {
        self.set.note_arrival(key, self.now);
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let resource = Some(point.resource);
        let series = &mut || (point.series)();
        self.set
            .observe_as(point.name, point.key, resource, point.sample, self.now, series);
        true
    }
}

impl Processor for Composites {
    fn outputs(&self) -> Vec<OutputDescriptor> {
        let of = |composite: &Arc<Composite>| {
            let declared = composite.declaration();
            OutputDescriptor::new(declared.name.clone(), Instrument::Gauge, &declared.grouping)
        };
        self.set.list().iter().filter_map(of).collect()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        Some(&self.table)
    }

    /// Readers find composites by their names.
    fn may_overlap(&self) -> bool {
        false
    }
}

#[async_trait]
impl Lifecycle for Composites {
    async fn start(&self) -> Result<(), ComponentError> {
        let shared = &self.base.shared;
        if let Some(windows) = &self.windows {
            windows.open(&self.base).await?;
        }
        let mut tasks = Vec::new();
        for webhook in &self.webhooks {
            webhook.start().await?;
        }
        for (composite, options) in self.set.list().iter().zip(&self.config.composites) {
            if let Some(query) = options.query() {
                let interval = self.config.interval;
                tasks.push(expression::start(composite, query, shared, interval));
            }
        }
        for watched in self.state.watched() {
            let watched = watched.clone();
            watched.hold_crossings(false);
            tasks.push(tokio::spawn(async move { watched.keep_looking().await }));
        }
        *self.tasks.lock() = tasks;
        let emitter = Arc::new(Emitter {
            table: self.table.clone(),
            next: self.next.clone(),
            ledger: self.ledger.clone(),
        });
        let (set, windows) = (self.set.clone(), self.windows.clone());
        let arrived = self.arrived.clone();
        let logged = Mutex::new(vec![None; set.list().len()]);
        let reporter = anomalies::AnomalyReporter::default();
        let (base, begun, warn_after) = (self.base.clone(), Instant::now(), self.config.warn_after);
        self.ticker.start(emitter, self.config.interval, move |now| {
            set.expire(now);
            let unsaved = windows.as_ref().and_then(|windows| windows.save(now));
            let mut logged = logged.lock();
            for (composite, logged) in set.list().iter().zip(logged.iter_mut()) {
                log_error(composite, logged, now);
            }
            let anomalies: Vec<_> = set
                .list()
                .iter()
                .map(|composite| composite.timestamp_anomalies())
                .collect();
            reporter.report(&anomalies, &("processor", base.path.to_string()));
            arrived.suggest(set.list());
            let mut notices = shortfalls(&set, &base.path);
            notices.extend(unsaved.map(|why| format!("storage: {why}: a restart begins new windows")));
            if begun.elapsed() >= warn_after {
                notices.extend(match_warnings(&set));
            }
            base.shared.notices.set(&base.path, notices);
        });
        self.state.note_start();
        Ok(())
    }

    fn composites(&self) -> &[Arc<Watched>] {
        self.state.watched()
    }

    async fn stop(&self, deadline: Instant) {
        self.ticker.stop(deadline).await;
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(JoinHandle::abort);
        // They may go on in another instance, which has webhooks of its own. If a slow disk holds up this stop, only those send.
        for watched in self.state.watched() {
            watched.hold_crossings(true);
        }
        self.webhooks.iter().for_each(Webhook::begin_stop);
        if let Some(windows) = &self.windows {
            windows.close().await;
        }
        for webhook in &self.webhooks {
            webhook.stop(deadline).await;
        }
    }

    fn opens_log(&self) -> bool {
        self.windows.is_some() || self.webhooks.iter().any(Webhook::opens_log)
    }
}

impl Consumer for Composites {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.observe(&batch);
        self.next.consume(batch, flow);
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

#[cfg(test)]
mod tests;
