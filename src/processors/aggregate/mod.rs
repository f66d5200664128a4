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
use tidegate_engine::{Events, Outcome, Point, Rule, Table};

use self::config::Config;
use super::emit::{Emitter, Pace};
use super::names::any_metric;
use crate::batch::{Batch, Encoded, Payload, Points, Signal, convert};
use crate::component::unix_now;
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, Factory, Flow, Ledger, Lifecycle, Processor,
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
    fn take_points(&self, points: &[Point]) -> Vec<Point> {
        let now = unix_now();
        let mut rest = Vec::new();
        for point in points {
            match self.table.observe(point, now) {
                Outcome::Absorbed => self.ledger.absorb(1),
                Outcome::Unmatched => rest.push(point.clone()),
                Outcome::Rejected(rejection) => self.ledger.drop_items(rejection.into(), 1),
            }
        }
        rest
    }

    fn take_encoded(&self, encoded: &Encoded) -> Option<Payload> {
        if !any_metric(encoded, |name| self.takes(name)) {
            return Some(encoded.clone().into());
        }
        let Ok(points) = convert::points(encoded) else {
            self.ledger.drop_items(Reason::Invalid, encoded.items());
            return None;
        };
        let rest = self.take_points(&points);
        match rest.len() {
            0 => None,
            all if all == points.len() => Some(encoded.clone().into()),
            _ => Some(unread(rest)),
        }
    }

    /// Takes what rules take; gives what is to be passed on.
    fn take(&self, payload: &Payload) -> Option<Payload> {
        match payload {
            Payload::Events(events) => self.take_events(events).map(Payload::from),
            Payload::Encoded(encoded) => self.take_encoded(encoded),
            Payload::Points(points) => {
                let rest = self.take_points(&points.points);
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

/// Points that are no longer what their table shows.
fn unread(points: Vec<Point>) -> Payload {
    let points = points.into();
    Points { points, table: None }.into()
}

impl Processor for Aggregate {}

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
        if let Some(rest) = self.take(&batch.payload) {
            self.next.consume(batch.with(rest), flow);
        }
    }
}

#[cfg(test)]
mod tests;
