// SPDX-License-Identifier: Apache-2.0

//! A gateway that starts, and peers of all kinds.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_engine::{Data, Limits, Rule, Table, Temporality};
use tidegate_promql::Patience;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::Admin;
use super::super::tests::point;
use super::*;
use crate::component::Lifecycle;
use crate::component::cluster::Cluster;
use crate::component::services::Services;
use crate::component::shared::Phase;
use crate::component::testing::{context, settings};
use crate::net::Endpoint;
use crate::net::compress;

/// A started replica with one merged series, and one of its own.
async fn replica(options: &str) -> Admin {
    let base = context("extensions", "admin");
    let cluster = Arc::new(Cluster::new("test", 1));
    let [merged, local] = ["merged", "local"].map(|name| {
        let table = Arc::new(Table::new(name, vec![Rule::newest()], Limits::default()));
        base.shared.tables.add(table.clone());
        table
    });
    cluster.note_merged(&merged, Duration::from_millis(100));
    let services = Services {
        cluster: Some(cluster),
        ..Services::default()
    };
    base.shared.services.add("cluster".to_owned(), services);
    let counter = Data::Sum {
        monotonic: true,
        temporality: Temporality::Cumulative,
    };
    merged.observe(&point("hits", counter, "web", 7), unix_now());
    local.observe(&point("own", counter, "web", 7), unix_now());
    let config = format!("{{endpoint: 127.0.0.1:0, history: {{interval: 10ms, {options}}}}}");
    let admin = Admin::new(settings::<AdminConfig>(&config).get(), base).unwrap();
    admin.base.shared.health.enter(Phase::Ready);
    admin.start().await.unwrap();
    admin
}

fn port(admin: &Admin) -> u16 {
    match admin.local() {
        Endpoint::Tcp { port, .. } => port,
        Endpoint::Unix(path) => panic!("{}", path.display()),
    }
}

/// The fetch of a replica from these peers, which it has not run yet.
fn fetch(admin: &Admin, peers: &str) -> HistoryFetch {
    let config = settings::<AdminConfig>(&format!("{{history: {{interval: 10ms, peers: {peers}}}}}")).get();
    let fetch = HistoryFetch::of(&config, &admin.base, &admin.view, &admin.instance);
    fetch.unwrap().unwrap()
}

/// The first peer that gives its history, or the reasons of those that do not.
async fn outcome(admin: &Admin, peer: SocketAddr, timeout: &str) -> Result<PeerHistory, FetchError> {
    let fetch = fetch(
        admin,
        &format!("{{endpoints: [\"http://{peer}\"], timeout: {timeout}}}"),
    );
    let (merged, lag) = merged_tables(&admin.base.shared).unwrap();
    let peers = addresses(&fetch.peers.endpoints[0], PATH).await.unwrap();
    assert_eq!(peers.len(), 1);
    fetch.fetch_all(&fetch.clients[0], &peers[0], &merged, lag).await
}

/// Samples of a series in the last minute, by a query.
fn samples(admin: &Admin, name: &str) -> f64 {
    let query = tidegate_promql::Query::parse(&format!("count_over_time({name}[1m])")).unwrap();
    let evaluated = crate::component::Evaluate::evaluate(&*admin.view, &query, unix_now()).unwrap();
    evaluated.values.first().map_or(0.0, |(_, count)| *count)
}

async fn wait_for_samples(admin: &Admin, least: f64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while samples(admin, "hits_total") < least {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_fetches_the_history_of_merged_series_once() {
    let old = replica("retention: 60s").await;
    wait_for_samples(&old, 50.0).await;
    let peers = format!("peers: {{endpoints: [\"http://localhost:{}\"]}}", port(&old));
    let new = replica(&format!("retention: 60s, {peers}")).await;
    wait_for_samples(&new, 40.0).await;
    let handle = new.fetch.lock().take().unwrap();
    timeout(Duration::from_secs(60), handle).await.unwrap().unwrap();
    assert!(samples(&new, "hits_total") > samples(&new, "own_total") + 20.0);
    for admin in [new, old] {
        admin
            .stop(std::time::Instant::now() + Duration::from_secs(10))
            .await;
        assert_eq!(admin.base.shared.memory.reserved_bytes(), 0);
    }
}

#[tokio::test]
async fn a_replica_is_not_its_own_peer_and_gives_nothing_until_ready() {
    let admin = replica("retention: 60s").await;
    let own = SocketAddr::from(([127, 0, 0, 1], port(&admin)));
    assert_eq!(outcome(&admin, own, "30s").await.unwrap(), PeerHistory::Own);
    let other = replica("retention: 60s").await;
    admin
        .base
        .shared
        .health
        .hold("receivers::partials", Some("catching up"));
    let refused = outcome(&other, own, "30s").await.unwrap_err();
    assert_eq!(refused.reason(), "refused");
    assert!(refused.to_string().contains("catching up"), "{refused}");
}

/// A peer that answers each request with the same bytes, and then with `endless` ones, again and again.
async fn peer(answer: Vec<u8>, endless: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(speak(stream, answer.clone(), endless));
        }
    });
    address
}

/// A peer that gives these answers in turn, and the last one again and again. It counts the requests.
async fn peer_with(answers: Vec<Vec<u8>>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                let number = count.fetch_add(1, Relaxed).min(answers.len() - 1);
                let _ = stream.write_all(&answers[number]).await;
            }
        }
    });
    (address, asked)
}

/// An empty history that begins at this time, in milliseconds since 1970.
fn empty_history(begins: Millis) -> Vec<u8> {
    answer(&format!("x-tidegate-history-begins: {begins}\r\n"), &packed(b""))
}

/// Fetches from these peers in turn.
async fn fetch_from(admin: &Admin, peers: &[SocketAddr]) {
    let endpoints: Vec<_> = peers.iter().map(|peer| format!("\"http://{peer}\"")).collect();
    let fetch = fetch(admin, &format!("{{endpoints: [{}]}}", endpoints.join(", ")));
    let (merged, lag) = merged_tables(&admin.base.shared).unwrap();
    fetch.fetch(&merged, lag).await;
}

#[tokio::test]
async fn a_peer_that_is_not_ready_is_asked_again() {
    let admin = replica("retention: 60s").await;
    let busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 11\r\n\r\ncatching up";
    let (peer, asked) = peer_with(vec![busy.to_vec(), empty_history(0)]).await;
    fetch_from(&admin, &[peer]).await;
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test]
async fn a_gateway_with_a_component_that_is_not_restored_fetches_history() {
    let admin = replica("retention: 60s").await;
    let (peer, asked) = peer_with(vec![empty_history(0)]).await;
    let health = &admin.base.shared.health;
    health.lack(Some("receivers::otlp".to_owned()));
    let peers = format!("{{endpoints: [\"http://{peer}\"], timeout: 30s}}");
    let fetched = timeout(Duration::from_secs(60), fetch(&admin, &peers).run()).await;
    fetched.expect("the fetch ends");
    assert_eq!(asked.load(Relaxed), 1);
}

#[tokio::test]
async fn peers_are_asked_until_one_has_all_of_the_retention() {
    let admin = replica("retention: 60s").await;
    let young = peer_with(vec![empty_history(millis(unix_now()))]).await;
    let (old, other) = (
        peer_with(vec![empty_history(0)]).await,
        peer_with(vec![empty_history(0)]).await,
    );
    fetch_from(&admin, &[young.0, old.0, other.0]).await;
    let asked = [young, old, other].map(|(_, asked)| asked.load(Relaxed));
    assert_eq!(asked, [1, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_without_room_for_all_samples_begins_as_before() {
    let old = replica("retention: 60s").await;
    wait_for_samples(&old, 50.0).await;
    let new = replica("retention: 60s").await;
    wait_for_samples(&new, 5.0).await;
    let peer = SocketAddr::from(([127, 0, 0, 1], port(&old)));
    let begins = || {
        let (merged, _) = merged_tables(&new.base.shared).unwrap();
        let page = new
            .view
            .lend(&merged, 0, SeriesPosition::default(), &Patience::default());
        page.unwrap().begins.unwrap()
    };
    let before = begins();
    new.view.bound_past(1);
    fetch_from(&new, &[peer]).await;
    assert_eq!(begins(), before);
    new.view.bound_past(1 << 20);
    fetch_from(&new, &[peer]).await;
    assert!(begins() < before);
}

async fn speak(mut stream: TcpStream, answer: Arc<Vec<u8>>, endless: &[u8]) {
    let mut request = vec![0; 4096];
    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
        let _ = stream.write_all(&answer).await;
        while !endless.is_empty() && stream.write_all(endless).await.is_ok() {}
    }
}

/// An answer with this body and these headers.
fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: zstd\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn packed(request: &[u8]) -> Vec<u8> {
    compress(Coding::Zstd, request).unwrap()
}

/// A request whose series say as little as they can.
fn many_series(count: usize) -> Vec<u8> {
    b"\x0a\x04\x0a\x02\x0a\x00".repeat(count)
}

#[tokio::test]
async fn a_bad_peer_costs_a_counted_reason_and_no_memory() {
    let admin = replica("retention: 60s").await;
    admin
        .base
        .shared
        .memory
        .add_limit(crate::component::Limit::of(64 << 20));
    let endless = b"HTTP/1.1 200 OK\r\ncontent-encoding: zstd\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat();
    let next = "x-tidegate-history-next: 0.1\r\n";
    let cases: Vec<(&str, Vec<u8>, &'static [u8], &str)> = vec![
        ("silent", Vec::new(), b"", "timeout"),
        ("not HTTP", b"hello\r\n\r\n".to_vec(), b"", "unreachable"),
        ("broken off", answer("", b"")[..20].to_vec(), b"", "timeout"),
        (
            "another server",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
            b"",
            "refused",
        ),
        (
            "not compressed",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi".to_vec(),
            b"",
            "malformed",
        ),
        ("corrupt", answer("", b"no zstd at all"), b"", "malformed"),
        ("not a request", answer("", &packed(b"<html>")), b"", "malformed"),
        (
            "a wrong place",
            answer("x-tidegate-history-next: x\r\n", &packed(b"")),
            b"",
            "malformed",
        ),
        ("pages without end", answer(next, &packed(b"")), b"", "malformed"),
        (
            "a huge page",
            answer("", &packed(&vec![0; MAX_PAGE_BYTES + 1])),
            b"",
            "malformed",
        ),
        ("an endless answer", endless, chunk.leak(), "malformed"),
    ];
    for (name, answer, endless, expected) in cases {
        let peer = peer(answer, endless).await;
        // All but a silent one answer long before.
        let limit = if expected == "timeout" { "3s" } else { "60s" };
        let failure = outcome(&admin, peer, limit).await.unwrap_err();
        assert_eq!(failure.reason(), expected, "{name}: {failure}");
        assert_eq!(admin.base.shared.memory.reserved_bytes(), 0, "{name}");
    }
    // More than the gateway has memory for.
    let samples = [b"\x12\x00".repeat(90_000)].concat();
    let mut series = vec![0x0a];
    prost::encoding::encode_varint(samples.len() as u64, &mut series);
    series.extend(samples);
    let peer = peer(answer("", &packed(&series.repeat(20))), b"").await;
    let failure = outcome(&admin, peer, "30s").await.unwrap_err();
    assert_eq!(failure.reason(), "memory", "{failure}");
    assert_eq!(admin.base.shared.memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn series_that_are_not_here_are_omitted() {
    let admin = replica("retention: 60s").await;
    let peer = peer(answer("", &packed(&many_series(1000))), b"").await;
    assert_eq!(outcome(&admin, peer, "30s").await.unwrap(), PeerHistory::Short);
    let fetch = fetch(
        &admin,
        "{endpoints: [\"http://127.0.0.1:1\", \"http://nowhere.invalid\"], timeout: 5s}",
    );
    let (merged, lag) = merged_tables(&admin.base.shared).unwrap();
    fetch.fetch(&merged, lag).await;
}

#[tokio::test]
async fn a_fetch_reaches_as_far_back_as_readers_need() {
    let admin = replica("max_bytes: 1MiB").await;
    let need = admin.view.need_past(3_600_000);
    let fetch = fetch(&admin, "{endpoints: [\"http://127.0.0.1:1\"]}");
    assert_eq!(fetch.limits.span_ms, 3_600_000);
    drop(need);
}
