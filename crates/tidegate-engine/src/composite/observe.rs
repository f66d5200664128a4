// SPDX-License-Identifier: Apache-2.0

//! Input of composites: events folded once for all composites, and the increases of points' streams.

mod events;
mod points;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use self::events::SourceKinds;
use self::points::PointStream;
use super::plan::Plan;
use super::source::{PointSource, ReportedState};
use super::{Composite, MEMORY};
use crate::fold::Folds;
use crate::key::{Key, KeyMap};
use crate::lease::nanos;
use crate::stream_tracker::PointSample;
use crate::streams::{Streams, Sweep, lock};
use crate::{
    Future, FutureAction, Lease, Number, Point, Resource, Series, SourceId, TimestampAnomalies, UnixNanos,
    Value, clock,
};

/// Resources of which it is known, by the bytes they were sent as, that a composite follows them.
const MAX_HEARD: usize = 100_000;

/// The gauge that a scrape says its success by: 0 after a failed one, ended when the target has left discovery.
const UP: &str = "up";

/// The sources and streams that feed a composite.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) streams: Streams<PointStream>,
    /// Signs of life of the sources of points, by resource.
    points: Mutex<KeyMap<Arc<PointSource>>>,
    pub(super) sources: Mutex<HashMap<SourceId, SourceKinds>>,
    anomalies: TimestampAnomalies,
    /// The end of the windows that earlier runs saved, by the wall clock; 0: there are none.
    pub(super) restored_until: AtomicU64,
    /// The number of the run that its values are saved under.
    pub(super) saved_run: OnceLock<u64>,
}

impl Inputs {
    pub(super) fn new(max_streams: usize) -> Self {
        Self {
            streams: Streams::new(max_streams, nanos(MEMORY)),
            points: Mutex::default(),
            sources: Mutex::default(),
            anomalies: TimestampAnomalies::default(),
            restored_until: AtomicU64::new(0),
            saved_run: OnceLock::new(),
        }
    }

    /// Removes sources and streams that ended long ago.
    pub(super) fn expire(&self, now: UnixNanos) {
        let memory = nanos(MEMORY);
        let mut sources = lock(&self.sources);
        sources.retain(|_, kinds| !kinds.is_over(now, memory));
        if sources.is_empty() {
            sources.shrink_to_fit();
        }
        drop(sources);
        let mut points = lock(&self.points);
        points.retain(|_, source| {
            Arc::strong_count(source) > 1 || now.saturating_sub(source.touched()) <= memory
        });
        if points.is_empty() {
            points.shrink_to_fit();
        }
        drop(points);
        let is_overdue = |seen| now.saturating_sub(seen) > memory;
        self.streams.expire(now, |stream, seen, _| {
            let forget = is_overdue(seen);
            if forget {
                stream.leave(now);
            }
            Sweep::forget_if(forget)
        });
    }
}

/// The composites of one place in a pipeline.
#[derive(Debug)]
pub struct CompositeSet {
    list: Vec<Arc<Composite>>,
    spare: Mutex<Vec<Folds>>,
    /// Sources of points, by the bytes that their resource was sent as. A set and its successors have the same.
    heard: Arc<Mutex<KeyMap<Vec<Weak<PointSource>>>>>,
    /// The resources of series called `up`, by the series.
    ups: Mutex<KeyMap<Key>>,
    future: Future,
    /// Points from the future that were dropped.
    refused: AtomicU64,
}

impl CompositeSet {
    /// A set in which each composite of `list` sees all input.
    pub fn new(list: Vec<Arc<Composite>>) -> Self {
        Self {
            list,
            spare: Mutex::default(),
            heard: Arc::default(),
            ups: Mutex::default(),
            future: Future::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Sets the policy for points from the future.
    #[must_use]
    pub fn with_future(self, future: Future) -> Self {
        Self { future, ..self }
    }

    /// Makes it a set that replaces `other` and has some of its composites. It knows the sources of these.
    #[must_use]
    pub fn succeeding(self, other: &Self) -> Self {
        let heard = other.heard.clone();
        Self { heard, ..self }
    }

    /// Points from the future that were dropped.
    pub fn refused_points(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The composites.
    pub fn list(&self) -> &[Arc<Composite>] {
        &self.list
    }

    /// Whether any of them looks at metrics of this name.
    pub fn wants(&self, name: &str) -> bool {
        name == UP || self.list.iter().any(|composite| composite.wants(name))
    }

    /// Notes that a source sent something, selected or not. `resource` is the key of its resource's bytes; see
    /// `observe_as`.
    pub fn note_arrival(&self, resource: Key, now: UnixNanos) {
        self.each_source(resource, |source| {
            source.touch(now);
            source.follow(None);
        });
    }

    fn each_source(&self, resource: Key, each: impl FnMut(Arc<PointSource>)) {
        if let Some(sources) = lock(&self.heard).get(&resource) {
            sources.iter().filter_map(Weak::upgrade).for_each(each);
        }
    }

    /// Drops state that expired long ago. Call it about once a second.
    pub fn expire(&self, now: UnixNanos) {
        self.list.iter().for_each(|composite| composite.expire(now));
        lock(&self.heard).retain(|_, sources| {
            sources.retain(|source| source.strong_count() > 0);
            !sources.is_empty()
        });
    }

    /// Looks at decoded points.
    pub fn observe_all(&self, points: &[Point], now: UnixNanos) {
        self.observe_with(points, None, now);
    }

    /// Looks at decoded points of sources whose receiver keeps this lease. Points of a source that it knows to be dead repeat
    /// what the source has sent before: they change nothing. But its series end. The end of its `up` is not that of a target: the
    /// lease says whether the source has left.
    pub fn observe_leased(&self, points: &[Point], lease: &Arc<Lease>, now: UnixNanos) {
        if lease.is_dead() {
            let is_end =
                |point: &&Point| point.value == Value::NoRecordedValue && &*point.series.metric.name != UP;
            let ends = points.iter().filter(is_end);
            ends.for_each(|point| self.observe(point, now));
        } else {
            self.observe_with(points, Some(lease), now);
        }
    }

    fn observe_with(&self, points: &[Point], lease: Option<&Arc<Lease>>, now: UnixNanos) {
        let mut resource: Option<(&Arc<Resource>, Key)> = None;
        for point in points {
            let of = &point.series.resource;
            let key = match resource {
                Some((last, key)) if Arc::ptr_eq(last, of) => key,
                _ => {
                    let key = Key::of_value(of);
                    if let Some((_, last)) = resource.replace((of, key)) {
                        self.follow(last, lease);
                    }
                    self.each_source(key, |source| _ = source.touch(now));
                    key
                }
            };
            self.observe_of(point, Some(key), now);
        }
        if let Some((_, last)) = resource {
            self.follow(last, lease);
        }
    }

    /// The sources of a resource, those of its first points too, live by this lease.
    fn follow(&self, resource: Key, lease: Option<&Arc<Lease>>) {
        self.each_source(resource, |source| source.follow(lease));
    }

    /// Looks at a decoded point.
    pub fn observe(&self, point: &Point, now: UnixNanos) {
        self.observe_of(point, None, now);
    }

    fn observe_of(&self, point: &Point, resource: Option<Key>, now: UnixNanos) {
        let sample = PointSample {
            start: point.start,
            time: point.time,
            value: &point.value,
            exemplars: &point.exemplars,
        };
        let name = &point.series.metric.name;
        if self.wants(name) {
            self.observe_as(name, Key::of(&point.series), resource, sample, now, &mut || {
                Some(point.series.clone())
            });
        }
    }

    /// Adds a point of metric `name`, of the series with this `key`; see `Table::observe_as`. `resource` is the key of
    /// its resource's bytes.
    pub fn observe_as(
        &self,
        name: &str,
        key: Key,
        resource: Option<Key>,
        mut sample: PointSample<'_>,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        if sample.time == 0 {
            sample.time = clock::wall(now);
        }
        if sample.time > self.future.latest(now) {
            if self.future.action == FutureAction::Refuse {
                self.refused.fetch_add(1, Relaxed);
                let list = self.list.iter().filter(|composite| composite.wants(name));
                list.for_each(|composite| composite.refuse_future(key, &sample, now));
                return;
            }
            sample.time = clock::wall(now);
        }
        let mut series = None;
        let mut identify = || {
            series = series.take().or_else(&mut *identify);
            series.clone()
        };
        for composite in self.list.iter().filter(|composite| composite.wants(name)) {
            let learnt = composite.observe_as(key, &sample, now, &mut identify);
            if let (Some(resource), Some(source)) = (resource, learnt) {
                self.register(resource, &source);
            }
        }
        if name == UP {
            self.stand(key, sample.value, now, &mut identify);
        }
    }

    fn register(&self, resource: Key, source: &Arc<PointSource>) {
        let mut heard = lock(&self.heard);
        if heard.len() >= MAX_HEARD && !heard.contains_key(&resource) {
            return;
        }
        let sources = heard.entry(resource).or_default();
        let weak = Arc::downgrade(source);
        if !sources.iter().any(|known| known.ptr_eq(&weak)) {
            sources.push(weak);
        }
    }

    /// A target says how it is.
    fn stand(
        &self,
        key: Key,
        value: &Value,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        let standing = match (value, value.number().map(Number::as_f64)) {
            (Value::NoRecordedValue, _) => ReportedState::Left,
            (_, Some(0.0)) => ReportedState::Down,
            (_, Some(_)) => ReportedState::Running,
            (_, None) => return,
        };
        let known = lock(&self.ups).get(&key).copied();
        let resource = known.or_else(|| {
            let resource = Key::of_value(&identify()?.resource);
            let mut ups = lock(&self.ups);
            if ups.len() >= MAX_HEARD {
                ups.clear();
            }
            ups.insert(key, resource);
            Some(resource)
        });
        if let Some(resource) = resource {
            let list = self.list.iter();
            list.for_each(|composite| composite.stand(resource, standing, now));
        }
    }
}

impl Composite {
    /// The streams whose points were refused because of their times.
    pub fn timestamp_anomalies(&self) -> &TimestampAnomalies {
        &self.inputs.anomalies
    }

    /// A target, if it feeds this composite, said how it is.
    fn stand(&self, resource: Key, standing: ReportedState, now: UnixNanos) {
        let source = lock(&self.inputs.points).get(&resource).cloned();
        if let Some(source) = source {
            source.touch(now);
            source.stand(standing, now);
            self.version.fetch_add(1, Relaxed);
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.declaration.metric.matches(name)
    }

    /// Keeps why a gauge makes no value here.
    fn note_refusal(&self, why: String) {
        lock(&self.refused).get_or_insert_with(|| why.into());
        self.version.fetch_add(1, Relaxed);
    }
}
