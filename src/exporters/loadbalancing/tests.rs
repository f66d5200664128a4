// SPDX-License-Identifier: Apache-2.0

//! Several endpoints: the routing, the cost of a failure, and the data of an endpoint that disappears.

mod k8s;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tidegate_requests::attribute;
use tonic::Status;

use super::*;
use crate::batch::wire;
use crate::component::testing::{add_storage, is_pending, settings, storage};
use crate::delivery::testing::{Log, balance_when, exporter_context, ledgers};
use crate::exporters::testing::{Bench, Sink, grpc_failure, grpc_ok};
use crate::telemetry::testing::{Values, recorder};

/// The part of a span (trace, service) whose spans stay together.
type Group = fn(&(u8, u8)) -> u8;

const TRACES: u8 = 30;
/// Enough that keys do not all fall to one of three endpoints, whose ports, and so whose shares, are random.
const SPANS: u8 = 16;

/// Spans of every trace, each under another service: number `n` is span `n / TRACES` of trace `n % TRACES`.
fn batch() -> Batch {
    let resource = |service: u8| Resource {
        attributes: vec![attribute("service.name", format!("service {service}"))],
        ..Default::default()
    };
    let spans = |service: u8| {
        let span = move |trace: u8| Span {
            trace_id: vec![trace + 1; 16],
            span_id: vec![service + 1; 8],
            ..Default::default()
        };
        (0..TRACES).map(span).collect()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: (0..SPANS)
            .map(|service| ResourceSpans {
                resource: Some(resource(service)),
                scope_spans: vec![ScopeSpans {
                    spans: spans(service),
                    ..Default::default()
                }],
                ..Default::default()
            })
            .collect(),
    };
    Batch::new(wire::check(Signal::Traces, request.encode_to_vec().into()).unwrap())
}

/// Trace and service of every span that a sink has.
fn spans(sink: &Sink) -> Vec<(u8, u8)> {
    let requests = sink.seen().into_iter();
    let requests = requests.map(|seen| ExportTraceServiceRequest::decode(seen.message).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    let spans = resources
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans);
    spans.map(|span| (span.trace_id[0], span.span_id[0])).collect()
}

const ALL: u64 = TRACES as u64 * SPANS as u64;

fn options(sinks: &[&Sink], more: &str) -> String {
    let hosts: Vec<_> = sinks
        .iter()
        .map(|sink| format!("\"{}\"", sink.address()))
        .collect();
    format!(
        "resolver: {{static: {{hostnames: [{}]}}}}{more}, protocol: {{otlp: {{tls: {{insecure: true}}, \
         retry_on_failure: {{initial_interval: 1ms, max_interval: 1ms}}}}}}",
        hosts.join(", ")
    )
}

async fn start(options: &str) -> Bench {
    let bench = Bench::build(&FACTORY, &format!("{{{options}}}")).unwrap();
    bench.exporter.start().await.unwrap();
    bench
}

#[tokio::test]
async fn what_has_one_key_goes_to_one_endpoint_and_everything_goes_somewhere() {
    let keys: [(&str, Group); 3] = [
        ("", |span| span.0),
        (", routing_key: service", |span| span.1),
        (", routing_key: resource", |span| span.1),
    ];
    for (key, group) in keys {
        let sinks = [
            Sink::start(|_, _| grpc_ok()).await,
            Sink::start(|_, _| grpc_ok()).await,
            Sink::start(|_, _| grpc_ok()).await,
        ];
        let bench = start(&options(&sinks.each_ref(), key)).await;
        bench.push(batch());
        balance_when(&bench.ledgers[1], |balance| balance.left == ALL).await;
        let mut where_is: BTreeMap<u8, BTreeSet<usize>> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for (at, sink) in sinks.iter().enumerate() {
            for span in spans(sink) {
                where_is.entry(group(&span)).or_default().insert(at);
                assert!(all.insert(span), "{span:?} is there twice");
            }
        }
        assert_eq!(all.len() as u64, ALL, "{key}");
        assert!(
            where_is.values().all(|sinks| sinks.len() == 1),
            "{key}: {where_is:?}"
        );
        let used = sinks.iter().filter(|sink| !spans(sink).is_empty()).count();
        assert!(used > 1, "{key}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn only_the_share_that_failed_is_sent_again() {
    let good = Sink::start(|_, _| grpc_ok()).await;
    let bad = Sink::start(|n, _| match n {
        0..5 => grpc_failure(Status::unavailable("not yet")),
        _ => grpc_ok(),
    })
    .await;
    let bench = start(&options(&[&good, &bad], "")).await;
    bench.push(batch());
    balance_when(&bench.ledgers[1], |balance| balance.left == ALL).await;
    assert_eq!(good.seen().len(), 1);
    assert!(bad.seen().len() > 5);
    bench.stop().await;
}

#[tokio::test]
async fn a_full_queue_of_one_endpoint_refuses_and_reserves_nothing() {
    let good = Sink::start(|_, _| grpc_ok()).await;
    let hosts = format!("\"{}\", \"127.0.0.1:1\"", good.address());
    let options = format!(
        "resolver: {{static: {{hostnames: [{hosts}]}}}}, protocol: {{otlp: {{tls: {{insecure: true}}, \
         sending_queue: {{queue_size: 1}}}}}}"
    );
    let bench = start(&options).await;
    bench.push(batch());
    let refused = bench.exporter.push(batch()).unwrap_err();
    assert!(
        refused.reason.contains("@127.0.0.1:1 has a full sending queue"),
        "{refused}"
    );
    balance_when(&bench.ledgers[1], |balance| balance.left > 0).await;
    assert_eq!(
        good.seen().len(),
        1,
        "no endpoint got a part of the refused batch"
    );
}

#[tokio::test]
async fn what_an_endpoint_holds_when_it_goes_goes_to_the_others() {
    let good = Sink::start(|_, _| grpc_ok()).await;
    let config = settings::<LoadBalancingConfig>(&format!(
        "{{resolver: {{static: {{hostnames: [x]}}}}, protocol: {{otlp: {{tls: {{insecure: true}}}}}}, {}}}",
        "routing_key: traceID"
    ));
    let cx = exporter_context("exporters::loadbalancing");
    let ledger = ledgers(&cx)[1].clone();
    let peers = Arc::new(Peers::new(config.get(), cx).unwrap());
    let refused = peers.split(&batch()).map(|_| ()).unwrap_err();
    assert!(refused.reason.contains("has no endpoints"), "{refused}");
    peers
        .change(vec!["127.0.0.1:1".to_owned(), good.address()])
        .await
        .unwrap();
    let shares = peers.split(&batch()).unwrap();
    assert_eq!(shares.len(), 2);
    ledger.enter(ALL as usize);
    for (peer, share) in shares {
        peer.consume(share, &mut Flow::default());
    }
    balance_when(&ledger, |balance| balance.left > 0).await;
    assert!(ledger.balance().held() > 0, "the other one is not there");
    peers.change(vec![good.address()]).await.unwrap();
    balance_when(&ledger, |balance| balance.left == ALL).await;
    let arrived: BTreeSet<_> = spans(&good).into_iter().collect();
    assert_eq!(arrived.len() as u64, ALL);
    peers.stop(Instant::now()).await;
}

#[tokio::test]
async fn data_for_an_endpoint_that_leaves_goes_to_the_current_ones() {
    let good = Sink::start(|_, _| grpc_ok()).await;
    let config = settings::<LoadBalancingConfig>(
        "{resolver: {static: {hostnames: [x]}}, protocol: {otlp: {tls: {insecure: true}}}}",
    );
    let cx = exporter_context("exporters::loadbalancing");
    let ledger = ledgers(&cx)[1].clone();
    let exporter = LoadBalancing::new(config.get(), cx).unwrap();
    let peers = &exporter.peers;
    peers.change(vec!["127.0.0.1:1".to_owned()]).await.unwrap();
    let (before, leaving) = (peers.current(), peers.split(&batch()).unwrap().remove(0).0);
    peers.change(vec![good.address()]).await.unwrap();
    let begun = Instant::now();
    while leaving.admit(&batch(), &mut Flow::default()).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes data");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (batch, mut flow) = (batch(), Flow::default());
    exporter.admit_at(before, &batch, &mut flow).unwrap();
    ledger.enter(ALL as usize);
    exporter.consume(batch.clone(), &mut flow);
    balance_when(&ledger, |balance| balance.left == ALL).await;
    assert_eq!(spans(&good).len() as u64, ALL);
    // If the current endpoints refuse the data, the exporter refuses it.
    peers.stop(Instant::now()).await;
    assert!(exporter.admit(&batch, &mut Flow::default()).is_err());
}

#[tokio::test]
async fn an_endpoint_that_goes_takes_its_gauge_of_failure_with_it() {
    const FAILING: &str = "tidegate_exporter_failing";
    let (recorder, page) = recorder("[]");
    let _recording = metrics::set_default_local_recorder(&recorder);
    let good = Sink::start(|_, _| grpc_ok()).await;
    let config = settings::<LoadBalancingConfig>(
        "{resolver: {static: {hostnames: [x]}}, protocol: {otlp: {tls: {insecure: true}, \
         retry_on_failure: {initial_interval: 1ms, max_interval: 1ms}}}}",
    );
    let cx = exporter_context("exporters::loadbalancing");
    let ledger = ledgers(&cx)[1].clone();
    let peers = Arc::new(Peers::new(config.get(), cx).unwrap());
    let both = vec!["127.0.0.1:1".to_owned(), good.address()];
    peers.change(both).await.unwrap();
    ledger.enter(ALL as usize);
    for (peer, share) in peers.split(&batch()).unwrap() {
        peer.consume(share, &mut Flow::default());
    }
    let until = async |is: &dyn Fn(&Values) -> bool| {
        let begun = Instant::now();
        while !is(&page.series(FAILING)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{}", page.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let fails = |(labels, value): &(String, f64)| {
        *value == 1.0 && labels.contains("@127.0.0.1:1\"") && labels.contains("unavailable")
    };
    until(&|series| series.iter().any(fails)).await;
    peers.change(vec![good.address()]).await.unwrap();
    balance_when(&ledger, |balance| balance.left == ALL).await;
    until(&Values::is_empty).await;
    peers.stop(Instant::now()).await;
}

#[tokio::test]
async fn a_returned_endpoint_keeps_its_failure_after_the_old_one_drained() {
    let (recorder, page) = recorder("[]");
    let _recording = metrics::set_default_local_recorder(&recorder);
    // The exporter does not repeat a denied batch, so only a new batch can fail.
    let sink = Sink::start(|_, _| grpc_failure(Status::unauthenticated("who are you"))).await;
    let config = settings::<LoadBalancingConfig>(
        "{resolver: {static: {hostnames: [x]}}, protocol: {otlp: {tls: {insecure: true}}}}",
    );
    let cx = exporter_context("exporters::loadbalancing");
    let (ledger, shared) = (ledgers(&cx)[1].clone(), cx.base.shared.clone());
    let peers = Arc::new(Peers::new(config.get(), cx).unwrap());
    let said = || {
        let series = page.series("tidegate_exporter_failing");
        let fails = series.iter().filter(|(_, value)| *value == 1.0).count();
        (fails, shared.health.troubles().len())
    };
    let until = async |is: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", said());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let fail = async |requests: usize| {
        peers.change(vec![sink.address()]).await.unwrap();
        ledger.enter(ALL as usize);
        for (peer, share) in peers.split(&batch()).unwrap() {
            peer.consume(share, &mut Flow::default());
        }
        until(&|| said() == (1, 1)).await;
        assert_eq!(sink.seen().len(), requests);
    };
    fail(1).await;
    let draining = peers.split(&batch()).unwrap().remove(0).0;
    let old = Arc::downgrade(&draining);
    peers.change(Vec::new()).await.unwrap();
    assert_eq!(said(), (0, 0), "an unused endpoint is not a failure");
    fail(2).await;
    drop(draining);
    until(&|| old.strong_count() == 0).await;
    assert_eq!(said(), (1, 1));
    peers.stop(Instant::now()).await;
}

#[test]
fn a_stop_waits_for_the_log_of_a_start_that_was_dropped() {
    // While its only thread that may block is busy, it opens no log.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let storage = storage(directory.path(), 1 << 20);
    let build = || {
        let options = "{resolver: {static: {hostnames: [\"127.0.0.1:1\"]}}, \
             protocol: {otlp: {tls: {insecure: true}, sending_queue: {storage: file_storage}}}}";
        let bench = Bench::build(&FACTORY, options).unwrap();
        add_storage(&bench.shared, storage.clone());
        bench
    };
    runtime.block_on(async {
        let (busy, ends) = std::sync::mpsc::sync_channel::<()>(1);
        tokio::task::spawn_blocking(move || ends.recv());
        let first = build();
        assert!(is_pending(first.exporter.start()).await, "the open waits");
        let mut stop = Box::pin(first.stop());
        assert!(is_pending(&mut stop).await, "the open waits on");
        drop(busy);
        stop.await;
        // The log is free.
        let second = build();
        second.exporter.start().await.unwrap();
        second.stop().await;
    });
}

#[tokio::test]
async fn the_addresses_of_a_name_are_the_endpoints() {
    let sink = Sink::start(|_, _| grpc_ok()).await;
    let options = format!(
        "resolver: {{dns: {{hostname: localhost, port: {}, interval: 10ms}}}}, \
         protocol: {{otlp: {{tls: {{insecure: true}}}}}}",
        sink.port()
    );
    let bench = start(&options).await;
    bench.push(batch());
    // `localhost` may have an address without a server. It must not cost more than its share.
    balance_when(&bench.ledgers[1], |balance| balance.left > 0).await;
    assert!(!spans(&sink).is_empty());
}

#[tokio::test]
async fn of_a_name_with_thousands_of_addresses_the_same_1_024_are_used() {
    let config = settings::<LoadBalancingConfig>("{resolver: {dns: {hostname: a}}}");
    let (log, _guard) = Log::capture();
    let peers = Peers::new(config.get(), exporter_context("exporters::loadbalancing")).unwrap();
    let addresses = |count: usize| (0..count).map(|number| format!("10.0.0.1:{number:05}"));
    let warnings = || log.lines("the name has more addresses").len();
    assert_eq!(peers.bounded("a", addresses(1024).collect()).len(), 1024);
    assert_eq!(warnings(), 0);
    for all in [addresses(3000).collect(), addresses(3000).rev().collect()] {
        let used = peers.bounded("a", all);
        assert!(used.into_iter().eq(addresses(1024)));
        assert_eq!(warnings(), 1, "one of all looks");
    }
    assert_eq!(peers.bounded("a", addresses(2).collect()).len(), 2);
    peers.bounded("a", addresses(3000).collect());
    assert_eq!(warnings(), 2, "it had fewer in between");
}

#[tokio::test]
async fn mistakes_are_named() {
    let cases = [
        ("{resolver: {}}", "one of `static`, `dns` and `k8s` must be given"),
        (
            "{resolver: {k8s: {service: a}, dns: {hostname: a}}}",
            "one of `static`, `dns` and `k8s` must be given",
        ),
        (
            "{resolver: {k8s: {service: a.b.svc}}}",
            "`a.b.svc` is not a service",
        ),
        (
            "{resolver: {k8s: {service: a.b, ports: []}}}",
            "must not be empty",
        ),
        (
            "{resolver: {k8s: {service: a}}, protocol: {otlp: {sending_queue: {storage: file_storage}}}}",
            "can't be combined with `resolver: k8s`",
        ),
        ("{}", "`resolver` must be specified"),
        ("{resolver: {static: {hostnames: []}}}", "must not be empty"),
        ("{resolver: {static: {hostnames: [\"a:b:c\"]}}}", "`a:b:c`"),
        (
            "{resolver: {dns: {hostname: a}}, protocol: {otlp: {sending_queue: {storage: file_storage}}}}",
            "can't be combined with `resolver: dns`",
        ),
    ];
    for (options, expected) in cases {
        let problem = Bench::build(&FACTORY, options).err().unwrap_or_default();
        assert!(problem.contains(expected), "{options}: {problem}");
    }
}
