// SPDX-License-Identifier: Apache-2.0

//! The processes that send the inputs of a test, and the batches of their data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    AttributeValue, Attributes, Data, EventKind, Events, Instrument, Lease, Metric, Point, Resource, Schema,
    Scope, Series, Source, SourceId, Temporality, UnixNanos, Value, Values,
};

use super::arrival::Arrival;
use super::file::{EventInstrument, PointType, TestEvent, TestInput, TestPoint};
use super::gateway::{TestClock, nanos};
use super::otlp;
use super::target::ScrapedTarget;
use crate::batch::{Batch, Points};
use crate::component::unix_now;
use crate::config::{Node, Ordered, Scalar, ScalarKind, read_file};

/// The time for which a source of events counts as alive without a sign of life.
const LEASE: Duration = Duration::from_secs(30);

/// A process that sends events.
struct EventSource {
    source: Arc<Source>,
    is_dead: bool,
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
            target_data(target, points)
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
            target_data(target, points)
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
            otlp::batch(request.to_json(), clock)?
        } else if let Some(file) = &input.file {
            let path = directory.join(file);
            let text = read_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let request = serde_json::from_str(&text);
            let request = request.map_err(|error| format!("{}: {error}", path.display()))?;
            otlp::batch(request, clock)?
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

fn target_data(target: &ScrapedTarget, points: Vec<Point>) -> TestData {
    TestData {
        receiver: target.receiver.clone(),
        batch: points_batch(points),
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
