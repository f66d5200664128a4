// SPDX-License-Identifier: Apache-2.0

//! One pipeline feeds destinations that want different temporalities; the next delta contains the increase that a full
//! queue dropped.

use opentelemetry_proto::tonic::metrics::v1 as otlp;
use parking_lot::Mutex;
use prost::Message;
use tidegate_engine::{
    Attributes, Data, EventKind, Events, Instrument, Lease, Schema, Source, SourceId, Temporality, Value,
    Values,
};
use tidegate_requests::{counter, gauge, int, metric, request};

use super::*;
use crate::batch::{convert, wire};
use crate::component::{Balance, FanOut, Ledger, Shared};
use crate::delivery::temporality::Conversion;
use tidegate_wal::State;

/// A point: what it covers, from when, until when, and how much.
type Got = (Temporality, u64, u64, i64);

/// Keeps the points that it is sent, once it may.
#[derive(Clone)]
struct Peer {
    got: Arc<Mutex<Vec<Got>>>,
    permits: Arc<Semaphore>,
}

#[async_trait]
impl Attempt for Peer {
    async fn send(&self, export: ExportRequest) -> Outcome {
        self.permits.acquire().await.expect("never closed").forget();
        let points = convert::points(&export.encoded()).expect("a request");
        self.got.lock().extend(points.iter().map(|point| {
            let value = match &point.value {
                Value::Int(value) => *value,
                Value::Histogram(histogram) => histogram.count as i64,
                other => panic!("{other:?}"),
            };
            let data: Data = point.series.metric.data;
            (data.temporality(), point.start, point.time, value)
        }));
        Outcome::Done
    }
}

struct Side {
    destination: Arc<Destination<Peer>>,
    ledger: Arc<Ledger>,
    peer: Peer,
}

async fn side(temporality: TemporalityChoice, queue: QueueConfig) -> Side {
    let delivery = Delivery {
        queue,
        temporality,
        ..delivery()
    };
    let cx = exporter_context("exporters::otlp/x");
    let ledger = ledgers(&cx)[0].clone();
    let peer = Peer {
        got: Arc::default(),
        permits: Arc::new(Semaphore::new(0)),
    };
    let destination = Arc::new(Destination::new(cx, &delivery, peer.clone()));
    destination.start().await.unwrap();
    Side {
        destination,
        ledger,
        peer,
    }
}

impl Side {
    /// The outcome of the items, and those that were sent.
    async fn end(self) -> (Balance, Vec<Got>) {
        self.peer.permits.add_permits(1000);
        self.destination
            .stop(Instant::now() + Duration::from_secs(60))
            .await;
        let got = self.peer.got.lock().clone();
        (self.ledger.balance(), got)
    }

    fn edge(&self) -> Arc<dyn Consumer> {
        let edge = crate::component::Edge::new(None, self.ledger.clone(), self.destination.clone());
        Arc::new(edge)
    }
}

fn now() -> u64 {
    crate::component::unix_now()
}

/// A counter, a histogram and a gauge with these values.
fn batch(temporality: otlp::AggregationTemporality, start: u64, time: u64, value: i64) -> Batch {
    let number = otlp::NumberDataPoint {
        start_time_unix_nano: start,
        time_unix_nano: time,
        ..int(value)
    };
    let histogram = otlp::HistogramDataPoint {
        start_time_unix_nano: start,
        time_unix_nano: time,
        count: value as u64,
        sum: Some(value as f64),
        bucket_counts: vec![value as u64, 0],
        explicit_bounds: vec![1.0],
        ..Default::default()
    };
    let sum = otlp::Sum {
        data_points: vec![number.clone()],
        aggregation_temporality: temporality.into(),
        is_monotonic: true,
    };
    let histogram = otlp::Histogram {
        data_points: vec![histogram],
        aggregation_temporality: temporality.into(),
    };
    let metrics = [
        metric("s", otlp::metric::Data::Sum(sum)),
        metric("h", otlp::metric::Data::Histogram(histogram)),
        gauge("g", [number]),
    ];
    let request = request(Vec::new(), "", metrics);
    Batch::new(wire::check(Signal::Metrics, request.encode_to_vec().into()).expect("a request"))
}

const CUMULATIVE: otlp::AggregationTemporality = otlp::AggregationTemporality::Cumulative;
const DELTA: otlp::AggregationTemporality = otlp::AggregationTemporality::Delta;

/// Those of one temporality; gauges count as cumulative, and their values exclude them.
fn of(points: &[Got], wanted: Temporality) -> Vec<i64> {
    let of = points.iter().filter(|(temporality, ..)| *temporality == wanted);
    of.map(|(.., value)| *value).collect()
}

#[test]
fn streams_that_find_no_memory_are_refused_and_counted_and_known_go_on() {
    let shared = Shared::default();
    // A quarter of it is for the streams of a destination.
    shared.memory.set_default_limit(8 << 20);
    let delivery = Delivery {
        temporality: TemporalityChoice::Delta,
        ..delivery()
    };
    let ledger = Arc::<Ledger>::default();
    let conversion = Conversion::new(&delivery, Some(&ledger), shared.memory.bounds_of_tables());
    let conversion = conversion.expect("it converts");
    let start = now();
    let convert = |stream: usize, value: i64| {
        let point = otlp::NumberDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: start + value as u64,
            ..int(value)
        };
        let sum = otlp::Sum {
            data_points: vec![point],
            aggregation_temporality: CUMULATIVE.into(),
            is_monotonic: true,
        };
        let name = format!("{stream}{}", "x".repeat(20_000));
        let request = request(Vec::new(), "", [metric(name, otlp::metric::Data::Sum(sum))]);
        let checked = wire::check(Signal::Metrics, request.encode_to_vec().into());
        let batch = Batch::new(checked.expect("a request"));
        conversion.convert(batch, None, &mut Flow::default()).items()
    };
    let taken: Vec<usize> = (0..300).filter(|stream| convert(*stream, 1) == 1).collect();
    assert!((50..105).contains(&taken.len()), "{}", taken.len());
    let refused = || ledger.balance().dropped[Reason::Limit as usize];
    assert_eq!(refused(), 300 - taken.len() as u64);
    assert!(taken.iter().all(|stream| convert(*stream, 2) == 1));
    assert_eq!(refused(), 300 - taken.len() as u64);
}

#[test]
fn places_of_a_former_run_that_find_no_memory_are_counted() {
    let delivery = Delivery {
        temporality: TemporalityChoice::Delta,
        ..delivery()
    };
    let conversion = |shared: &Shared, ledger: &Arc<Ledger>| {
        let made = Conversion::new(&delivery, Some(ledger), shared.memory.bounds_of_tables());
        made.expect("it converts")
    };
    let former = conversion(&Shared::default(), &Arc::default());
    let metrics = (0..3000).map(|stream| counter(format!("m{stream}"), [int(1)]));
    let request = request(Vec::new(), "", metrics);
    let checked = wire::check(Signal::Metrics, request.encode_to_vec().into());
    former.convert(
        Batch::new(checked.expect("a request")),
        None,
        &mut Flow::default(),
    );
    let mut saved = Vec::new();
    former.save(&mut || ())(&mut saved).unwrap();
    let shared = Shared::default();
    // A quarter of it is for the streams of a destination.
    shared.memory.set_default_limit(512 << 10);
    let ledger = Arc::<Ledger>::default();
    let next = conversion(&shared, &ledger);
    next.restore(&saved);
    next.note_lost("exporters::x");
    let balance = ledger.balance();
    let lost = balance.dropped[Reason::Limit as usize];
    assert!((1..3000).contains(&lost), "{lost}");
    assert_eq!((balance.restored, balance.held()), (lost, 0));
    next.note_lost("exporters::x");
    assert_eq!(ledger.balance(), balance, "once");
}

#[tokio::test]
async fn destinations_of_one_pipeline_get_the_temporality_that_each_wants() {
    let deltas = side(TemporalityChoice::Delta, QueueConfig::default()).await;
    let totals = side(TemporalityChoice::Cumulative, QueueConfig::default()).await;
    let both = FanOut::to(None, vec![deltas.edge(), totals.edge()]);
    let start = now();
    both.push(batch(CUMULATIVE, start, start + 10, 5)).unwrap();
    both.push(batch(CUMULATIVE, start, start + 20, 12)).unwrap();
    both.push(batch(DELTA, start + 20, start + 30, 3)).unwrap();
    both.push(batch(DELTA, start + 30, start + 40, 4)).unwrap();
    let (balance, got) = deltas.end().await;
    assert_eq!((balance.entered, balance.left), (12, 12));
    // Counter and histogram each; a series that says deltas is another series, and stays as it is.
    let mut found = of(&got, Temporality::Delta);
    found.sort_unstable();
    assert_eq!(found, [3, 3, 4, 4, 5, 5, 7, 7]);
    let (balance, got) = totals.end().await;
    assert_eq!((balance.entered, balance.left), (12, 12));
    assert!(of(&got, Temporality::Delta).is_empty());
    let mut found = of(&got, Temporality::Cumulative);
    found.sort_unstable();
    // Twice each of the given totals and of 3 and 3 + 4, and the gauges.
    assert_eq!(found, [3, 3, 3, 4, 5, 5, 5, 7, 7, 12, 12, 12]);
}

#[tokio::test]
async fn silent_streams_are_forgotten_while_nothing_comes() {
    let side = side(TemporalityChoice::Delta, QueueConfig::default()).await;
    let start = now();
    side.edge().push(batch(CUMULATIVE, start, start + 10, 5)).unwrap();
    side.peer.permits.add_permits(1);
    balance_when(&side.ledger, |balance| balance.left == 3).await;
    let conversion = side.destination.inner().conversion.clone().expect("it converts");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(conversion.streams(), 2, "the counter and the histogram");
    let two_hours = Duration::from_hours(2);
    conversion.ahead.store(two_hours.as_nanos() as u64, SeqCst);
    let forgotten = async {
        while conversion.streams() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let forgotten = tokio::time::timeout(Duration::from_secs(60), forgotten).await;
    forgotten.expect("nothing looks through the streams");
    side.end().await;
}

#[tokio::test]
async fn a_full_queue_that_drops_leaves_the_increase_to_the_next_delta() {
    let queue = QueueConfig {
        on_full: OnFull::Drop,
        queue_size: 1.try_into().unwrap(),
        ..QueueConfig::default()
    };
    let side = side(TemporalityChoice::Delta, queue).await;
    let start = now();
    let edge = side.edge();
    edge.push(batch(CUMULATIVE, start, start + 10, 5)).unwrap();
    edge.push(batch(CUMULATIVE, start, start + 20, 9)).unwrap();
    side.peer.permits.add_permits(1);
    balance_when(&side.ledger, |balance| balance.left == 3).await;
    edge.push(batch(CUMULATIVE, start, start + 30, 11)).unwrap();
    let (balance, got) = side.end().await;
    assert_eq!(balance.dropped[Reason::QueueFull as usize], 3);
    let deltas: Vec<_> = got.iter().filter(|(of, ..)| *of == Temporality::Delta).collect();
    let whole = [(start, start + 10, 5), (start + 10, start + 30, 6)];
    for (start, time, value) in whole {
        let same = deltas
            .iter()
            .filter(|point| (point.1, point.2, point.3) == (start, time, value));
        assert_eq!(same.count(), 2, "{deltas:?}");
    }
}

#[tokio::test]
async fn streams_older_than_the_gateway_are_baselines_and_counted() {
    let side = side(TemporalityChoice::Delta, QueueConfig::default()).await;
    let edge = side.edge();
    edge.push(batch(CUMULATIVE, 5, 10, 1_000_000)).unwrap();
    edge.push(batch(CUMULATIVE, 5, 20, 1_000_001)).unwrap();
    // More than was known of a later time.
    edge.push(batch(CUMULATIVE, 5, 15, 1_000_007)).unwrap();
    let (balance, got) = side.end().await;
    assert_eq!(of(&got, Temporality::Delta), [1, 1]);
    assert_eq!((balance.absorbed, balance.dropped[Reason::Late as usize]), (2, 2));
    assert_eq!((balance.held(), balance.left), (0, 5));
}

/// Values of a counter, each with its time.
fn events(said: &[(u64, u64)]) -> Events {
    let kind = EventKind {
        name: "hits".into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: Attributes::default(),
    };
    let source = Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: Attributes::default(),
        lease: Arc::new(Lease::new(Duration::from_mins(1), now())),
    };
    Events {
        source: Arc::new(source),
        schema: Arc::new(Schema { kinds: vec![kind] }),
        kinds: vec![0; said.len()],
        values: Values::U64(said.iter().map(|(value, _)| *value).collect()),
        times: Some(said.iter().map(|(_, time)| *time).collect()),
        weights: None,
        observed: now(),
    }
}

const DAY_NS: u64 = 86_400_000_000_000;

#[tokio::test]
async fn a_point_from_the_future_is_counted_and_its_stream_goes_on() {
    let side = side(TemporalityChoice::Delta, QueueConfig::default()).await;
    let edge = side.edge();
    let start = now();
    edge.push(batch(CUMULATIVE, start, start + 10, 5)).unwrap();
    let outcome = edge.push(batch(CUMULATIVE, start, start + DAY_NS, 7)).unwrap();
    assert_eq!(outcome.rejected_items, 2, "the answer reports it");
    edge.push(batch(CUMULATIVE, start, start + 20, 9)).unwrap();
    let (balance, got) = side.end().await;
    let mut found = of(&got, Temporality::Delta);
    found.sort_unstable();
    assert_eq!(found, [4, 4, 5, 5]);
    assert_eq!(balance.dropped[Reason::Future as usize], 2);
    // The gauge of that time passes as it is.
    assert_eq!((balance.held(), balance.left), (0, 7));
}

#[tokio::test]
async fn an_event_from_the_future_is_cut_out_and_those_beside_it_are_added_up() {
    let side = side(TemporalityChoice::Cumulative, QueueConfig::default()).await;
    let edge = side.edge();
    let now = now();
    for (first, second) in [(now, now + DAY_NS), (now + 1, u64::MAX)] {
        edge.push(Batch::new(events(&[(3, first), (100, second)])))
            .unwrap();
    }
    let (balance, got) = side.end().await;
    assert_eq!(of(&got, Temporality::Cumulative), [3, 6]);
    assert_eq!(balance.dropped[Reason::Future as usize], 2);
    assert_eq!((balance.held(), balance.left), (0, 2));
}
