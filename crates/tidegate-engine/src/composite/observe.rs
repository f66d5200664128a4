//! How composites see what passes: events folded once for all of them, points by their streams' increases.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::group::Group;
use super::member::{Kind, MemberId};
use super::sketch::Sketch;
use super::source::{Life, PointSource, Standing};
use super::window::{Moments, Window};
use super::{Composite, Function, SharedGroup};
use crate::fold::{Folded, Folds};
use crate::key::{Key, KeyMap};
use crate::progress::{Change, Progress, Rejection, Sample};
use crate::streams::lock;
use crate::{
    Attributes, Data, Events, Instrument, Number, Point, Resource, Schema, Series, Source, Temporality,
    UnixNanos, Value,
};

/// Points that come so much out of order still count, when they come.
const LATENESS_NS: u64 = 60_000_000_000;

/// Resources of which it is known, by the bytes they were sent as, that a composite follows them.
const MAX_HEARD: usize = 100_000;

/// The gauge that a scrape says its success by: 0 after a failed one, ended when the target has left discovery.
const UP: &str = "up";

/// How a series feeds its group.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Observations for the window of the group.
    Pooled { is_steady: bool },
    /// Observations for a window of its own.
    Own { is_steady: bool },
    /// A level.
    Level(Option<Arc<Series>>),
}

/// What a composite keeps of a stream of points.
#[derive(Debug)]
pub(super) struct PointStream {
    data: Data,
    progress: Progress,
    /// `None`: its attributes are not asked for, or it does not suit the declaration.
    place: Option<Place>,
    source: Arc<PointSource>,
}

/// Where a series feeds.
#[derive(Debug)]
struct Place {
    plan: Plan,
    group: SharedGroup,
    /// `None`: it has ended, for now.
    member: Option<MemberId>,
}

/// What a composite makes of the kinds of a source of events.
#[derive(Debug)]
pub(super) struct SourceKinds {
    life: Life,
    schema: Arc<Schema>,
    kinds: Vec<Option<KindPlace>>,
}

/// Where events of a kind go.
#[derive(Clone, Debug)]
struct KindPlace {
    group: SharedGroup,
    /// The series of its own; `None`: they are pooled.
    member: Option<MemberId>,
    is_level: bool,
}

impl PointStream {
    /// It has ended, or is forgotten.
    pub(super) fn leave(&mut self, now: UnixNanos) {
        let Some(place) = &mut self.place else { return };
        if let Some(member) = place.member.take() {
            lock(&place.group).leave(member, now);
        }
    }
}

impl SourceKinds {
    pub(super) fn is_over(&self, now: UnixNanos, memory_ns: u64) -> bool {
        self.life.is_gone() || self.life.is_forgotten(now, memory_ns)
    }
}

/// The composites of one place in a pipeline.
#[derive(Debug)]
pub struct CompositeSet {
    list: Vec<Arc<Composite>>,
    spare: Mutex<Vec<Folds>>,
    /// Sources of points, by the bytes that their resource was sent as.
    heard: Mutex<KeyMap<Vec<Weak<PointSource>>>>,
    /// The resources of series called `up`, by the series.
    ups: Mutex<KeyMap<Key>>,
}

impl CompositeSet {
    /// All of `list` look at what is observed.
    pub fn new(list: Vec<Arc<Composite>>) -> Self {
        Self {
            list,
            spare: Mutex::default(),
            heard: Mutex::default(),
            ups: Mutex::default(),
        }
    }

    /// The composites.
    pub fn list(&self) -> &[Arc<Composite>] {
        &self.list
    }

    /// Whether any of them looks at metrics of this name.
    pub fn wants(&self, name: &str) -> bool {
        name == UP || self.list.iter().any(|composite| composite.wants(name))
    }

    /// A source sent something, wanted or not. `resource` stands for the bytes of its resource; see `observe_as`.
    pub fn hear(&self, resource: Key, now: UnixNanos) {
        if let Some(sources) = lock(&self.heard).get(&resource) {
            let sources = sources.iter().filter_map(Weak::upgrade);
            for source in sources {
                source.touch(now);
            }
        }
    }

    /// Lets go what is long gone. Call it about once a second.
    pub fn expire(&self, now: UnixNanos) {
        self.list.iter().for_each(|composite| composite.expire(now));
        lock(&self.heard).retain(|_, sources| {
            sources.retain(|source| source.strong_count() > 0);
            !sources.is_empty()
        });
    }

    /// Looks at events. A source is known from its first batch on, even an empty one.
    pub fn observe_events(&self, events: &Events) {
        let plans: Vec<Vec<Option<KindPlace>>> =
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

    /// Looks at decoded points.
    pub fn observe_all(&self, points: &[Point], now: UnixNanos) {
        let mut resource: Option<(&Arc<Resource>, Key)> = None;
        for point in points {
            let of = &point.series.resource;
            let key = match resource {
                Some((last, key)) if Arc::ptr_eq(last, of) => key,
                _ => {
                    let key = Key::of_value(of);
                    resource = Some((of, key));
                    self.hear(key, now);
                    key
                }
            };
            self.observe_of(point, Some(key), now);
        }
    }

    /// Looks at a decoded point.
    pub fn observe(&self, point: &Point, now: UnixNanos) {
        self.observe_of(point, None, now);
    }

    fn observe_of(&self, point: &Point, resource: Option<Key>, now: UnixNanos) {
        let sample = Sample {
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

    /// Looks at a point of metric `name`, of the series that `key` stands for; see `Table::observe_as`. `resource`
    /// stands for the bytes of its resource.
    pub fn observe_as(
        &self,
        name: &str,
        key: Key,
        resource: Option<Key>,
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
            let learnt = composite.observe_as(key, &sample, now, &mut identify);
            if let (Some(resource), Some(source)) = (resource, learnt) {
                self.learn(resource, &source);
            }
        }
        if name == UP {
            self.stand(key, sample.value, now, &mut identify);
        }
    }

    fn learn(&self, resource: Key, source: &Arc<PointSource>) {
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
            (Value::NoRecordedValue, _) => Standing::Left,
            (_, Some(0.0)) => Standing::Down,
            (_, Some(_)) => Standing::Running,
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

/// Adds every single event to the distributions of its group.
fn sketch(events: &Events, plan: &[Option<KindPlace>]) {
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
    fn wants(&self, name: &str) -> bool {
        self.declaration.metric.matches(name)
    }

    /// The place of every kind that this composite looks at; empty where it looks at none.
    fn plan(&self, events: &Events) -> Vec<Option<KindPlace>> {
        let mut sources = lock(&self.sources);
        let known = sources.entry(events.source.id).or_insert_with(|| SourceKinds {
            life: Life::Events(events.source.lease.clone()),
            schema: Arc::default(),
            kinds: Vec::new(),
        });
        if !Arc::ptr_eq(&known.schema, &events.schema) {
            for kind in events.schema.kinds.iter().skip(known.kinds.len()) {
                let place = self.place_of_kind(&events.source, &known.life, kind);
                known.kinds.push(place);
            }
            known.schema = events.schema.clone();
        }
        match known.kinds.iter().any(Option::is_some) {
            true => known.kinds.clone(),
            false => Vec::new(),
        }
    }

    /// Events are pooled unless each series is to have a value of its own; then gauges keep their level.
    fn place_of_kind(&self, source: &Source, life: &Life, kind: &crate::Kind) -> Option<KindPlace> {
        let sets = [&kind.attributes, &source.attributes, &source.resource.attributes];
        if !self.wants(&kind.name) || !self.declaration.attributes.matches(&sets) {
            return None;
        }
        let own = source.attributes.merge(&kind.attributes);
        let attributes = self.group_attributes(&source.resource, &own);
        let is_level = self.declaration.is_by_series() && kind.instrument == Instrument::Gauge;
        let is_refused = is_level && self.refuses(&kind.name);
        let plan = match (self.declaration.is_by_series(), is_level) {
            (false, _) => None,
            (true, true) => Some(Plan::Level(None)),
            (true, false) => Some(Plan::Own { is_steady: false }),
        };
        let (group, member) = self.within(&attributes, |group| match &plan {
            Some(plan) => Some(group.enter(life, self.kind(plan, true))),
            None => {
                group.join(life);
                None
            }
        });
        (!is_refused).then_some(KindPlace {
            group,
            member,
            is_level,
        })
    }

    /// Whether gauges make no value here; the reason is kept.
    fn refuses(&self, metric: &str) -> bool {
        let Some(why) = self.declaration.refusal(metric) else {
            return false;
        };
        lock(&self.refused).get_or_insert_with(|| why.into());
        self.version.fetch_add(1, Relaxed);
        true
    }

    /// What a series brings to its group.
    pub(super) fn kind(&self, plan: &Plan, is_first: bool) -> Kind {
        let declaration = &self.declaration;
        let window = |has_sketches| Box::new(Window::new(self.cut, has_sketches));
        let is_quantile = matches!(declaration.function, Function::Quantile(_));
        match plan {
            Plan::Pooled { is_steady } => Kind::Pooled {
                is_steady: *is_steady,
            },
            Plan::Own { is_steady } => Kind::Own {
                window: window(is_quantile),
                is_steady: *is_steady,
            },
            Plan::Level(series) => Kind::Level {
                window: match (declaration.is_by_series(), declaration.function) {
                    (true, Function::Last) => None,
                    (true, _) => Some(window(is_quantile)),
                    // Of several there is no value anyway.
                    (false, _) => is_first.then(|| window(declaration.is_sketched())),
                },
                series: series.clone(),
            },
        }
    }

    pub(super) fn group_attributes(&self, resource: &Arc<Resource>, attributes: &Attributes) -> Attributes {
        self.met.see(resource, &[attributes]);
        let (resource, attributes) = self.declaration.grouping.apply(resource, attributes);
        resource.attributes.merge(&attributes)
    }

    /// Gives the source of a series that this spelling was not known for.
    fn observe_as(
        &self,
        key: Key,
        sample: &Sample<'_>,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Option<Arc<PointSource>> {
        let known = self
            .streams
            .known(key, now, |stream| self.step(stream, sample, now));
        if known.is_some() {
            return None;
        }
        let series = identify()?;
        let mut first = false;
        let home = self.streams.learn(key, Key::of(&series), now, || {
            first = true;
            self.stream(&series)
        });
        let Some(home) = home else {
            self.unseen.fetch_add(1, Relaxed);
            return None;
        };
        let is_history = first && self.is_history(sample, series.metric.data, now);
        self.streams.known(home, now, |stream| {
            match is_history {
                // The total before we looked is only where increases are counted from.
                true => {
                    stream.push(now);
                    let _ = stream.progress.advance(stream.data, sample, LATENESS_NS);
                    self.enter(stream, now);
                }
                false => self.step(stream, sample, now),
            }
            stream.source.clone()
        })
    }

    /// Whether a first point tells of a time before the window.
    fn is_history(&self, sample: &Sample<'_>, data: Data, now: UnixNanos) -> bool {
        let cumulative = !is_level(data) && data.temporality() == Temporality::Cumulative;
        cumulative && (sample.start == 0 || sample.start < self.cut.begin(now))
    }

    fn stream(&self, series: &Arc<Series>) -> PointStream {
        let source = lock(&self.points)
            .entry(Key::of_value(&series.resource))
            .or_insert_with(|| Arc::new(PointSource::new(self.declaration.lease)))
            .clone();
        let sets = [&series.attributes, &series.resource.attributes];
        let expression = self.declaration.expression.as_ref();
        let is_selected = expression.is_none_or(|expression| (expression.selects)(series));
        let is_wanted = is_selected && self.declaration.attributes.matches(&sets);
        let data = series.metric.data;
        let is_steady = data.temporality() == Temporality::Cumulative;
        let plan = match (is_level(data), self.declaration.is_by_series()) {
            // Only who lives is asked for.
            (false, _) if expression.is_some() => Plan::Pooled { is_steady },
            (true, true) => Plan::Level(None),
            (true, false) => Plan::Level(Some(series.clone())),
            (false, true) => Plan::Own { is_steady },
            (false, false) => Plan::Pooled { is_steady },
        };
        let is_refused = is_wanted && is_level(data) && self.refuses(&series.metric.name);
        let place = (is_wanted && !is_refused).then(|| Place {
            plan,
            group: self.group(self.group_attributes(&series.resource, &series.attributes)),
            member: None,
        });
        PointStream {
            data,
            progress: Progress::default(),
            place,
            source,
        }
    }

    fn step(&self, stream: &mut PointStream, sample: &Sample<'_>, now: UnixNanos) {
        if *sample.value == Value::NoRecordedValue {
            // What came before the newest point says nothing about it.
            if sample.time >= stream.progress.time {
                let _ = stream.progress.advance(stream.data, sample, LATENESS_NS);
                stream.leave(now);
                self.version.fetch_add(1, Relaxed);
            }
            return;
        }
        let push = stream.push(now);
        if stream.place.is_none() {
            return;
        }
        let change: Result<Change<'_>, Rejection> = stream.progress.advance(stream.data, sample, LATENESS_NS);
        let Some((mut group, member)) = self.seen(&mut stream.place, &stream.source, push, now) else {
            return;
        };
        let Ok(change) = change else { return };
        if is_level(stream.data) {
            if let Some(level) = sample.value.number() {
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
        drop(self.seen(&mut stream.place, &stream.source, push, now));
    }

    /// The group of a series that was in this push, and the series in it.
    fn seen<'a>(
        &self,
        place: &'a mut Option<Place>,
        source: &Arc<PointSource>,
        push: u64,
        now: UnixNanos,
    ) -> Option<(MutexGuard<'a, Group>, MemberId)> {
        let place = place.as_mut()?;
        let known = place
            .member
            .filter(|member| lock(&place.group).see(*member, push, now));
        let member = match known {
            Some(member) => member,
            None => {
                let life = Life::Points(source.clone());
                let attributes = lock(&place.group).attributes().clone();
                let (group, member) = self.within(&attributes, |group| {
                    let kind = self.kind(&place.plan, group.has_no_series());
                    let member = group.enter(&life, kind);
                    group.see(member, push, now);
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

impl KindPlace {
    fn add(&self, group: &mut Group, now: UnixNanos, moments: &Moments, is_sketched: bool) {
        match self.member {
            Some(member) if self.is_level => group.level(member, now, moments),
            Some(member) => group.observe(member, now, moments, |_| (), is_sketched),
            None => group.add(now, moments, is_sketched),
        }
    }
}

/// Whether a running total has gained nothing: that is no observation.
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
