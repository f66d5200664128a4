// SPDX-License-Identifier: Apache-2.0

//! Splits a batch into the part that the rules take and the part that passes.

use std::sync::Arc;

use tidegate_engine::{Events, Lease, Point, Rule, Session, Table, UnixNanos};

use crate::batch::wire::points::{self, PointVisitor, WirePoint};
use crate::batch::{Encoded, Payload, Points};
use crate::component::{Flow, Ledger, Reason, unix_now};

/// What is known of the points of a batch beside their contents.
#[derive(Clone, Default)]
pub(super) struct PointOrigin {
    /// Whether they are contents of a table.
    pub(super) is_snapshot: bool,
    /// The lease of their source.
    pub(super) lease: Option<Arc<Lease>>,
}

/// The table and its rules.
pub(super) struct Absorber {
    pub(super) table: Arc<Table>,
    /// The rules. Metrics whose names match none of them are not inspected.
    pub(super) rules: Vec<Rule>,
}

impl Absorber {
    fn may_take(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name.matches(name))
    }

    /// Whether a part of the batch may have to pass.
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

    /// Absorbs the part that rules take, as of `now`. Returns the part that passes.
    pub(super) fn take(
        &self,
        payload: &Payload,
        now: UnixNanos,
        origin: PointOrigin,
        ledger: &Ledger,
        flow: &mut Flow,
    ) -> Option<Payload> {
        match payload {
            Payload::Events(events) => self.take_events(events, ledger, flow),
            Payload::Encoded(encoded) => {
                let mut taking = Taking {
                    absorber: self,
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
                let PointOrigin { is_snapshot, lease } = origin;
                let mut session = self.table.session(now).of_snapshot(is_snapshot).of_leased(lease);
                let passes = |point: &Point| {
                    let outcome = session.observe(point);
                    ledger.count_outcome(outcome, &point.series.metric.name, flow)
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
        ledger.drop_future(absorbed.future, flow);
        absorbed.unmatched.map(Payload::from)
    }

    /// The part that no rule takes. Absorbs nothing.
    pub(super) fn rest(&self, payload: &Payload) -> Option<Payload> {
        if !self.may_pass(payload) {
            return None;
        }
        match payload {
            Payload::Events(events) => self.table.unmatched(events).map(Payload::from),
            Payload::Encoded(encoded) => {
                let now = unix_now();
                // Unreadable data is detected and counted when it is absorbed.
                rest_of(points::visit(encoded, &mut Sorting { absorber: self, now }).map_err(drop))
            }
            Payload::Points(points) => points_that(points, |point| !self.table.takes(&point.series)),
        }
    }
}

fn rest_of(rest: Result<Encoded, ()>) -> Option<Payload> {
    rest.ok().filter(|rest| !rest.parts.is_empty()).map(Payload::from)
}

/// The points that `keep` selects. The same batch if these are all points.
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
            let points = kept.into();
            Some(Points { points }.into())
        }
    }
}

/// Absorbs the points of a request.
struct Taking<'a> {
    absorber: &'a Absorber,
    session: Session<'a>,
    taken: usize,
    ledger: &'a Ledger,
    flow: &'a mut Flow,
}

impl PointVisitor for Taking<'_> {
    fn wants(&mut self, name: &str) -> bool {
        let wants = self.absorber.may_take(name);
        if !wants {
            // The next stretch to skip may be long, so other sessions continue.
            self.session.pause();
        }
        wants
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let outcome = self
            .session
            .observe_as(point.key, point.sample, &mut || (point.series)());
        let passes = self.ledger.count_outcome(outcome, point.name, self.flow);
        self.taken += usize::from(!passes);
        passes
    }
}

/// Keeps the points of a request that no rule takes.
struct Sorting<'a> {
    absorber: &'a Absorber,
    now: UnixNanos,
}

impl PointVisitor for Sorting<'_> {
    fn wants(&mut self, name: &str) -> bool {
        self.absorber.may_take(name)
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let table = &self.absorber.table;
        !table.takes_as(point.key, self.now, &mut || (point.series)())
    }
}
