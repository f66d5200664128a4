//! How composites see what passes: events folded once for all of them, points by their streams' increases.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::window::Moments;
use super::{Composite, SharedGroup};
use crate::fold::{Folded, Folds};
use crate::key::Key;
use crate::progress::{Change, Progress, Rejection, Sample};
use crate::streams::lock;
use crate::{
    Attributes, Data, Events, Instrument, Lease, Point, Resource, Schema, Series, Source, UnixNanos,
};

/// Points that come so much out of order still count, when they come.
const LATENESS_NS: u64 = 60_000_000_000;

/// What a composite keeps of a stream of points.
#[derive(Debug)]
pub(super) struct PointStream {
    data: Data,
    progress: Progress,
    /// `None`: its attributes are not asked for.
    group: Option<SharedGroup>,
    lease: Arc<Lease>,
}

/// What a composite makes of the kinds of a source of events.
#[derive(Debug)]
pub(super) struct SourceKinds {
    pub(super) lease: Arc<Lease>,
    schema: Arc<Schema>,
    kinds: Vec<Option<SharedGroup>>,
}

/// The composites of one place in a pipeline.
#[derive(Debug)]
pub struct CompositeSet {
    list: Vec<Arc<Composite>>,
    spare: Mutex<Vec<Folds>>,
}

impl CompositeSet {
    /// All of `list` look at what is observed.
    pub fn new(list: Vec<Arc<Composite>>) -> Self {
        Self {
            list,
            spare: Mutex::default(),
        }
    }

    /// The composites.
    pub fn list(&self) -> &[Arc<Composite>] {
        &self.list
    }

    /// Whether any of them looks at metrics of this name.
    pub fn wants(&self, name: &str) -> bool {
        self.list.iter().any(|composite| composite.wants(name))
    }

    /// Looks at events. A source is known from its first batch on, even an empty one.
    pub fn observe_events(&self, events: &Events) {
        let plans: Vec<Vec<Option<SharedGroup>>> =
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
            for group in plans.iter().filter_map(|plan| plan.get(kind)?.as_ref()) {
                lock(group).add(events.observed, &moments);
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

    /// Looks at a decoded point.
    pub fn observe(&self, point: &Point, now: UnixNanos) {
        let sample = Sample {
            start: point.start,
            time: point.time,
            value: &point.value,
            exemplars: &point.exemplars,
        };
        let name = &point.series.metric.name;
        if self.wants(name) {
            self.observe_as(name, Key::of(&point.series), sample, now, &mut || {
                Some(point.series.clone())
            });
        }
    }

    /// Looks at a point of metric `name`, of the series that `key` stands for; see `Table::observe_as`.
    pub fn observe_as(
        &self,
        name: &str,
        key: Key,
        mut sample: Sample<'_>,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        if sample.time == 0 {
            sample.time = now;
        }
        let mut series = None;
        let mut identify = || {
            series = series.take().or_else(&mut *identify);
            series.clone()
        };
        for composite in self.list.iter().filter(|composite| composite.wants(name)) {
            composite.observe_as(key, &sample, now, &mut identify);
        }
    }
}

/// Adds every single event to the distributions of its group.
fn sketch(events: &Events, plan: &[Option<SharedGroup>]) {
    let is_wanted = |at: &usize| {
        let kind = events.kinds.get(*at).map(|kind| usize::from(*kind));
        kind.and_then(|kind| plan.get(kind)?.as_ref()).is_some()
    };
    let mut wanted: Vec<usize> = (0..events.len()).filter(is_wanted).collect();
    wanted.sort_by_key(|at| events.kinds.get(*at));
    for run in wanted.chunk_by(|a, b| events.kinds.get(*a) == events.kinds.get(*b)) {
        let kind = run.first().and_then(|at| events.kinds.get(*at));
        let Some(group) = kind.and_then(|kind| plan.get(usize::from(*kind))?.as_ref()) else {
            continue;
        };
        lock(group).sketch(events.observed, |sketch| {
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
    fn wants(&self, name: &str) -> bool {
        self.declaration.metric.matches(name)
    }

    /// The group of every kind that this composite looks at; empty where it looks at none.
    fn plan(&self, events: &Events) -> Vec<Option<SharedGroup>> {
        let mut sources = lock(&self.sources);
        let known = sources.entry(events.source.id).or_insert_with(|| SourceKinds {
            lease: events.source.lease.clone(),
            schema: Arc::default(),
            kinds: Vec::new(),
        });
        if !Arc::ptr_eq(&known.schema, &events.schema) {
            for kind in events.schema.kinds.iter().skip(known.kinds.len()) {
                let group = self.group_of_kind(&events.source, kind);
                known.kinds.push(group);
            }
            known.schema = events.schema.clone();
        }
        match known.kinds.iter().any(Option::is_some) {
            true => known.kinds.clone(),
            false => Vec::new(),
        }
    }

    fn group_of_kind(&self, source: &Source, kind: &crate::Kind) -> Option<SharedGroup> {
        let sets = [&kind.attributes, &source.attributes, &source.resource.attributes];
        if !self.wants(&kind.name) || !self.declaration.attributes.matches(&sets) {
            return None;
        }
        let own = source.attributes.merge(&kind.attributes);
        let group = self.group(self.group_attributes(&source.resource, &own));
        lock(&group).join(&source.lease);
        Some(group)
    }

    pub(super) fn group_attributes(&self, resource: &Arc<Resource>, attributes: &Attributes) -> Attributes {
        let (resource, attributes) = self.declaration.grouping.apply(resource, attributes);
        resource.attributes.merge(&attributes)
    }

    fn observe_as(
        &self,
        key: Key,
        sample: &Sample<'_>,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        let known = self
            .streams
            .known(key, now, |stream| self.step(stream, sample, now));
        if known.is_some() {
            return;
        }
        let Some(series) = identify() else {
            return;
        };
        let mut first = false;
        let home = self.streams.learn(key, Key::of(&series), now, || {
            first = true;
            self.stream(&series, now)
        });
        match home {
            Some(_) if first && self.is_history(sample, series.metric.data, now) => {
                self.streams.known(key, now, |stream| {
                    stream.lease.touch(now);
                    // The total before we looked is only where increases are counted from.
                    let _ = stream.progress.advance(stream.data, sample, LATENESS_NS);
                });
            }
            Some(home) => drop(
                self.streams
                    .known(home, now, |stream| self.step(stream, sample, now)),
            ),
            None => drop(self.unseen.fetch_add(1, Relaxed)),
        }
    }

    /// Whether a first point tells of a time before the window.
    fn is_history(&self, sample: &Sample<'_>, data: Data, now: UnixNanos) -> bool {
        let cumulative = data != Data::Gauge && data.temporality() == crate::Temporality::Cumulative;
        cumulative && (sample.start == 0 || sample.start < self.cut.begin(now))
    }

    fn stream(&self, series: &Arc<Series>, now: UnixNanos) -> PointStream {
        let lease = lock(&self.leases)
            .entry(Key::of_value(&series.resource))
            .or_insert_with(|| Arc::new(Lease::new(self.declaration.lease, now)))
            .clone();
        let sets = [&series.attributes, &series.resource.attributes];
        let group = self.declaration.attributes.matches(&sets).then(|| {
            let group = self.group(self.group_attributes(&series.resource, &series.attributes));
            lock(&group).join(&lease);
            group
        });
        PointStream {
            data: series.metric.data,
            progress: Progress::default(),
            group,
            lease,
        }
    }

    fn step(&self, stream: &mut PointStream, sample: &Sample<'_>, now: UnixNanos) {
        stream.lease.touch(now);
        let Some(group) = &stream.group else {
            return;
        };
        let change: Result<Change<'_>, Rejection> = stream.progress.advance(stream.data, sample, LATENESS_NS);
        let Ok(change) = change else { return };
        if let Some(moments) = moments(&change) {
            let mut group = lock(group);
            group.add(now, &moments);
            group.sketch(now, |sketch| match &change {
                Change::Number(number) => sketch.add(number.as_f64(), 1.0),
                Change::Histogram(increase) => sketch.add_explicit(increase),
                Change::Exponential(increase) => sketch.add_exponential(increase),
                // Its mean, as many times.
                Change::Summary(_) | Change::End => sketch.add(moments.last, moments.count),
            });
            self.version.fetch_add(1, Relaxed);
        }
    }
}

/// What an increase or a gauge's value adds to a window; `None` when it adds nothing.
fn moments(change: &Change<'_>) -> Option<Moments> {
    let (count, sum, (min, max)) = match change {
        Change::Number(number) => return Some(Moments::of(number.as_f64())),
        Change::Histogram(increase) => (increase.count, increase.sum, increase.range()),
        Change::Exponential(increase) => (increase.count, increase.sum, increase.range()),
        Change::Summary(increase) => (increase.count, Some(increase.sum), (None, None)),
        Change::End => return None,
    };
    let sum = sum.unwrap_or(f64::NAN);
    let mean = sum / count as f64;
    (count > 0).then(|| Moments {
        count: count as f64,
        sum,
        min: min.unwrap_or(mean),
        max: max.unwrap_or(mean),
        last: mean,
    })
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
