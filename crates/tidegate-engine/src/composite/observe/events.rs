// SPDX-License-Identifier: Apache-2.0

//! Events of a source: folded once for all composites, then added to the groups of their kinds.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::group::CompositeGroup;
use super::super::member::MemberId;
use super::super::source::Liveness;
use super::super::window::Moments;
use super::super::{Composite, SharedGroup};
use super::{CompositeSet, Plan};
use crate::fold::Folded;
use crate::streams::lock;
use crate::{Attributes, Events, Instrument, Schema, Source, UnixNanos};

/// The kinds of a source of events, as a composite uses them.
#[derive(Debug)]
pub(in super::super) struct SourceKinds {
    liveness: Liveness,
    source: Arc<Source>,
    schema: Arc<Schema>,
    kinds: Vec<Option<KindTarget>>,
}

/// The target of the events of a kind.
#[derive(Clone, Debug)]
struct KindTarget {
    group: SharedGroup,
    /// The series of its own; `None`: they are pooled.
    member: Option<MemberId>,
    is_level: bool,
}

impl SourceKinds {
    pub(in super::super) fn is_over(&self, now: UnixNanos, memory_ns: u64) -> bool {
        self.liveness.is_gone() || self.liveness.is_forgotten(now, memory_ns)
    }

    /// The address of its liveness.
    pub(in super::super) fn address(&self) -> usize {
        self.liveness.address()
    }

    /// The attributes of the source.
    pub(in super::super) fn attributes(&self) -> Attributes {
        self.source.resource.attributes.merge(&self.source.attributes)
    }
}

impl CompositeSet {
    /// Looks at events. A source is known from its first batch on, even an empty one.
    pub fn observe_events(&self, events: &Events) {
        let plans: Vec<Vec<Option<KindTarget>>> =
            self.list.iter().map(|composite| composite.plan(events)).collect();
        if events.is_empty() || plans.iter().all(Vec::is_empty) {
            return;
        }
        let mut folds = lock(&self.spare).pop().unwrap_or_default();
        folds.grow_detailed(events.schema.kinds.len());
        let kinds = &events.schema.kinds;
        folds.add(events, |kind| {
            kinds
                .get(kind)
                .is_none_or(|kind| kind.instrument != Instrument::Counter)
        });
        folds.drain(|kind, folded, _| {
            let moments = Moments::from(folded);
            for (composite, plan) in self.list.iter().zip(&plans) {
                if let Some(Some(place)) = plan.get(kind) {
                    let is_sketched = composite.declaration.is_sketched();
                    place.add(&mut lock(&place.group), events.observed, &moments, is_sketched);
                }
            }
        });
        lock(&self.spare).push(folds);
        for (composite, plan) in self.list.iter().zip(&plans).filter(|(_, plan)| !plan.is_empty()) {
            if composite.declaration.is_sketched() {
                sketch(events, plan);
            }
            composite.version.fetch_add(1, Relaxed);
        }
    }
}

/// Adds every single event to the distributions of its group.
fn sketch(events: &Events, plan: &[Option<KindTarget>]) {
    let is_wanted = |at: &usize| {
        let kind = events.kinds.get(*at).map(|kind| usize::from(*kind));
        kind.and_then(|kind| plan.get(kind)?.as_ref()).is_some()
    };
    let mut wanted: Vec<usize> = (0..events.len()).filter(is_wanted).collect();
    wanted.sort_by_key(|at| events.kinds.get(*at));
    for run in wanted.chunk_by(|a, b| events.kinds.get(*a) == events.kinds.get(*b)) {
        let kind = run.first().and_then(|at| events.kinds.get(*at));
        let Some(place) = kind.and_then(|kind| plan.get(usize::from(*kind))?.as_ref()) else {
            continue;
        };
        lock(&place.group).sketch_of(place.member, events.observed, |sketch| {
            for at in run {
                let weights = events.weights.as_ref();
                let weight = weights.and_then(|weights| weights.get(*at)).copied();
                if let Some(value) = events.values.get(*at) {
                    sketch.add(value, weight.unwrap_or(1.0));
                }
            }
        });
    }
}

impl Composite {
    /// The target of every kind that this composite selects; empty if it selects none.
    fn plan(&self, events: &Events) -> Vec<Option<KindTarget>> {
        let mut sources = lock(&self.inputs.sources);
        let known = sources.entry(events.source.id).or_insert_with(|| SourceKinds {
            liveness: Liveness::Events(events.source.lease.clone()),
            source: events.source.clone(),
            schema: Arc::default(),
            kinds: Vec::new(),
        });
        if !Arc::ptr_eq(&known.schema, &events.schema) {
            for kind in events.schema.kinds.iter().skip(known.kinds.len()) {
                let place = self.target_of_kind(&events.source, &known.liveness, kind);
                known.kinds.push(place);
            }
            known.schema = events.schema.clone();
        }
        if known.kinds.iter().any(Option::is_some) {
            known.kinds.clone()
        } else {
            Vec::new()
        }
    }

    /// Events are pooled unless each series is to have a value of its own; then gauges keep their level.
    fn target_of_kind(
        &self,
        source: &Source,
        liveness: &Liveness,
        kind: &crate::EventKind,
    ) -> Option<KindTarget> {
        let sets = [&kind.attributes, &source.attributes, &source.resource.attributes];
        if !self.wants(&kind.name) || !self.declaration.attributes.matches(&sets) {
            return None;
        }
        let own = source.attributes.merge(&kind.attributes);
        let attributes = self.group_attributes(&source.resource, &own);
        let is_level = self.declaration.is_by_series() && kind.instrument == Instrument::Gauge;
        let refusal = is_level.then(|| self.declaration.refusal(&kind.name)).flatten();
        let is_refused = refusal.is_some();
        if let Some(why) = refusal {
            self.note_refusal(why);
        }
        let plan = match (self.declaration.is_by_series(), is_level) {
            (false, _) => None,
            (true, true) => Some(Plan::Level(None)),
            (true, false) => Some(Plan::Own { is_steady: false }),
        };
        let (group, member) = self.within(&attributes, |group| match &plan {
            Some(plan) => Some(group.enter(liveness, self.kind(plan, true))),
            None => {
                group.join(liveness);
                None
            }
        });
        (!is_refused).then_some(KindTarget {
            group,
            member,
            is_level,
        })
    }
}

impl KindTarget {
    fn add(&self, group: &mut CompositeGroup, now: UnixNanos, moments: &Moments, is_sketched: bool) {
        match self.member {
            Some(member) if self.is_level => group.level(member, now, moments),
            Some(member) => group.observe(member, now, moments, |_| (), is_sketched),
            None => group.add(now, moments, is_sketched),
        }
    }
}

impl From<Folded> for Moments {
    fn from(folded: Folded) -> Self {
        Self {
            count: folded.count,
            sum: folded.sum.as_f64(),
            min: folded.min,
            max: folded.max,
            last: folded.last.as_f64(),
        }
    }
}
