// SPDX-License-Identifier: Apache-2.0

//! Points: the increase of a series since its last point, or its level.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};

use super::super::group::CompositeGroup;
use super::super::member::{Member, MemberId};
use super::super::sketch::Sketch;
use super::super::source::{Liveness, PointSource};
use super::super::window::Moments;
use super::super::{Composite, Function, SharedGroup};
use super::Plan;
use crate::budget::{Reservation, identity_bytes};
use crate::key::Key;
use crate::stream_tracker::{Change, LastValue, PointSample, Rejection, StreamTracker};
use crate::streams::lock;
use crate::{Data, Number, Series, Temporality, TimestampAnomaly, UnixNanos, Value, clock};

/// The most that a point may be late, in nanoseconds (1 min). A late point counts at its arrival.
const LATENESS_NS: u64 = 60_000_000_000;

/// The bytes of a stream beside its text, its window and its last value: its index entries, its series in a group, and
/// its source.
const STREAM_BYTES: usize = size_of::<PointStream>() + size_of::<Member>() + size_of::<PointSource>() + 400;

/// The state of a stream of points in a composite.
#[derive(Debug)]
pub(in super::super) struct PointStream {
    data: Data,
    tracker: StreamTracker,
    /// The level after the newest sample. Where processes report side by side under one identity, the sum of theirs.
    level: Number,
    /// When the process began that spoke last.
    start: UnixNanos,
    /// `None`: the declaration does not select it, or does not suit it.
    place: Option<GroupTarget>,
    source: Arc<PointSource>,
    /// The budget's reservation for its text and window, and for its last value.
    reservation: Reservation,
}

/// The target of a series.
#[derive(Debug)]
struct GroupTarget {
    plan: Plan,
    group: SharedGroup,
    /// `None`: it has ended, for now.
    member: Option<MemberId>,
}

impl PointStream {
    /// It has ended, or is forgotten.
    pub(in super::super) fn leave(&mut self, now: UnixNanos) {
        let Some(place) = &mut self.place else { return };
        if let Some(member) = place.member.take() {
            lock(&place.group).leave(member, now);
        }
    }
}

impl Composite {
    /// Gives the source of a series that this spelling was not known for.
    pub(super) fn observe_as(
        &self,
        key: Key,
        sample: &PointSample<'_>,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Option<Arc<PointSource>> {
        let known = self
            .inputs
            .streams
            .known(key, now, |stream| self.step(stream, sample, now));
        if known.is_some() {
            return None;
        }
        let series = identify()?;
        let mut first = false;
        let mut has_room = true;
        let home = self.inputs.streams.try_register(key, Key::of(&series), now, || {
            first = true;
            let stream = self.stream(&series, sample);
            has_room = stream.is_some();
            stream
        });
        let Some(home) = home else {
            if has_room {
                self.room.note_unseen(now);
            } else {
                self.room.note_point_without_room(now);
            }
            return None;
        };
        let is_history = first && self.is_history(sample, series.metric.data, now);
        self.inputs.streams.known(home, now, |stream| {
            if is_history {
                // Increases are counted from the first total that is seen.
                stream.push(now);
                let _ = stream.tracker.advance(stream.data, sample, LATENESS_NS);
                stream.reservation.hold(stream.tracker.bytes());
                self.enter(stream, now);
            } else {
                self.step(stream, sample, now);
            }
            stream.source.clone()
        })
    }

    /// Whether a first point counts data from before the window, or data that an earlier run has counted.
    fn is_history(&self, sample: &PointSample<'_>, data: Data, now: UnixNanos) -> bool {
        let cumulative = !is_level(data) && data.temporality() == Temporality::Cumulative;
        // What an earlier run has counted is in the restored window.
        let begin = clock::wall(self.cut.begin(now)).max(self.inputs.restored_until.load(Relaxed));
        cumulative && (sample.start == 0 || sample.start < begin)
    }

    /// `None`: the budget leaves no room for its state.
    fn stream(&self, series: &Arc<Series>, sample: &PointSample<'_>) -> Option<PointStream> {
        let sets = [&series.attributes, &series.resource.attributes];
        let expression = self.declaration.expression.as_ref();
        let is_selected = expression.is_none_or(|expression| (expression.selects)(series));
        let is_wanted = is_selected && self.declaration.attributes.matches(&sets);
        let data = series.metric.data;
        let is_steady = data.temporality() == Temporality::Cumulative;
        let plan = match (is_level(data), self.declaration.is_by_series()) {
            // An expression needs only the liveness of sources.
            (false, _) if expression.is_some() => Plan::Pooled { is_steady },
            (true, true) => Plan::Level(None),
            (true, false) => Plan::Level(Some(series.clone())),
            (false, true) => Plan::Own { is_steady },
            (false, false) => Plan::Pooled { is_steady },
        };
        let may_be_refused = is_wanted && is_level(data);
        let refusal = may_be_refused
            .then(|| self.declaration.refusal(&series.metric.name))
            .flatten();
        let is_placed = is_wanted && refusal.is_none();
        let value = if is_wanted && is_steady && !is_level(data) {
            LastValue::bytes_of(sample.value)
        } else {
            0
        };
        // A stream that is not selected has no window.
        let own = if is_placed { self.bytes_of_plan(&plan) } else { 0 };
        let reservation = Reservation::new(self.room.budget(), STREAM_BYTES + own, value)?;
        if let Some(why) = refusal {
            self.note_refusal(why);
        }
        let source = lock(&self.inputs.points)
            .entry(Key::of_value(&series.resource))
            .or_insert_with(|| {
                let source = PointSource::new(self.declaration.lease);
                Arc::new(source.named(&series.resource.attributes, self.room.budget()))
            })
            .clone();
        let place = is_placed.then(|| GroupTarget {
            plan,
            group: self.group(self.group_attributes(&series.resource, &series.attributes)),
            member: None,
        });
        Some(PointStream {
            data,
            tracker: StreamTracker::default(),
            level: Number::ZERO,
            start: 0,
            place,
            source,
            reservation,
        })
    }

    /// The bytes of a stream's own window by its plan.
    fn bytes_of_plan(&self, plan: &Plan) -> usize {
        let declaration = &self.declaration;
        match plan {
            Plan::Pooled { .. } => 0,
            Plan::Level(_) if declaration.is_by_series() && declaration.function == Function::Last => 0,
            Plan::Own { .. } | Plan::Level(None) => self
                .cut
                .bytes(matches!(declaration.function, Function::Quantile(_))),
            // Its group has a window for the first one.
            Plan::Level(Some(series)) => identity_bytes(series),
        }
    }

    fn step(&self, stream: &mut PointStream, sample: &PointSample<'_>, now: UnixNanos) {
        if *sample.value == Value::NoRecordedValue {
            // A marker older than the newest point says nothing about the stream's end.
            if sample.time >= stream.tracker.time {
                let _ = stream.tracker.advance(stream.data, sample, LATENESS_NS);
                stream.leave(now);
                self.version.fetch_add(1, Relaxed);
            }
            return;
        }
        let push = stream.push(now);
        if stream.place.is_none() {
            return;
        }
        if !stream
            .reservation
            .may_grow(stream.tracker.growth(stream.data, sample))
        {
            return self.room.note_point_without_room(now);
        }
        let mut change: Result<Change<'_>, Rejection> =
            stream.tracker.advance(stream.data, sample, LATENESS_NS);
        if matches!(change, Err(Rejection::Late | Rejection::Duplicate))
            && self.note_anomaly(stream, sample, now) == Some(TimestampAnomaly::Reanchored)
        {
            change = stream.tracker.advance(stream.data, sample, LATENESS_NS);
        }
        stream.reservation.hold(stream.tracker.bytes());
        let is_stalled = stream.tracker.is_stalled();
        let seen = self.seen(&mut stream.place, &stream.source, (push, is_stalled), now);
        let Some((mut group, member)) = seen else {
            return;
        };
        let Ok(change) = change else { return };
        if is_level(stream.data) {
            let is_interleaved = stream.tracker.is_interleaved();
            if is_interleaved && stream.start != sample.start {
                group.interleave(member, now);
            }
            stream.start = sample.start;
            let level = match (is_interleaved, change) {
                (true, Change::Number(change)) => Some(stream.level.plus(change)),
                _ => sample.value.number(),
            };
            if let Some(level) = level {
                stream.level = level;
                let level = level.as_f64();
                group.level(member, now, &Moments::of(level));
                group.sketch_of(Some(member), now, |sketch| sketch.add(level, 1.0));
            }
        } else if let Some(moments) = moments(&change).filter(|moments| !is_no_gain(stream.data, moments)) {
            let sketch = |sketch: &mut Sketch| match &change {
                Change::Number(number) => sketch.add(number.as_f64(), 1.0),
                Change::Histogram(increase) => sketch.add_explicit(increase),
                Change::Exponential(increase) => sketch.add_exponential(increase),
                // Its mean, as many times.
                Change::Summary(_) | Change::End => sketch.add(moments.last, moments.count),
            };
            group.observe(member, now, &moments, sketch, self.declaration.is_sketched());
        }
        drop(group);
        self.version.fetch_add(1, Relaxed);
    }

    fn enter(&self, stream: &mut PointStream, now: UnixNanos) {
        let push = stream.source.touch(now);
        let entered = self.seen(&mut stream.place, &stream.source, (push, false), now);
        if let Some((mut group, _)) = entered {
            group.note_first_total(now);
        }
    }

    /// Notes a point that is not taken because of its time.
    #[cold]
    fn note_anomaly(
        &self,
        stream: &mut PointStream,
        sample: &PointSample<'_>,
        now: UnixNanos,
    ) -> Option<TimestampAnomaly> {
        let anomaly = stream.tracker.note_anomaly(stream.data, sample, now, None)?;
        let place = stream.place.as_ref();
        let series = place.map(|place| lock(&place.group).series.clone());
        self.inputs.anomalies.note(anomaly, series.as_ref());
        Some(anomaly)
    }

    /// Refuses a point of a series that is too far ahead: it does not show that its source is alive either.
    #[cold]
    pub(super) fn refuse_future(&self, key: Key, sample: &PointSample<'_>, now: UnixNanos) {
        self.inputs.streams.known(key, now, |stream| {
            self.note_anomaly(stream, sample, now);
            if let Some(GroupTarget {
                group,
                member: Some(member),
                ..
            }) = &stream.place
                && stream.tracker.is_stalled()
            {
                lock(group).stall(*member);
                self.version.fetch_add(1, Relaxed);
            }
        });
    }

    /// The group of a series that was in this push, and the series in it.
    fn seen<'a>(
        &self,
        place: &'a mut Option<GroupTarget>,
        source: &Arc<PointSource>,
        (push, is_stalled): (u64, bool),
        now: UnixNanos,
    ) -> Option<(MutexGuard<'a, CompositeGroup>, MemberId)> {
        let place = place.as_mut()?;
        let known = place
            .member
            .filter(|member| lock(&place.group).mark_seen(*member, push, now, is_stalled));
        let member = match known {
            Some(member) => member,
            None => {
                let liveness = Liveness::Points(source.clone());
                let attributes = lock(&place.group).attributes().clone();
                let (group, member) = self.within(&attributes, |group| {
                    let kind = self.kind(&place.plan, group.has_no_series());
                    let member = group.enter(&liveness, kind);
                    group.mark_seen(member, push, now, is_stalled);
                    member
                });
                (place.group, place.member) = (group, Some(member));
                member
            }
        };
        Some((lock(&place.group), member))
    }
}

impl PointStream {
    /// A value came. Gives the number of the push.
    fn push(&self, now: UnixNanos) -> u64 {
        self.source.revive(now);
        self.source.touch(now)
    }
}

/// Whether a running total has gained nothing: that is not an observation.
fn is_no_gain(data: Data, moments: &Moments) -> bool {
    let is_total = matches!(
        data,
        Data::Sum {
            temporality: Temporality::Cumulative,
            ..
        }
    );
    is_total && moments.sum == 0.0
}

/// Whether a point says how much there is, and not how much came.
fn is_level(data: Data) -> bool {
    let is_up_down = matches!(
        data,
        Data::Sum {
            monotonic: false,
            temporality: Temporality::Cumulative
        }
    );
    is_up_down || data == Data::Gauge
}

/// The moments that an increase or a gauge's value adds to a window; `None` if it adds nothing.
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
