// SPDX-License-Identifier: Apache-2.0

//! For tests of processors: events, points and encoded requests of little content.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use tidegate_engine::{
    Attributes, Data, EventKind, Events, Instrument, Lease, Metric, Point, Schema, Series, Source, SourceId,
    Value, Values,
};
use tidegate_requests::{gauge, int, request};

use crate::batch::{Encoded, Signal};
use crate::component::testing::{Sink, context};
use crate::component::{Context, Ledger, ProcessorContext, unix_now};

/// A processor's context that leads to `sink`, with the parts that a test looks at.
pub(super) fn processor_context(id: &str, sink: &Arc<Sink>) -> (ProcessorContext, Context, Arc<Ledger>) {
    let (base, ledger) = (context("processors", id), Arc::<Ledger>::default());
    let cx = ProcessorContext {
        base: base.clone(),
        pipeline: "metrics".into(),
        signal: Signal::Metrics,
        next: sink.clone(),
        replaced: Vec::new(),
        ledger: ledger.clone(),
    };
    (cx, base, ledger)
}

pub(super) fn kind(name: &str, instrument: Instrument, attributes: &[(&str, &str)]) -> EventKind {
    EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument,
        attributes: attributes.iter().copied().collect(),
    }
}

/// Events of a new source: kinds, and (kind, value) of each event.
pub(super) fn events(agent: &str, kinds: Vec<EventKind>, columns: &[(u16, u64)]) -> Events {
    let now = unix_now();
    let source = Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: [("agent_name", agent), ("hostname", "vm")].into_iter().collect(),
        lease: Arc::new(Lease::new(Duration::from_secs(60), now)),
    };
    Events {
        source: Arc::new(source),
        schema: Arc::new(Schema { kinds }),
        kinds: columns.iter().map(|(kind, _)| *kind).collect(),
        values: Values::U64(columns.iter().map(|(_, value)| *value).collect()),
        times: None,
        weights: None,
        observed: now,
    }
}

pub(super) fn point(name: &str, data: Data, attributes: &[(&str, &str)], value: Value) -> Point {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "us".into(),
        data,
        metadata: Attributes::default(),
    };
    let series = Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(metric),
        attributes: attributes.iter().copied().collect(),
    };
    let time = unix_now();
    Point {
        series: Arc::new(series),
        start: time - 1,
        time,
        value,
        exemplars: Vec::new(),
    }
}

/// A request with a gauge of one point for each (name, value).
pub(super) fn encoded(gauges: &[(&str, i64)]) -> Encoded {
    let metric = |(name, value): &(&str, i64)| {
        let point = NumberDataPoint {
            time_unix_nano: unix_now(),
            ..int(*value)
        };
        gauge(*name, [point])
    };
    let request = request(Vec::new(), "", gauges.iter().map(metric));
    Encoded::one(Signal::Metrics, request.encode_to_vec().into(), gauges.len())
}
