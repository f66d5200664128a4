//! Pages as a client sees them.

use std::time::Duration;

use tidegate_engine::{AttributeFilter, Declaration, Function, Grouping, Pattern, State};

use super::*;
use crate::component::testing::{context, settings};
use crate::extensions::server::testing::fetch;

fn composite(name: &str) -> Arc<Composite> {
    Arc::new(Composite::new(Declaration {
        name: name.into(),
        description: Arc::default(),
        metric: Pattern::parse("agent_xfer_time").unwrap(),
        attributes: AttributeFilter::default(),
        function: Function::Avg,
        window: Duration::from_secs(10),
        grouping: Grouping::default(),
        max_groups: 10,
        lease: Duration::from_secs(60),
    }))
}

async fn get(admin: &Admin, path: &str) -> (u16, Value) {
    let (status, body) = fetch(&admin.server.local(), "GET", path).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn composites_are_arrays_of_label_sets_and_unknown_names_are_404() {
    let config = settings::<Config>("endpoint: 127.0.0.1:0").get();
    let admin = Admin {
        config,
        base: context("extensions", "admin"),
        server: PageServer::default(),
    };
    admin.base.shared.composites.add(composite("xfer_time_avg"));
    admin.base.shared.composites.add(composite("other"));
    admin.start().await.unwrap();

    let (status, all) = get(&admin, "/api/v1/composites").await;
    assert!(status == 200 && all.is_array());
    let (status, one) = get(&admin, "/api/v1/composites/xfer_time_avg").await;
    assert!(status == 200 && one.is_array());
    assert!(
        one.as_array()
            .unwrap()
            .iter()
            .all(|set| set["name"] == "xfer_time_avg")
    );

    let (status, missing) = get(&admin, "/api/v1/composites/xfer_time_agv").await;
    assert_eq!((status, &missing["did_you_mean"]), (404, &json!("xfer_time_avg")));
    assert_eq!(get(&admin, "/api/v1/compositesx").await.0, 404);
    assert_eq!(
        fetch(&admin.server.local(), "DELETE", "/api/v1/composites")
            .await
            .0,
        405
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[test]
fn a_label_set_says_all_that_a_planner_needs() {
    let reading = Reading {
        attributes: [
            ("agent_name", AttributeValue::from("a")),
            ("rank", AttributeValue::Int(3)),
        ]
        .into_iter()
        .collect(),
        value: Some(2.5),
        count: 4.0,
        sum: 10.0,
        min: Some(1.0),
        max: Some(4.0),
        last: Some(3.0),
        window: Duration::from_secs(10),
        age: Some(Duration::from_micros(1500)),
        state: State::Partial,
        sources_expected: 8,
        sources_reporting: 7,
    };
    let expected = json!({
        "name": "x", "labels": {"agent_name": "a", "rank": 3}, "value": 2.5, "window": "10s", "count": 4.0,
        "age_ms": 1.5, "state": "partial", "sources": {"reporting": 7, "expected": 8},
    });
    assert_eq!(label_set("x", &reading), expected);
}
