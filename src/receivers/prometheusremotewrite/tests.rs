// SPDX-License-Identifier: Apache-2.0

//! Requests against a real socket, into a sink that refuses on request.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, RETRY_AFTER};
use proptest::prelude::*;
use tidegate_engine::Value;

use super::*;
use crate::batch::Payload;
use crate::component::Account;
use crate::component::testing::{Sink, context, free_port, settings};
use crate::delivery::http::{Connections, HttpAnswer, HttpClient, HttpOptions};
use crate::net::TlsClientConfig;
use crate::prom::remote::series::{Family, Identity, Kind, Sample, Series};
use crate::prom::remote::{WRITTEN_HEADERS, write};

struct Gateway {
    sink: Arc<Sink>,
    receiver: Arc<dyn Receiver>,
    port: u16,
    client: HttpClient,
    memory: Arc<Account>,
}

impl Gateway {
    async fn start(more: &str) -> Self {
        let sink = Sink::new();
        let port = free_port();
        let yaml = format!("{{endpoint: \"127.0.0.1:{port}\"{more}}}");
        let cx = sink.receiver_context("prometheusremotewrite");
        let memory = cx.base.shared.memory.clone();
        let receiver = (FACTORY.build)(&settings::<RemoteWriteReceiverConfig>(&yaml), cx).unwrap();
        receiver.start().await.unwrap();
        let options = HttpOptions {
            endpoint: None,
            tls: &TlsClientConfig::default(),
            auth: None,
            max_idle_conns: 1,
            idle_conn_timeout: Duration::from_secs(9),
            connections: Connections::default(),
        };
        let client = HttpClient::new(options, &context("exporters", "test")).unwrap();
        Self {
            sink,
            receiver,
            port,
            client,
            memory,
        }
    }

    async fn post(&self, path: &str, headers: &[(HeaderName, &str)], body: impl Into<Bytes>) -> HttpAnswer {
        let url = format!("http://127.0.0.1:{}{path}", self.port).parse().unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let posting = self.client.post(&url, headers.collect(), body.into(), None);
        posting.await.map_err(|outcome| format!("{outcome:?}")).unwrap()
    }

    async fn write(&self, version: Version, series: &[Series]) -> HttpAnswer {
        let body = write::compress(&write::encode(version, series.iter(), true)).unwrap();
        let headers = [
            (CONTENT_TYPE, version.content_type()),
            (CONTENT_ENCODING, "snappy"),
        ];
        self.post("/api/v1/write", &headers, body).await
    }

    /// Name, time in milliseconds and value of every point so far.
    fn points(&self) -> Vec<(String, u64, f64)> {
        let mut all = Vec::new();
        for batch in self.sink.batches() {
            let Payload::Points(points) = batch.payload else {
                panic!("points")
            };
            all.extend(points.points.iter().map(|point| {
                let Value::Double(value) = point.value else {
                    panic!("a number")
                };
                (
                    point.series.metric.name.to_string(),
                    point.time / 1_000_000,
                    value,
                )
            }));
        }
        all
    }
}

fn gauge(name: &str, samples: &[(i64, f64)]) -> Series {
    let identity = Identity::new([("__name__".into(), name.into())]);
    let family = Family {
        name: name.into(),
        kind: Kind::Gauge,
        help: "".into(),
        unit: "".into(),
    };
    let mut series = Series::new(Arc::new(identity), Arc::new(family));
    let samples = samples.iter().map(|(time, value)| Sample {
        time: *time,
        start: 0,
        value: *value,
        point: 0,
    });
    series.samples = samples.collect();
    series
}

/// The counts of written items that an answer of 2.0 has.
fn written(answer: &HttpAnswer) -> [Option<String>; 3] {
    WRITTEN_HEADERS.map(|name| Some(answer.headers.get(name)?.to_str().unwrap().to_owned()))
}

fn count(count: &str) -> Option<String> {
    Some(count.to_owned())
}

#[tokio::test]
async fn both_versions_are_taken_and_2_0_answers_count_what_was_written() {
    let gateway = Gateway::start("").await;
    let one = gateway
        .write(Version::One, &[gauge("a", &[(1, 0.5), (2, 1.5)])])
        .await;
    assert_eq!(
        (one.status, written(&one)),
        (StatusCode::NO_CONTENT, [None, None, None])
    );
    let two = gateway
        .write(Version::Two, &[gauge("b", &[(3, 2.5)]), gauge("a", &[(4, 3.5)])])
        .await;
    assert_eq!(
        (two.status, written(&two)),
        (StatusCode::NO_CONTENT, [count("2"), count("0"), count("0")])
    );
    let expected = [("a", 1, 0.5), ("a", 2, 1.5), ("b", 3, 2.5), ("a", 4, 3.5)];
    assert_eq!(
        gateway.points(),
        expected.map(|(name, time, value)| (name.to_owned(), time, value))
    );
    gateway.receiver.stop(Instant::now()).await;
}

#[tokio::test]
async fn a_request_that_can_not_be_read_is_refused_as_a_whole() {
    let gateway = Gateway::start(", max_request_body_size: 1KiB").await;
    let good = [
        (CONTENT_TYPE, Version::Two.content_type()),
        (CONTENT_ENCODING, "snappy"),
    ];
    let body = |bytes: &[u8]| Bytes::from(write::compress(bytes).unwrap());
    let with = |content_type, coding| [(CONTENT_TYPE, content_type), (CONTENT_ENCODING, coding)];
    let path = "/api/v1/write";
    let table = [
        (gateway.post("/other", &good, body(b"")).await, 404),
        (
            gateway
                .post(path, &with("application/json", "snappy"), body(b""))
                .await,
            415,
        ),
        (
            gateway
                .post(
                    path,
                    &with("application/x-protobuf;proto=x.Y", "snappy"),
                    body(b""),
                )
                .await,
            415,
        ),
        (
            gateway
                .post(path, &with("application/x-protobuf", "zstd"), body(b""))
                .await,
            415,
        ),
        (gateway.post(path, &good, "no snappy").await, 400),
        (gateway.post(path, &good, body(b"no protobuf")).await, 400),
        (gateway.post(path, &good, vec![0u8; 2000]).await, 413),
        // A few bytes that unpack to more than the limit.
        (gateway.post(path, &good, body(&[0; 4000])).await, 413),
    ];
    for (answer, expected) in table {
        assert_eq!(answer.status.as_u16(), expected, "{}", answer.text());
        assert!(!answer.body.unwrap().is_empty(), "it says why");
    }
    assert_eq!(gateway.sink.items(), 0);
    gateway.receiver.stop(Instant::now()).await;
}

#[tokio::test]
async fn a_request_without_room_gets_503_with_a_delay() {
    let gateway = Gateway::start("").await;
    gateway.sink.refuse(1);
    let busy = gateway.write(Version::Two, &[gauge("a", &[(1, 0.5)])]).await;
    assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(busy.headers.get(RETRY_AFTER).unwrap(), "1");
    let again = gateway.write(Version::Two, &[gauge("a", &[(1, 0.5)])]).await;
    assert_eq!(
        (again.status, gateway.points().len()),
        (StatusCode::NO_CONTENT, 1)
    );
    gateway.receiver.stop(Instant::now()).await;
}

#[test]
fn a_request_that_no_queue_has_room_for_is_too_large() {
    use crate::component::Refused;
    let status = |refused: Refused| {
        let answer = Refusal::from(refused).answer();
        (answer.status(), answer.headers().contains_key(RETRY_AFTER))
    };
    assert_eq!(
        status(Refused::too_large("x")),
        (StatusCode::PAYLOAD_TOO_LARGE, false)
    );
    assert_eq!(status(Refused::permanent("x")), (StatusCode::BAD_REQUEST, false));
}

#[tokio::test]
async fn what_is_invalid_is_said_and_the_rest_is_written() {
    let gateway = Gateway::start("").await;
    let bad = Series::new(
        Arc::new(Identity::new([("a".into(), "b".into())])),
        gauge("x", &[]).family,
    );
    let bad = Series {
        samples: gauge("x", &[(1, 1.0)]).samples,
        ..bad
    };
    let answer = gateway.write(Version::Two, &[gauge("a", &[(1, 0.5)]), bad]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(written(&answer), [count("1"), count("0"), count("0")]);
    assert!(
        answer.text().contains("a series without a name"),
        "{}",
        answer.text()
    );
    assert_eq!(gateway.points().len(), 1);
    gateway.receiver.stop(Instant::now()).await;
}

#[tokio::test]
async fn samples_from_the_future_are_cut_out_and_the_rest_is_written() {
    let now = i64::try_from(crate::component::wall_now() / 1_000_000).unwrap();
    let day = 86_400_000;
    for version in [Version::One, Version::Two] {
        let gateway = Gateway::start("").await;
        let samples = [(now, 0.5), (now + day, 1.5), (now + 300_000, 2.5)];
        let answer = gateway.write(version, &[gauge("a", &samples)]).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.headers.get(RETRY_AFTER), None);
        assert!(
            answer.text().contains(": 1 not written: `a`: "),
            "{}",
            answer.text()
        );
        let values: Vec<f64> = gateway.points().iter().map(|(_, _, value)| *value).collect();
        assert_eq!(values, [0.5, 2.5]);
        gateway.receiver.stop(Instant::now()).await;
    }
    let gateway = Gateway::start(", future: {tolerance: 2m, action: arrival}").await;
    let answer = gateway
        .write(Version::Two, &[gauge("a", &[(now + 300_000, 0.5)])])
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let (_, time, _) = gateway.points().remove(0);
    assert!(
        i64::try_from(time).unwrap() < now + 120_000,
        "that of its arrival"
    );
    gateway.receiver.stop(Instant::now()).await;
}

#[tokio::test]
async fn small_bodies_are_weighed_by_what_their_references_lead_to() {
    let gateway = Gateway::start("").await;
    let long: Arc<str> = "y".repeat(20 << 10).into();
    let all: Vec<Series> = (0..1_000)
        .map(|number| {
            let name = format!("x{number}").into();
            let identity = Identity::new([("__name__".into(), name), ("a".into(), long.clone())]);
            let series = gauge("x", &[(1, 0.5)]);
            Series {
                identity: Arc::new(identity),
                ..series
            }
        })
        .collect();
    let body = write::encode(Version::Two, all.iter(), true);
    assert!(body.len() <= INLINE_MAX_BYTES, "{}", body.len());
    gateway.memory.add_limit(crate::component::Limit::of(16 << 20));
    let never = gateway.write(Version::Two, &all).await;
    assert_eq!(never.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", never.text());
    gateway.memory.add_limit(crate::component::Limit::of(usize::MAX));
    gateway.memory.remove_limit(crate::component::Limit::of(16 << 20));
    let now = gateway.write(Version::Two, &all).await;
    assert_eq!(
        (now.status, gateway.points().len()),
        (StatusCode::NO_CONTENT, all.len())
    );
    assert_eq!(gateway.memory.reserved_bytes(), 0);
    gateway.receiver.stop(Instant::now()).await;
}

/// Bytes of requests with damage: cut, changed, repeated.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let series = prop::collection::vec((0..4usize, 0..9i64, any::<f64>()), 1..6);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..4);
    (any::<u8>(), series, damage).prop_map(|(choice, series, damage)| {
        let version = if choice & 1 == 0 {
            Version::One
        } else {
            Version::Two
        };
        let names = ["a", "b_bucket", "c_total", "target_info"];
        let series: Vec<_> = series
            .iter()
            .map(|(name, time, value)| gauge(names[*name], &[(*time, *value)]))
            .collect();
        let mut bytes = vec![choice];
        bytes.extend(write::encode(version, series.iter(), true));
        for (at, byte, how) in damage {
            let at = at.index(bytes.len());
            match how {
                0 => bytes.truncate(at + 1),
                1 => bytes[at] = byte,
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_damaged_request_is_refused_or_sound(bytes in damaged()) {
        fuzz::requests(&bytes);
    }
}
