// SPDX-License-Identifier: Apache-2.0

//! Exporters of which only the one of the leader exports.

use super::*;
use crate::component::testing::add_cluster;

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
    setup.stop(Duration::from_secs(5)).await;
    let requests = "one of metrics, and those of the other signals";
    assert_eq!(setup.asked.load(SeqCst), 3, "{requests}");
    let balance = ledgers(&setup.cx)[0].balance();
    assert_eq!(balance.left, 2);
    assert_eq!(balance.dropped[Reason::NotLeader as usize], 7);
    assert_eq!(balance.held(), 0);
}
