//! What the rules take of a batch, and what of it passes.

use std::sync::Arc;

use tidegate_engine::{Events, Point, Rule, Session, Table, UnixNanos};

use crate::batch::wire::points::{self, PointVisitor, WirePoint};
use crate::batch::{Encoded, Payload, Points};
use crate::component::{Flow, Ledger, Reason, unix_now};

/// The way into a table.
pub(super) struct Intake {
    pub(super) table: Arc<Table>,
    /// The names that some rule may take; what has none of them need not be looked at.
    pub(super) rules: Vec<Rule>,
}

impl Intake {
    fn may_take(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name.matches(name))
    }

    /// Whether a part of the batch may have to be passed on.
    pub(super) fn may_pass(&self, payload: &Payload) -> bool {
        let filtered = self
            .rules
            .iter()
            .any(|rule| rule.inputs.is_some() || !rule.attributes.0.is_empty());
        match payload {
            Payload::Events(events) if !filtered => {
                events.schema.kinds.iter().any(|kind| !self.may_take(&kind.name))
            }
            _ => true,
        }
    }

    /// Takes what rules take, as of `now`; gives what is to be passed on.
    pub(super) fn take(
        &self,
        payload: &Payload,
        now: UnixNanos,
        ledger: &Ledger,
        flow: &mut Flow,
    ) -> Option<Payload> {
        match payload {
            Payload::Events(events) => self.take_events(events, ledger, flow),
            Payload::Encoded(encoded) => {
                let mut taking = Taking {
                    intake: self,
                    session: self.table.session(now),
                    taken: 0,
                    ledger,
                    flow,
                };
                let rest = points::visit(encoded, &mut taking);
                let taken = taking.taken;
                rest_of(rest.map_err(|_| {
                    ledger.drop_items(Reason::Invalid, encoded.items().saturating_sub(taken));
                }))
            }
            Payload::Points(points) => {
                let mut session = self.table.session(now);
                let passes = |point: &Point| {
                    let outcome = session.observe(point);
                    ledger.settle(outcome, &point.series.metric.name, flow)
                };
                points_that(points, passes)
            }
        }
    }

    fn take_events(&self, events: &Events, ledger: &Ledger, flow: &mut Flow) -> Option<Payload> {
        let absorbed = self.table.absorb(events);
        ledger.absorb(absorbed.absorbed);
        ledger.drop_items(Reason::Invalid, absorbed.invalid);
        ledger.drop_items(Reason::Limit, absorbed.limited);
        ledger.settle_future(absorbed.future, flow);
        absorbed.unmatched.map(Payload::from)
    }

    /// What rules do not take; nothing is taken in.
    pub(super) fn rest(&self, payload: &Payload) -> Option<Payload> {
        if !self.may_pass(payload) {
            return None;
        }
        match payload {
            Payload::Events(events) => self.table.unmatched(events).map(Payload::from),
            Payload::Encoded(encoded) => {
                let now = unix_now();
                // What can't be read is found out, and counted, when it is taken.
                rest_of(points::visit(encoded, &mut Sorting { intake: self, now }).map_err(drop))
            }
            Payload::Points(points) => points_that(points, |point| !self.table.takes(&point.series)),
        }
    }
}

fn rest_of(rest: Result<Encoded, ()>) -> Option<Payload> {
    rest.ok().filter(|rest| !rest.parts.is_empty()).map(Payload::from)
}

/// The points of which `keep` says so; the same batch where that is all.
fn points_that(points: &Points, mut keep: impl FnMut(&Point) -> bool) -> Option<Payload> {
    let kept: Vec<Point> = points
        .points
        .iter()
        .filter(|point| keep(point))
        .cloned()
        .collect();
    match kept.len() {
        all if all == points.points.len() => Some(points.clone().into()),
        0 => None,
        _ => {
            // No longer what their table shows.
            let points = kept.into();
            Some(Points { points, table: None }.into())
        }
    }
}

/// Takes points out of a request.
struct Taking<'a> {
    intake: &'a Intake,
    session: Session<'a>,
    taken: usize,
    ledger: &'a Ledger,
    flow: &'a mut Flow,
}

impl PointVisitor for Taking<'_> {
    fn wants(&mut self, name: &str) -> bool {
        let wants = self.intake.may_take(name);
        if !wants {
            // What is walked over now may be long.
            self.session.pause();
        }
        wants
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let outcome = self
            .session
            .observe_as(point.key, point.sample, &mut || (point.series)());
        let passes = self.ledger.settle(outcome, point.name, self.flow);
        self.taken += usize::from(!passes);
        passes
    }
}

/// Leaves the points of a request that are not taken.
struct Sorting<'a> {
    intake: &'a Intake,
    now: UnixNanos,
}

impl PointVisitor for Sorting<'_> {
    fn wants(&mut self, name: &str) -> bool {
        self.intake.may_take(name)
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let table = &self.intake.table;
        !table.takes_as(point.key, self.now, &mut || (point.series)())
    }
}
