// SPDX-License-Identifier: Apache-2.0

//! Exporters of which only the one of the leader exports.

use super::*;
use tidegate_engine::{Temporality, Value};
use tidegate_requests::{counter, int, request};

use crate::batch::convert;
use crate::component::testing::add_cluster;
use crate::component::{DeltaTurn, unix_now};

#[tokio::test]
async fn an_unknown_cluster_in_only_leader_is_refused() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    let unknown = setup.destination.only_leader(Some("cluster"));
    let error = unknown.err().expect("an unknown cluster").to_string();
    assert!(error.contains("not a cluster extension"), "{error}");
}

#[tokio::test]
async fn only_the_leader_exports_metrics_and_others_drop_and_count() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    let cluster = add_cluster(&setup.cx.base.shared);
    let setup = Setup {
        destination: setup.destination.only_leader(Some("cluster")).unwrap(),
        ..setup
    };
    setup.destination.start().await.unwrap();
    setup.permits.add_permits(3);
    for (leads, items) in [(false, 3), (true, 2), (false, 4)] {
        cluster.note_leading(leads);
        setup.push(items).unwrap();
    }
    for signal in [Signal::Traces, Signal::Logs] {
        setup.destination.push(opaque(signal, b"0123456789", 1)).unwrap();
    }
    setup.stop(Duration::from_secs(60)).await;
    let requests = "one of metrics, and those of the other signals";
    assert_eq!(setup.asked.load(SeqCst), 3, "{requests}");
    let balance = ledgers(&setup.cx)[0].balance();
    assert_eq!(balance.left, 2);
    assert_eq!(balance.dropped[Reason::NotLeader as usize], 7);
    assert_eq!(balance.held(), 0);
}

/// The increases that a destination of deltas received.
#[derive(Clone, Default)]
struct Increases(Arc<Mutex<Vec<i64>>>);

#[async_trait]
impl Attempt for Increases {
    async fn send(&self, export: ExportRequest) -> Outcome {
        for point in convert::points(&export.encoded()).expect("a request") {
            let (Value::Int(value), Temporality::Delta) =
                (point.value, point.series.metric.data.temporality())
            else {
                panic!("no delta of a counter");
            };
            self.0.lock().push(value);
        }
        Outcome::Done
    }
}

#[tokio::test]
async fn each_increase_is_exported_by_one_replica_and_none_is_lost_between_two() {
    let replica = || {
        let cx = exporter_context("exporters::otlp/x");
        let cluster = add_cluster(&cx.base.shared);
        let (ledger, increases) = (ledgers(&cx)[0].clone(), Increases::default());
        let delivery = Delivery {
            temporality: TemporalityChoice::Delta,
            ..delivery()
        };
        let destination = Destination::new(cx, &delivery, increases.clone());
        let destination = destination.only_leader(Some("cluster")).unwrap();
        (Arc::new(destination), cluster, ledger, increases)
    };
    let replicas = [replica(), replica()];
    for (destination, cluster, ..) in &replicas {
        assert!(cluster.has_deltas());
        destination.start().await.unwrap();
    }
    let start = unix_now();
    let push = |replica: usize, step: u64, turn, total: i64| {
        let (destination, cluster, ledger, _) = &replicas[replica];
        cluster.set_turn(turn);
        let point = opentelemetry_proto::tonic::metrics::v1::NumberDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: start + step,
            ..int(total)
        };
        let request = request(Vec::new(), "", [counter("hits", [point])]);
        let batch = Batch::new(
            crate::batch::wire::check(Signal::Metrics, prost::Message::encode_to_vec(&request).into())
                .unwrap(),
        );
        crate::component::Edge::new(None, ledger.clone(), destination.clone())
            .push(batch)
            .unwrap();
    };
    use DeltaTurn::{Export, Follow, Hold};
    // The first replica exports two intervals, and the second one follows.
    for (step, total) in [(1, 10), (2, 15)] {
        push(0, step, Export, total);
        push(1, step, Follow, total);
    }
    // No replica leads for two intervals.
    push(1, 3, Hold, 18);
    push(1, 4, Hold, 22);
    push(1, 5, Export, 27);
    push(0, 5, Follow, 27);
    push(0, 6, Export, 28);
    let mut exported = Vec::new();
    for (destination, _, ledger, increases) in replicas {
        destination.stop(Instant::now() + Duration::from_secs(60)).await;
        let balance = ledger.balance();
        assert_eq!(balance.held(), 0, "{balance:?}");
        assert_eq!(
            balance.dropped[Reason::NotLeader as usize] + balance.left,
            balance.entered
        );
        exported.push(increases.0.lock().clone());
    }
    assert_eq!(exported, [vec![10, 5, 1], vec![12]]);
}
