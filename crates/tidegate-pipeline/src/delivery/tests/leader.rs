// SPDX-License-Identifier: Apache-2.0

//! Exporters of which only the one of the leader exports.

use super::*;
use crate::component::Cluster;
use crate::component::services::Services;

#[tokio::test]
async fn only_the_leader_exports_and_others_drop_and_count() {
    let Setup {
        destination,
        cx,
        asked,
        permits,
    } = setup(&delivery(), |_| Outcome::Done);
    let unknown = destination.only_leader(Some("cluster"));
    let error = unknown.err().expect("there is no cluster").to_string();
    assert!(error.contains("not a cluster extension"), "{error}");
    let cluster = Arc::new(Cluster::new("test", 1));
    let services = Services {
        cluster: Some(cluster.clone()),
        ..Services::default()
    };
    cx.base.shared.services.add("cluster".to_owned(), services);
    let again = ExporterContext {
        base: cx.base.clone(),
        ledgers: cx.ledgers.clone(),
    };
    let script = Script {
        answer: |_| Outcome::Done,
        asked,
        permits,
    };
    let destination = Destination::new(again, &delivery(), script);
    let setup = Setup {
        destination: destination.only_leader(Some("cluster")).unwrap(),
        asked: Arc::default(),
        permits: Arc::new(Semaphore::new(0)),
        cx,
    };
    setup.destination.start().await.unwrap();
    setup.push(3).unwrap();
    let balance = ledgers(&setup.cx)[0].balance();
    assert_eq!(balance.dropped[Reason::NotLeader as usize], 3);
    cluster.note_leading(true);
    setup.push(2).unwrap();
    assert_eq!(ledgers(&setup.cx)[0].balance().held(), 2);
    setup.stop(Duration::from_millis(10)).await;
}
