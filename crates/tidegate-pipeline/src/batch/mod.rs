// SPDX-License-Identifier: Apache-2.0

//! The data on an edge of the graph: wire bytes before decoding, events, or points. Immutable, cheap to clone.

mod batching;
mod client;
#[cfg(test)]
mod partition_tests;
mod snapshot;
mod split;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_engine::{Events, Lease, Point};

pub use batching::{BatchMetrics, Batching, Sizer, Trigger};
pub use client::ClientMetadata;
pub use snapshot::snapshot;
pub use tidegate_otlp::{Encoded, Part, Signal, TelemetryEncoding, convert, json, stream_id, wire};

/// The data on an edge.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The telemetry.
    pub payload: Payload,
    /// When the gateway received the (oldest) data in it.
    pub arrived: Instant,
    /// How the destinations' queues should join it with others; set by the last `batch` processor it passed.
    pub batching: Option<Batching>,
    /// The metadata that is kept of the request that brought it.
    pub client: Option<Arc<ClientMetadata>>,
    /// The address of the connection that brought it. `None`: it came over no TCP connection, from a table or from disk.
    pub peer: Option<IpAddr>,
    /// The owner of a table, if the points are contents of this table that nothing has edited. Exporters that read
    /// the table ignore the batch. The edges to processors that edit set it to `None`.
    pub snapshot_of: Option<Arc<str>>,
    /// Whether the points are contents of a table, edited or not. The start of such a total may move back.
    pub is_snapshot: bool,
    /// The lease of the source of the points, if its receiver sees it live and die. Such a source sends only changes, so its
    /// silence means that nothing has changed.
    pub lease: Option<Arc<Lease>>,
}

/// The telemetry of a batch.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Checked and counted, otherwise untouched wire bytes of any signal.
    Encoded(Encoded),
    /// Metrics: measurements before aggregation.
    Events(Arc<Events>),
    /// Metrics: decoded points.
    Points(Points),
}

impl Batch {
    /// A batch that arrives now.
    pub fn new(payload: impl Into<Payload>) -> Self {
        Self {
            payload: payload.into(),
            arrived: Instant::now(),
            batching: None,
            client: None,
            peer: None,
            snapshot_of: None,
            is_snapshot: false,
            lease: None,
        }
    }

    /// The same age and wishes, another payload: the output of a processor.
    pub fn with(&self, payload: impl Into<Payload>) -> Self {
        Self {
            payload: payload.into(),
            arrived: self.arrived,
            batching: self.batching.clone(),
            client: self.client.clone(),
            peer: self.peer,
            snapshot_of: self.snapshot_of.clone(),
            is_snapshot: self.is_snapshot,
            lease: self.lease.clone(),
        }
    }

    /// Which signal it is.
    pub fn signal(&self) -> Signal {
        match &self.payload {
            Payload::Encoded(encoded) => encoded.signal,
            Payload::Events(_) | Payload::Points(_) => Signal::Metrics,
        }
    }

    /// How many points, spans or log records.
    pub fn items(&self) -> usize {
        self.payload.items()
    }

    /// The name of the first item, for people; the kind of item if it has no name.
    pub fn first_name(&self) -> String {
        let name = match &self.payload {
            Payload::Encoded(encoded) => wire::first_name(encoded),
            Payload::Points(points) => points
                .points
                .first()
                .map_or_else(String::new, |point| point.series.metric.name.to_string()),
            Payload::Events(events) => {
                let kind = events
                    .kinds
                    .first()
                    .and_then(|kind| events.schema.kinds.get(usize::from(*kind)));
                kind.map_or_else(String::new, |kind| kind.name.to_string())
            }
        };
        if name.is_empty() {
            self.signal().items().to_owned()
        } else {
            name
        }
    }

    /// Its approximate memory with the headers that it keeps, in bytes; admission and queues count this.
    pub fn bytes(&self) -> usize {
        let lists: usize = match &self.payload {
            Payload::Points(points) => points.points.iter().map(Point::bytes).sum(),
            Payload::Encoded(_) | Payload::Events(_) => 0,
        };
        let client = self.client.as_ref().map_or(0, |client| client.bytes());
        self.payload.bytes() + lists + client
    }
}

impl Payload {
    /// How large it is, about, at a glance: requests are joined and cut by this. All points count as numbers.
    pub fn bytes(&self) -> usize {
        /// Kind, value, time and a share of the schema.
        const EVENT_BYTES: usize = 24;
        /// A number point with its share of an interned series.
        const POINT_BYTES: usize = 128;
        match self {
            Self::Encoded(encoded) => encoded.bytes(),
            Self::Events(events) => events.len() * EVENT_BYTES,
            Self::Points(points) => points.points.len() * POINT_BYTES,
        }
    }

    /// How many points, spans or log records.
    pub fn items(&self) -> usize {
        match self {
            Self::Encoded(encoded) => encoded.items(),
            Self::Events(events) => events.len(),
            Self::Points(points) => points.points.len(),
        }
    }

    /// Its length as OTLP protobuf. Payloads that are not wire bytes are encoded for this.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Encoded(encoded) => encoded.bytes(),
            Self::Events(_) | Self::Points(_) => self.encode().bytes(),
        }
    }

    /// As wire bytes; an encoded payload is shared.
    pub fn encode(&self) -> Encoded {
        match self {
            Self::Encoded(encoded) => encoded.clone(),
            Self::Points(points) => convert::encode_points(&points.points),
            Self::Events(events) => convert::encode_points(&convert::events_to_points(events)),
        }
    }
}

impl From<Encoded> for Payload {
    fn from(encoded: Encoded) -> Self {
        Self::Encoded(encoded)
    }
}

impl From<Events> for Payload {
    fn from(events: Events) -> Self {
        Self::Events(Arc::new(events))
    }
}

impl From<Points> for Payload {
    fn from(points: Points) -> Self {
        Self::Points(points)
    }
}

/// Decoded points.
#[derive(Clone, Debug)]
pub struct Points {
    /// The points.
    pub points: Arc<[Point]>,
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use tidegate_engine::{Attributes, Data, Exemplar, Histogram, Metric, Series, Value};

    use super::*;

    fn batch(value: Value, exemplars: Vec<Exemplar>) -> Batch {
        let metric = Metric {
            name: "m".into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        };
        let series = Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(metric),
            attributes: Attributes::default(),
        };
        let point = Point {
            series: Arc::new(series),
            start: 0,
            time: 1,
            value,
            exemplars,
        };
        Batch::new(Points {
            points: [point].into(),
        })
    }

    #[test]
    fn buckets_exemplars_and_headers_count_as_bytes_but_cut_no_requests() {
        let number = batch(Value::Int(1), Vec::new());
        let histogram = Histogram {
            bounds: vec![0.0; 999].into(),
            counts: vec![1; 1000],
            ..Histogram::default()
        };
        let histogram = batch(Value::Histogram(Box::new(histogram)), Vec::new());
        let lists = histogram.bytes() - number.bytes();
        assert!((8 * 1999..8 * 2100).contains(&lists), "{lists}");
        let exemplar = Exemplar {
            trace_id: vec![1; 16],
            ..Exemplar::default()
        };
        let exemplars = batch(Value::Int(1), vec![exemplar; 100]);
        assert!(exemplars.bytes() > number.bytes() + 100 * size_of::<Exemplar>());
        let value = HeaderValue::from_str(&"v".repeat(60_000)).unwrap();
        let headers = HeaderMap::from_iter([(http::header::USER_AGENT, value)]);
        let kept = Batch {
            client: Some(Arc::new(ClientMetadata::new(headers))),
            ..number.clone()
        };
        assert!(kept.bytes() > number.bytes() + 60_000);
        for other in [histogram, exemplars, kept] {
            assert_eq!(other.payload.bytes(), number.payload.bytes());
        }
    }
}
