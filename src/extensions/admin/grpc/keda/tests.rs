// SPDX-License-Identifier: Apache-2.0

//! What a stream follows, and values that it does not send.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::component::Shared;
use crate::extensions::admin::QueryConfig;
use crate::prom::catalog::View;
use crate::watch::testing::{Bench, Computed, until};

/// A caller of a gateway without clients.
fn caller() -> Caller {
    let shared = Arc::new(Shared::default());
    let view = View::of(&shared);
    let limits = QueryConfig {
        timeout: Duration::from_secs(60),
        ..QueryConfig::default()
    };
    let stopping = CancellationToken::new();
    let api = Api::new(&"admin".into(), shared, view, limits, stopping, "test".to_owned());
    Caller {
        api: Arc::new(api),
        client: None,
    }
}

/// A trigger of this metadata.
fn trigger(metadata: &[(&str, &str)]) -> Arc<Trigger> {
    let owned = metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Arc::new(Trigger::parse(&owned.collect()).unwrap())
}

#[tokio::test]
async fn a_stream_follows_each_composite_once() {
    let caller = caller();
    let [depth, usage] = ["queue_depth", "kv_usage"].map(|name| Bench::new(name, Vec::new()));
    for bench in [&depth, &usage] {
        caller.api.shared().composites.add(bench.watched.clone());
    }
    let signals = ["queue_depth/1", "queue_depth{model=m}/2", "kv_usage/3"]
        .repeat(20)
        .join(",");
    let changes = Changes::of(&caller.api, &trigger(&[("signals", &*signals)]));
    assert_eq!(changes.following.len(), 2);
}

#[tokio::test]
async fn a_value_that_is_too_large_for_its_target_is_no_value() {
    let caller = caller();
    let mut bench = Bench::new("queue_depth", Vec::new());
    caller.api.shared().composites.add(bench.watched.clone());
    bench.observe("m", 1e300);
    let of = async |signals: &str| value(&caller, &trigger(&[("signals", signals)]), QueryKind::Scaler).await;
    assert_eq!(of("queue_depth/1e299, queue_depth/1e300").await.unwrap(), 10.0);
    let status = of("queue_depth/1, queue_depth/1e-300").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
    assert!(
        status.message().contains("too large for the target 1e-300"),
        "{status}"
    );
}

#[tokio::test]
async fn a_value_is_unknown_if_the_replica_was_unready_while_it_was_computed() {
    let (caller, computed) = (caller(), Computed::new("derived"));
    let shared = caller.api.shared();
    shared.composites.add(computed.watched.clone());
    let trigger = trigger(&[("composite", "derived"), ("target", "10")]);
    for is_ready_again in [false, true] {
        computed.holds_next();
        let becomes_unready = async {
            until(|| computed.latch.entered() == 1).await;
            shared.health.hold("receivers::partials", Some("stale"));
            if is_ready_again {
                shared.health.hold("receivers::partials", None);
            }
            computed.latch.open();
        };
        let (active, ()) = tokio::join!(activity(&caller, &trigger), becomes_unready);
        assert_eq!(active, None, "ready again: {is_ready_again}");
        shared.health.hold("receivers::partials", None);
    }
    assert_eq!(activity(&caller, &trigger).await, Some(true));
}
