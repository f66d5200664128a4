// SPDX-License-Identifier: Apache-2.0

//! Values that a stream does not send.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::component::Shared;
use crate::extensions::admin::QueryConfig;
use crate::prom::catalog::View;
use crate::watch::testing::{Computed, until};

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

#[tokio::test]
async fn a_value_is_unknown_if_the_replica_was_unready_while_it_was_computed() {
    let (caller, computed) = (caller(), Computed::new("derived"));
    let shared = caller.api.shared();
    shared.composites.add(computed.watched.clone());
    let metadata = [("composite", "derived"), ("target", "10")];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let trigger = Arc::new(Trigger::parse(&metadata.into()).unwrap());
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
