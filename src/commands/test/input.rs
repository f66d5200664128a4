// SPDX-License-Identifier: Apache-2.0

//! The inputs of a test: when they come, and the batches that they become.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    AttributeValue, Attributes, Data, EventKind, Events, Instrument, Lease, Metric, Point, Resource, Schema,
    Scope, Series, Source, SourceId, Temporality, UnixNanos, Value, Values,
};
use tidegate_exposition::Format;

use super::file::{EventInstrument, Located, PointType, TestEvent, TestInput, TestPoint};
use super::gateway::{TestClock, nanos};
use crate::batch::{Batch, Points, Signal, json, wire};
use crate::component::unix_now;
use crate::config::{Node, Ordered, Scalar, ScalarKind, read_file};
use crate::prom::model::{INSTANCE, JOB, LabelSet};
use crate::prom::scrape::{ScrapeDecoder, Settings, Target};

/// The time for which a source of events counts as alive without a sign of life.
const LEASE: Duration = Duration::from_secs(30);

/// The most arrivals of all inputs of a test.
const MAX_ARRIVALS: usize = 1_000_000;

/// One arrival of an input.
pub(super) struct Arrival<'a> {
    pub(super) at: Duration,
    pub(super) input: &'a Located<TestInput>,
    /// The number of arrivals of this input before.
    pub(super) repetition: u32,
    /// Whether the scrape of a page succeeds. `None`: no input says that a scrape of this source fails.
    pub(super) is_up: Option<bool>,
}

/// All arrivals of a test that ends at `end`, in order. Of equal times, the order of the file counts.
///
/// # Errors
/// There are too many.
pub(super) fn arrivals(inputs: &[Located<TestInput>], end: Duration) -> Result<Vec<Arrival<'_>>, String> {
    let mut all = Vec::new();
    for input in inputs {
        let options = &input.value;
        let last = options.until.unwrap_or(end).min(end);
        let times = options
            .times
            .unwrap_or(if options.every.is_some() { u32::MAX } else { 1 });
        let every = options.every.unwrap_or_default();
        let death = death_of(inputs, options);
        let outages = outages_of(inputs, options);
        for repetition in 0..times {
            let at = options.at.saturating_add(every.saturating_mul(repetition));
            let is_over = at > last || death.is_some_and(|death| at >= death);
            if is_over && options.every.is_some() {
                break;
            }
            if all.len() == MAX_ARRIVALS {
                return Err(format!("more than {MAX_ARRIVALS} arrivals of inputs"));
            }
            all.push(Arrival {
                at,
                input,
                repetition,
                is_up: (!outages.is_empty()).then(|| !outages.iter().any(|outage| is_within(outage, at))),
            });
        }
    }
    all.sort_by_key(|arrival| arrival.at);
    Ok(all)
}

/// When the source of an input ends, if it does so after the first arrival.
fn death_of(inputs: &[Located<TestInput>], of: &TestInput) -> Option<Duration> {
    let others = inputs.iter().map(|other| &other.value);
    let ends = others.filter(|other| other.dead.as_deref() == Some(of.source.as_str()));
    ends.map(|other| other.at).filter(|at| *at >= of.at).min()
}

/// The inputs by which scrapes of the source of an input fail.
fn outages_of<'a>(inputs: &'a [Located<TestInput>], of: &TestInput) -> Vec<&'a TestInput> {
    let others = inputs.iter().map(|other| &other.value);
    let outages = others.filter(|other| other.down.as_deref() == Some(of.source.as_str()));
    outages.filter(|_| of.text.is_some()).collect()
}

/// Whether scrapes fail at a time because of an input.
fn is_within(outage: &TestInput, at: Duration) -> bool {
    at >= outage.at && outage.until.is_none_or(|until| at <= until)
}

/// A process that sends events.
struct EventSource {
    source: Arc<Source>,
    is_dead: bool,
}

/// A target of scrapes.
struct ScrapedTarget {
    receiver: String,
    source: String,
    labels: TargetLabels,
    decoder: ScrapeDecoder,
    /// When a scrape failed last.
    failed: Option<UnixNanos>,
    /// Whether there is a series `up` of it.
    has_up: bool,
    /// Whether it has left discovery.
    is_gone: bool,
}

impl ScrapedTarget {
    fn new(input: &TestInput, receiver: &str) -> Self {
        let labels = input.labels.iter();
        let labels = labels.map(|(name, value)| (name.to_owned(), value.clone()));
        let labels = TargetLabels(labels.collect());
        Self {
            receiver: receiver.to_owned(),
            source: input.source.clone(),
            decoder: ScrapeDecoder::new(Settings::default(), Box::new(labels.clone())),
            labels,
            failed: None,
            has_up: false,
            is_gone: false,
        }
    }

    /// The points of a page. With `says_up`, they say that the scrape has succeeded.
    fn page(&mut self, page: &str, says_up: bool) -> Result<Vec<Point>, String> {
        let mut points = Vec::new();
        let read = self
            .decoder
            .page(Format::Text, page.as_bytes(), unix_now(), &mut points);
        read.map_err(|failed| failed.to_string())?;
        if says_up {
            points.push(self.up(Value::Double(1.0)));
        }
        Ok(points)
    }

    /// The points of a failed scrape: the end of the series, and `up`.
    fn fail(&mut self) -> Vec<Point> {
        let now = unix_now();
        let mut points = Vec::new();
        self.decoder.end(now, &mut points);
        points.push(self.up(Value::Double(0.0)));
        self.failed = Some(now);
        points
    }

    /// The points of a target that leaves discovery: the end of its series.
    fn leave(&mut self) -> Vec<Point> {
        let mut points = Vec::new();
        self.decoder.end(unix_now(), &mut points);
        if self.has_up {
            points.push(self.up(Value::NoRecordedValue));
        }
        (self.has_up, self.is_gone) = (false, true);
        points
    }

    /// A point of its series `up`, which has the resource of the other series.
    fn up(&mut self, value: Value) -> Point {
        self.has_up = true;
        let [job, instance] = TARGET.map(|name| self.labels.get(name));
        let known = self.decoder.resource(job, instance);
        let resource = known.unwrap_or_else(|| {
            Arc::new(Resource {
                attributes: self.labels.resource(job, instance),
                schema_url: Arc::default(),
            })
        });
        let others = self.labels.0.iter();
        let others = others.filter(|(name, _)| !TARGET.contains(&name.as_str()));
        let series = Series {
            resource,
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "up".into(),
                description: Arc::default(),
                unit: Arc::default(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: others
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
        };
        Point {
            series: Arc::new(series),
            start: 0,
            time: unix_now(),
            value,
            exemplars: Vec::new(),
        }
    }

    fn data(&self, points: Vec<Point>) -> TestData {
        TestData {
            receiver: self.receiver.clone(),
            batch: points_batch(points),
        }
    }
}

/// The labels that name a target. They are the resource of its series.
const TARGET: [&str; 2] = [JOB, INSTANCE];

/// The labels that a target adds to the series of its page.
#[derive(Clone)]
struct TargetLabels(Vec<(String, String)>);

impl TargetLabels {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known.as_str() == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

impl Target for TargetLabels {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        for (name, value) in &self.0 {
            labels.set(name, value.as_str());
        }
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        let pairs = [("service.name", job), ("service.instance.id", instance)];
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// The processes that send data to the gateway.
#[derive(Default)]
pub(super) struct TestSenders {
    sources: BTreeMap<String, EventSource>,
    targets: Vec<ScrapedTarget>,
}

/// Data for a receiver.
pub(super) struct TestData {
    pub(super) receiver: String,
    pub(super) batch: Batch,
}

impl TestSenders {
    /// Gives the sources of events that are alive a sign of life.
    pub(super) fn touch(&self, now: UnixNanos) {
        let alive = self.sources.values().filter(|source| !source.is_dead);
        alive.for_each(|source| source.source.lease.touch(now));
    }

    /// Forgets the connections, as a new start of the gateway does.
    pub(super) fn disconnect(&mut self) {
        *self = Self::default();
    }

    /// Ends a source without notice. A target leaves discovery.
    pub(super) fn kill(&mut self, name: &str) -> Vec<TestData> {
        if let Some(source) = self.sources.get_mut(name) {
            source.is_dead = true;
        }
        let of_name = self.targets.iter_mut().filter(|target| target.source == name);
        let ended = of_name.map(|target| {
            let points = target.leave();
            target.data(points)
        });
        ended.collect()
    }

    /// Fails a scrape of a target, but for one that has failed at this time.
    pub(super) fn fail(&mut self, name: &str) -> Vec<TestData> {
        let now = unix_now();
        let of_name = self.targets.iter_mut().filter(|target| target.source == name);
        let there = of_name.filter(|target| !target.is_gone && target.failed != Some(now));
        let failed = there.map(|target| {
            let points = target.fail();
            target.data(points)
        });
        failed.collect()
    }

    /// Ends a source of events. The next events of this name are those of a new process.
    pub(super) fn reset(&mut self, name: &str) {
        if let Some(source) = self.sources.remove(name) {
            source.source.lease.end();
        }
    }

    /// The data of an arrival.
    ///
    /// # Errors
    /// The input can't be read.
    pub(super) fn data(
        &mut self,
        arrival: &Arrival<'_>,
        receiver: String,
        clock: &TestClock,
        directory: &Path,
    ) -> Result<TestData, String> {
        let input = &arrival.input.value;
        let batch = if !input.events.is_empty() {
            Batch::new(self.events(input))
        } else if !input.points.is_empty() {
            points_batch(points(input, arrival.repetition, clock))
        } else if let Some(text) = &input.text {
            points_batch(self.scrape(arrival, &receiver, text)?)
        } else if let Some(request) = &input.otlp {
            otlp(request.to_json(), clock)?
        } else if let Some(file) = &input.file {
            let path = directory.join(file);
            let text = read_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let request = serde_json::from_str(&text);
            let request = request.map_err(|error| format!("{}: {error}", path.display()))?;
            otlp(request, clock)?
        } else {
            return Err("the input has no data".to_owned());
        };
        Ok(TestData { receiver, batch })
    }

    fn events(&mut self, input: &TestInput) -> Events {
        let known = self.sources.get(&input.source).filter(|known| !known.is_dead);
        let source = known.map_or_else(|| Arc::new(new_source(input)), |known| known.source.clone());
        let entry = EventSource {
            source: source.clone(),
            is_dead: false,
        };
        self.sources.insert(input.source.clone(), entry);
        let mut events = Events {
            source,
            schema: Arc::new(Schema {
                kinds: input.events.iter().map(event_kind).collect(),
            }),
            kinds: Vec::new(),
            values: Values::F64(Vec::new()),
            times: None,
            weights: None,
            observed: unix_now(),
        };
        let mut values = Vec::new();
        for (kind, event) in (0..=u16::MAX).zip(&input.events) {
            for _ in 0..event.count {
                events.kinds.push(kind);
                values.push(event.value);
            }
        }
        events.values = Values::F64(values);
        events
    }

    fn scrape(&mut self, arrival: &Arrival<'_>, receiver: &str, page: &str) -> Result<Vec<Point>, String> {
        let input = &arrival.input.value;
        let mut targets = self.targets.iter();
        let known = targets.position(|target| target.receiver == receiver && target.source == input.source);
        let at = known.unwrap_or_else(|| {
            self.targets.push(ScrapedTarget::new(input, receiver));
            self.targets.len() - 1
        });
        let target = &mut self.targets[at];
        target.is_gone = false;
        match arrival.is_up {
            Some(false) => Ok(target.fail()),
            says_up => target.page(page, says_up.is_some()),
        }
    }
}

fn new_source(input: &TestInput) -> Source {
    Source {
        id: SourceId::next(),
        resource: Arc::new(resource(input)),
        scope: Arc::default(),
        attributes: attributes(&input.source_attributes),
        lease: Arc::new(Lease::new(LEASE, unix_now())),
    }
}

fn resource(input: &TestInput) -> Resource {
    Resource {
        attributes: attributes(&input.resource),
        schema_url: Arc::default(),
    }
}

fn event_kind(event: &TestEvent) -> EventKind {
    EventKind {
        name: event.name.as_str().into(),
        description: Arc::default(),
        unit: event.unit.as_str().into(),
        instrument: match event.instrument {
            EventInstrument::Counter => Instrument::Counter,
            EventInstrument::UpDownCounter => Instrument::UpDownCounter,
            EventInstrument::Gauge => Instrument::Gauge,
            EventInstrument::Histogram => Instrument::Histogram,
        },
        attributes: attributes(&event.attributes),
    }
}

fn attributes(entries: &Ordered<Node>) -> Attributes {
    let entries = entries.iter();
    entries.map(|(key, node)| (key, attribute(node))).collect()
}

/// A scalar as an attribute. Lists and maps become their JSON.
fn attribute(node: &Node) -> AttributeValue {
    match node.scalar() {
        None => node.to_json().to_string().into(),
        Some(Scalar { kind, text, .. }) => match *kind {
            ScalarKind::Null => AttributeValue::Empty,
            ScalarKind::Bool(truth) => truth.into(),
            ScalarKind::Int(number) => match i64::try_from(number) {
                Ok(number) => number.into(),
                Err(_) => text.as_str().into(),
            },
            ScalarKind::Float(number) => number.into(),
            ScalarKind::Str => text.as_str().into(),
        },
    }
}

fn points(input: &TestInput, repetition: u32, clock: &TestClock) -> Vec<Point> {
    let (resource, scope) = (Arc::new(resource(input)), Arc::new(Scope::default()));
    let points = input.points.iter().map(|point| {
        let metric = Metric {
            name: point.name.as_str().into(),
            description: Arc::default(),
            unit: point.unit.as_str().into(),
            data: data(point.kind),
            metadata: Attributes::default(),
        };
        let series = Series {
            resource: resource.clone(),
            scope: scope.clone(),
            metric: Arc::new(metric),
            attributes: attributes(&point.attributes),
        };
        let time = unix_now().saturating_sub(nanos(point.late));
        Point {
            series: Arc::new(series),
            start: start(point, time, clock),
            time,
            value: Value::Double(point.step.mul_add(f64::from(repetition), point.value)),
            exemplars: Vec::new(),
        }
    });
    points.collect()
}

/// The start of a total. Deltas and gauges name none.
fn start(point: &TestPoint, time: UnixNanos, clock: &TestClock) -> UnixNanos {
    match point.kind {
        PointType::Gauge | PointType::Delta => 0,
        PointType::Counter | PointType::UpDownCounter => clock.time(point.begun).min(time),
    }
}

fn data(kind: PointType) -> Data {
    let sum = |monotonic, temporality| Data::Sum {
        monotonic,
        temporality,
    };
    match kind {
        PointType::Gauge => Data::Gauge,
        PointType::Counter => sum(true, Temporality::Cumulative),
        PointType::UpDownCounter => sum(false, Temporality::Cumulative),
        PointType::Delta => sum(true, Temporality::Delta),
    }
}

fn points_batch(points: Vec<Point>) -> Batch {
    Batch::new(Points {
        points: points.into(),
    })
}

/// A request in OTLP/JSON. Its first key names the signal.
fn otlp(mut request: serde_json::Value, clock: &TestClock) -> Result<Batch, String> {
    const KEYS: [(&str, Signal); 3] = [
        ("resourceMetrics", Signal::Metrics),
        ("resourceSpans", Signal::Traces),
        ("resourceLogs", Signal::Logs),
    ];
    let signal = KEYS.into_iter().find(|(key, _)| request.get(key).is_some());
    let (_, signal) = signal.ok_or("expected `resourceMetrics`, `resourceSpans` or `resourceLogs`")?;
    set_times(&mut request, clock)?;
    let bytes = json::to_protobuf(signal, request.to_string().as_bytes());
    let bytes = bytes.map_err(|error| error.to_string())?;
    let encoded = wire::check(signal, bytes).map_err(|error| error.to_string())?;
    Ok(Batch::new(encoded))
}

/// Replaces the names of times: `now`, `now-10s` and `start`.
fn set_times(value: &mut serde_json::Value, clock: &TestClock) -> Result<(), String> {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().try_for_each(|item| set_times(item, clock)),
        serde_json::Value::Object(entries) => entries.iter_mut().try_for_each(|(key, value)| {
            match value.as_str().filter(|_| key.ends_with("UnixNano")) {
                Some(text) => *value = named_time(text, clock)?.into(),
                None => set_times(value, clock)?,
            }
            Ok(())
        }),
        _ => Ok(()),
    }
}

/// The decimal digits of a named time. Digits stay.
fn named_time(text: &str, clock: &TestClock) -> Result<String, String> {
    let now = unix_now();
    let time = match text {
        "now" => now,
        "start" => clock.time(Duration::ZERO),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => return Ok(digits.to_owned()),
        _ => {
            let age = text.strip_prefix("now-");
            let age = age.and_then(|age| humantime::parse_duration(age).ok());
            let age = age.ok_or_else(|| format!("`{text}` is not a time: expected now, now-10s or start"))?;
            now.saturating_sub(nanos(age))
        }
    };
    Ok(time.to_string())
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Number;

    use super::*;
    use crate::config::{Decode, Problems, parse_text};

    fn decoded(inputs: &str) -> Vec<Located<TestInput>> {
        let mut problems = Problems::default();
        let node = parse_text("a.yaml", inputs, &mut problems).expect("YAML");
        let inputs = Vec::<Located<TestInput>>::decode(&node, &mut problems);
        inputs.unwrap_or_else(|| panic!("{problems}"))
    }

    /// The times of the arrivals in milliseconds, with the positions of their inputs.
    fn times(inputs: &str, end: u64) -> Vec<(u128, usize)> {
        let inputs = decoded(inputs);
        let all = arrivals(&inputs, Duration::from_secs(end)).expect("few");
        let position = |arrival: &Arrival<'_>| {
            let mut inputs = inputs.iter();
            inputs.position(|input| std::ptr::eq(input, arrival.input))
        };
        let all = all.iter();
        all.map(|arrival| (arrival.at.as_millis(), position(arrival).expect("its input")))
            .collect()
    }

    #[test]
    fn inputs_come_by_time_and_then_in_the_order_of_the_file() {
        let inputs = "[{at: 2s, text: ''}, {every: 1s, text: ''}, {text: ''}]";
        let expected = [(0, 1), (0, 2), (1000, 1), (2000, 0), (2000, 1)];
        assert_eq!(times(inputs, 2), expected);
    }

    #[test]
    fn a_repetition_ends_by_its_number_its_time_or_the_death_of_its_source() {
        let only = |inputs: &str| times(inputs, 10).iter().filter(|(_, at)| *at == 0).count();
        assert_eq!(only("[{every: 1s, text: ''}]"), 11);
        assert_eq!(only("[{every: 1s, times: 3, text: ''}]"), 3);
        assert_eq!(only("[{every: 1s, until: 1500ms, text: ''}]"), 2);
        assert_eq!(only("[{every: 1s, source: a, text: ''}, {at: 4s, dead: a}]"), 4);
        assert_eq!(only("[{every: 1s, source: b, text: ''}, {at: 4s, dead: a}]"), 11);
    }

    #[test]
    fn scrapes_fail_from_the_time_of_down_until_its_end() {
        let of_first = |inputs: &str| {
            let inputs = decoded(inputs);
            let all = arrivals(&inputs, Duration::from_secs(4)).expect("few");
            let first = all
                .iter()
                .filter(|arrival| std::ptr::eq(arrival.input, &raw const inputs[0]));
            first.map(|arrival| arrival.is_up).collect::<Vec<_>>()
        };
        let [good, failed] = [Some(true), Some(false)];
        assert_eq!(
            of_first("[{every: 1s, source: a, text: ''}, {at: 1500ms, until: 3s, down: a}]"),
            [good, good, failed, failed, good]
        );
        assert_eq!(
            of_first("[{every: 2s, source: a, text: ''}, {at: 2s, down: a}]"),
            [good, failed, failed]
        );
        assert_eq!(
            of_first("[{source: b, text: ''}, {source: a, text: ''}, {down: a}]"),
            [None]
        );
    }

    /// The names and numbers of points. The end of a series has none.
    fn seen(points: &[Point]) -> Vec<(&str, Option<f64>)> {
        let points = points.iter();
        let number = |point: &Point| point.value.number().map(Number::as_f64);
        points
            .map(|point| (&*point.series.metric.name, number(point)))
            .collect()
    }

    #[test]
    fn a_failed_scrape_ends_the_series_and_says_that_the_target_is_down() {
        let inputs = decoded("[{source: a, text: '', labels: {job: j, instance: i, zone: z}}]");
        let mut target = ScrapedTarget::new(&inputs[0].value, "prometheus");
        let page = target.page("depth 3\n", true).expect("a page");
        assert_eq!(seen(&page), [("depth", Some(3.0)), ("up", Some(1.0))]);
        assert_eq!(page[0].series.resource, page[1].series.resource);
        assert_eq!(page[0].series.attributes, page[1].series.attributes);
        assert_eq!(seen(&target.fail()), [("depth", None), ("up", Some(0.0))]);
        assert_eq!(seen(&target.fail()), [("up", Some(0.0))]);
        assert_eq!(seen(&target.leave()), [("up", None)]);
        assert!(target.leave().is_empty());
    }
}
