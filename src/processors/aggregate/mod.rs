//! `aggregate`: events and points to counters, gauges and histograms by declared rules.
//!
//! What a rule takes ends here: it is part of the state before the push returns (and is gone when the process is
//! killed). The state is a table that exporters and the admin API read live; every `interval` its series are pushed
//! on for exporters that can't read tables. What no rule takes passes unchanged.

pub mod config;
mod nixl;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tidegate_engine::{Events, Pattern, Point, Rule, Table, UnixNanos};

use self::config::Config;
use super::emit::{Emitter, Pace};
use crate::batch::wire::{
    self,
    points::{PointVisitor, WirePoint},
};
use crate::batch::{Batch, Encoded, Payload, Points, Signal};
use crate::component::unix_now;
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, Factory, Flow, Ledger, Lifecycle, Made, Processor,
    ProcessorContext, ProcessorFactory, Reason, Refused, Stability,
};

/// The factory of `aggregate`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "aggregate",
    aliases: &[],
    signals: &[(Signal::Metrics, Stability::Beta)],
    help: "events and points to counters, gauges and histograms, across sources, resources and batches",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| Ok(Arc::new(Aggregate::new(settings.get(), cx)?)),
};

struct Aggregate {
    config: Arc<Config>,
    base: Context,
    /// The names that some rule may take; what has none of them need not be looked at.
    rules: Vec<Rule>,
    table: Arc<Table>,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
    pace: Pace,
}

impl Aggregate {
    fn new(config: Arc<Config>, cx: ProcessorContext) -> Result<Self, ComponentError> {
        let rules = config.rules().map_err(|error| cx.base.error(error.to_string()))?;
        let owner = format!("{}@{}", cx.base.path, cx.pipeline);
        let table = Arc::new(Table::new(owner, rules.clone(), config.limits()));
        Ok(Self {
            config,
            base: cx.base,
            rules,
            table,
            next: cx.next,
            ledger: cx.ledger,
            pace: Pace::default(),
        })
    }

    fn takes(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name.matches(name))
    }

    fn take_events(&self, events: &Events) -> Option<Events> {
        let absorbed = self.table.absorb(events);
        self.ledger.absorb(absorbed.absorbed);
        self.ledger.drop_items(Reason::Invalid, absorbed.invalid);
        self.ledger.drop_items(Reason::Limit, absorbed.limited);
        absorbed.unmatched
    }

    /// Takes what rules take; gives the rest.
    fn take_points(&self, points: &[Point], flow: &mut Flow) -> Vec<Point> {
        let now = unix_now();
        let passes = |point: &&Point| {
            let outcome = self.table.observe(point, now);
            self.ledger.settle(outcome, &point.series.metric.name, flow)
        };
        points.iter().filter(passes).cloned().collect()
    }

    fn take_encoded(&self, encoded: &Encoded, flow: &mut Flow) -> Option<Payload> {
        let mut taking = Taking {
            aggregate: self,
            now: unix_now(),
            taken: 0,
            flow,
        };
        match wire::points::visit(encoded, &mut taking) {
            Ok(rest) if rest.parts.is_empty() => None,
            Ok(rest) => Some(rest.into()),
            Err(_) => {
                self.ledger
                    .drop_items(Reason::Invalid, encoded.items().saturating_sub(taking.taken));
                None
            }
        }
    }

    /// Takes what rules take; gives what is to be passed on.
    fn take(&self, payload: &Payload, flow: &mut Flow) -> Option<Payload> {
        match payload {
            Payload::Events(events) => self.take_events(events).map(Payload::from),
            Payload::Encoded(encoded) => self.take_encoded(encoded, flow),
            Payload::Points(points) => {
                let rest = self.take_points(&points.points, flow);
                match rest.len() {
                    all if all == points.points.len() => Some(points.clone().into()),
                    0 => None,
                    _ => Some(unread(rest)),
                }
            }
        }
    }

    /// Whether a part of the batch may have to be passed on.
    fn may_pass(&self, payload: &Payload) -> bool {
        let filtered = self
            .rules
            .iter()
            .any(|rule| rule.inputs.is_some() || !rule.attributes.0.is_empty());
        match payload {
            Payload::Events(events) if !filtered => {
                events.schema.kinds.iter().any(|kind| !self.takes(&kind.name))
            }
            _ => true,
        }
    }
}

/// Takes points out of a request.
struct Taking<'a> {
    aggregate: &'a Aggregate,
    now: UnixNanos,
    taken: usize,
    flow: &'a mut Flow,
}

impl PointVisitor for Taking<'_> {
    fn wants(&mut self, name: &str) -> bool {
        self.aggregate.takes(name)
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let table = &self.aggregate.table;
        let outcome = table.observe_as(point.key, point.sample, self.now, &mut || (point.series)());
        let passes = self.aggregate.ledger.settle(outcome, point.name, self.flow);
        self.taken += usize::from(!passes);
        passes
    }
}

/// Points that are no longer what their table shows.
fn unread(points: Vec<Point>) -> Payload {
    let points = points.into();
    Points { points, table: None }.into()
}

impl Processor for Aggregate {
    fn makes(&self) -> Vec<Made> {
        let of_rule = |rule: &Rule| {
            let name = match (&rule.output, &rule.name) {
                (Some(output), _) => output.clone(),
                (None, Pattern::Exact(name)) => name.clone(),
                _ => return None,
            };
            Made::new(name, rule.instrument?, &rule.grouping)
        };
        self.rules.iter().filter_map(of_rule).collect()
    }
}

#[async_trait]
impl Lifecycle for Aggregate {
    async fn start(&self) -> Result<(), ComponentError> {
        self.base.shared.tables.add(self.table.clone());
        let emitter = Arc::new(Emitter {
            table: self.table.clone(),
            next: self.next.clone(),
            ledger: self.ledger.clone(),
        });
        emitter.announce();
        let table = self.table.clone();
        self.pace
            .start(emitter, self.config.interval, move |now| table.expire(now));
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.pace.stop(deadline).await;
        self.base.shared.tables.remove(&self.table);
    }
}

impl Consumer for Aggregate {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        match self.may_pass(&batch.payload) {
            true => self.next.admit(batch, flow),
            false => Ok(()),
        }
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        if let Some(rest) = self.take(&batch.payload, flow) {
            self.next.consume(batch.with(rest), flow);
        }
    }
}

#[cfg(test)]
mod tests;
