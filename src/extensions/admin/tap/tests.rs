// SPDX-License-Identifier: Apache-2.0

//! Taps as a client of the page sees them.

use std::time::SystemTime;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::batch::{Batch, Encoded, Signal, json, wire};
use crate::component::graph_metrics::GraphMetrics;
use crate::component::overview::{Overview, PipelineOverview};
use crate::component::tap::{ComponentSide, TapPoint, TapSide, TapSite, TapTarget, Taps};
use crate::component::testing::{context, options, settings};
use crate::component::{Account, Lifecycle};
use crate::config::Class;
use crate::extensions::admin::Admin;
use crate::net::Endpoint;
use crate::net::pages::testing::{Lines, fetch};

/// A started extension of a gateway with the exporter `debug`.
async fn started(options: &str) -> Admin {
    let config = settings::<AdminConfig>(&format!("{{endpoint: 127.0.0.1:0, {options}}}")).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    admin.base.shared.overview.set(Overview {
        built: SystemTime::UNIX_EPOCH,
        pipelines: vec![PipelineOverview {
            id: "logs".to_owned(),
            receivers: vec!["otlp".to_owned()],
            processors: Vec::new(),
            exporters: vec!["debug".to_owned()],
        }],
        extensions: Vec::new(),
        config: String::new(),
        metrics: GraphMetrics::default(),
    });
    admin.start().await.unwrap();
    admin
}

fn side_of_debug() -> ComponentSide {
    ComponentSide {
        class: Class::Exporter,
        id: "debug".into(),
        side: TapSide::Input,
    }
}

fn point_at_debug(admin: &Admin) -> Arc<TapPoint> {
    admin.base.shared.taps.point(TapSite {
        component: side_of_debug(),
        pipeline: Some("logs".into()),
        signal: Signal::Logs,
    })
}

fn logs(records: usize) -> Batch {
    let record = r#"{"severityText":"INFO","body":{"stringValue":"x"}}"#;
    let records = vec![record; records].join(",");
    let request = format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#);
    let bytes = json::to_protobuf(Signal::Logs, request.as_bytes()).unwrap();
    Batch::new(wire::check(Signal::Logs, bytes).unwrap())
}

/// The events of a tap that ends, while batches pass.
async fn events(admin: &Admin, parameters: &str, batch: Batch) -> Vec<(String, Value)> {
    let (endpoint, point) = (admin.local(), point_at_debug(admin));
    let path = format!("{PATH}?component=debug&{parameters}");
    let asked = tokio::spawn(async move { fetch(&endpoint, "GET", &path).await });
    while !asked.is_finished() {
        point.pass(&batch);
        tokio::task::yield_now().await;
    }
    let (status, body) = asked.await.unwrap();
    assert_eq!(status, 200, "{body}");
    let events = body.split("\n\n").filter_map(|event| {
        let (name, data) = event.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    });
    events.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tap_shows_its_items_then_skipped_batches_and_the_end() {
    let admin = started("tap: true, max_tap_items_per_second: 20").await;
    let begun = Instant::now();
    let events = events(&admin, "limit=30&where=severity%3D%22INFO%22", logs(12)).await;
    assert!(begun.elapsed() >= SECOND, "10 items wait for the next second");
    let of = |name: &str| events.iter().filter(|(known, _)| known == name).count();
    assert_eq!((of("item"), of("end")), (30, 1));
    assert!(of("skipped") > 0, "20 items of 24 in a second");
    let (_, item) = events.iter().find(|(name, _)| name == "item").unwrap();
    let record = &item["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["body"]["stringValue"], "x");
    let (name, data) = events.last().unwrap();
    assert_eq!((&**name, &data["reason"]), ("end", &json!("limit")));
    admin.stop(Instant::now() + Duration::from_secs(60)).await;
    assert_eq!(admin.base.shared.memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_tap_says_how_many_batches_can_t_be_decoded_and_why() {
    let admin = started("tap: true").await;
    let (point, memory) = (point_at_debug(&admin), admin.base.shared.memory.clone());
    let mut lines = Lines::open(&admin.local(), &format!("{PATH}?component=debug")).await;
    // A processor may break a request: the length of its first field is cut off.
    let broken = Batch::new(Encoded::one(Signal::Logs, vec![0x0a, 0xff].into(), 3));
    // The tap opens during this loop, and copies the batch once.
    loop {
        let before = memory.reserved_bytes();
        point.pass(&broken);
        if memory.reserved_bytes() > before {
            break;
        }
        tokio::task::yield_now().await;
    }
    let (name, said) = lines.event().await;
    assert_eq!((&*name, &said["batches"]), ("unreadable", &json!(1)));
    assert!(
        said["error"].as_str().is_some_and(|why| !why.is_empty()),
        "{said}"
    );
    point.pass(&logs(1));
    let (name, item) = lines.event().await;
    assert_eq!(name, "item", "{item}");
    admin.stop(Instant::now() + Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_large_batch_is_read_in_order_and_its_memory_is_given_back() {
    let (taps, memory) = (Arc::<Taps>::default(), Arc::<Account>::default());
    let site = TapSite {
        component: side_of_debug(),
        pipeline: None,
        signal: Signal::Logs,
    };
    let target = TapTarget {
        component: side_of_debug(),
        pipeline: None,
    };
    let point = taps.point(site);
    let mut reader = taps.open(target, 1, &memory).unwrap();
    let records: Vec<Value> = (0..1500_u32)
        .map(|number| json!({"body": {"intValue": number.to_string()}}))
        .collect();
    let request = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).to_string();
    let bytes = json::to_protobuf(Signal::Logs, request.as_bytes()).unwrap();
    point.pass(&Batch::new(wire::check(Signal::Logs, bytes).unwrap()));
    let filter = TapFilter::parse(&[]).unwrap();
    let mut rest = reader.next().await.map(UnreadBatch::of);
    let mut bodies = Vec::new();
    while let Some(unread) = rest.take() {
        let piece = items::read(unread, &filter, usize::MAX).unwrap();
        for line in &piece.lines {
            let item: Value = serde_json::from_str(line).unwrap();
            let body = &item["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["body"];
            bodies.push(body["intValue"].as_str().unwrap().to_owned());
        }
        rest = piece.rest;
    }
    let expected: Vec<String> = (0..1500_u32).map(|number| number.to_string()).collect();
    assert_eq!(bodies, expected);
    assert_eq!(memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn requests_without_permission_or_component_are_refused() {
    let status = async |options: &str, parameters: &str| {
        let admin = started(options).await;
        let (status, body) = fetch(&admin.local(), "GET", &format!("{PATH}?{parameters}")).await;
        assert!(body.contains("error"), "{body}");
        status
    };
    assert_eq!(status("", "component=debug").await, 403);
    assert_eq!(status("tap: true", "component=unknown").await, 404);
    for parameters in ["", "component=debug&limit=0", "component=debug&where=%7B"] {
        assert_eq!(status("tap: true", parameters).await, 400, "{parameters}");
    }
}

/// Opens a tap from a web page of `site`. It gives the connection and the status.
async fn open_from_site(admin: &Admin, site: &str) -> (TcpStream, String) {
    let Endpoint::Tcp { host, port } = admin.local() else {
        panic!("not TCP");
    };
    let mut stream = TcpStream::connect((host.as_str(), port)).await.unwrap();
    let request =
        format!("GET {PATH}?component=debug HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: {site}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).await.unwrap();
    (stream, String::from_utf8_lossy(&status).into_owned())
}

async fn status_for_site(admin: &Admin, site: &str) -> String {
    open_from_site(admin, site).await.1
}

#[tokio::test]
async fn a_client_that_leaves_makes_room_for_another_tap() {
    let admin = started("tap: true, max_taps: 1").await;
    let (first, status) = open_from_site(&admin, "none").await;
    assert_eq!(status, "HTTP/1.1 200");
    let (status, body) = fetch(&admin.local(), "GET", &format!("{PATH}?component=debug")).await;
    assert_eq!(status, 503);
    assert!(body.contains("`max_taps`"), "{body}");
    drop(first);
    let next = async { while status_for_site(&admin, "none").await != "HTTP/1.1 200" {} };
    tokio::time::timeout(Duration::from_secs(30), next).await.unwrap();
}

#[tokio::test]
async fn web_pages_of_other_sites_can_t_use_up_the_taps() {
    let admin = started("tap: true").await;
    for site in ["cross-site", "same-site"] {
        assert_eq!(status_for_site(&admin, site).await, "HTTP/1.1 403", "{site}");
    }
    assert_eq!(status_for_site(&admin, "same-origin").await, "HTTP/1.1 200");
    let admin = started("tap: true, cors: {allowed_origins: ['https://a.example']}").await;
    assert_eq!(status_for_site(&admin, "cross-site").await, "HTTP/1.1 200");
}

#[test]
fn taps_without_authentication_need_a_loopback_address() {
    let is_valid = |yaml| options::<AdminConfig>(yaml).is_ok();
    assert!(is_valid("{endpoint: '127.0.0.1:8080', tap: true}"));
    assert!(is_valid("{endpoint: 'unix:/run/admin.sock', tap: true}"));
    assert!(is_valid(
        "{endpoint: '0.0.0.0:8080', tap: true, auth: {authenticator: basicauth}}"
    ));
    assert!(!is_valid("{endpoint: '0.0.0.0:8080', tap: true}"));
}
