// SPDX-License-Identifier: Apache-2.0

//! The past of series.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_point_can_be_asked_for_at_once_and_its_past_a_little_later() {
    let (admin, table) = with_table("history: {interval: 10ms}").await;
    table.observe(&point("hits", COUNTER, "web", 5), unix_now());
    let (status, answer) = ask(&admin, "sum by (job) (hits_total)").await;
    assert_eq!(status, 200, "{answer}");
    let series = &answer["data"]["result"][0];
    assert_eq!(
        (&series["metric"], &series["value"][1]),
        (&json!({"job": "web"}), &json!("5"))
    );

    let deadline = Instant::now() + Duration::from_secs(60);
    let mut value = 5;
    loop {
        value += 1;
        table.observe(&point("hits", COUNTER, "web", value), unix_now());
        let (status, answer) = ask(&admin, "changes(hits_total[10s])").await;
        let changes = answer["data"]["result"][0]["value"][1]
            .as_str()
            .unwrap_or("0")
            .parse::<u32>();
        if status == 200 && changes.is_ok_and(|changes| changes >= 3) {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let now = unix_now() / 1_000_000_000;
    let range = format!(
        "/api/v1/query_range?query=hits_total&start={}&end={}&step=1",
        now - 5,
        now + 1
    );
    let (status, answer) = get(&admin, &range).await;
    assert_eq!(
        (status, &answer["data"]["resultType"]),
        (200, &json!("matrix")),
        "{answer}"
    );
    assert!(
        !answer["data"]["result"][0]["values"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn without_history_the_present_is_there_and_the_past_is_refused_by_name() {
    let (admin, table) = with_table("history: {enabled: false}").await;
    table.observe(&point("level", Data::Gauge, "web", 7), unix_now());
    assert_eq!(ask(&admin, "level").await.1["data"]["result"][0]["value"][1], "7");
    let (status, answer) = ask(&admin, "avg_over_time(level[1m])").await;
    assert_eq!((status, &answer["errorType"]), (422, &json!("execution")));
    let why = answer["error"].as_str().unwrap();
    assert!(
        why.contains("`level` has no past") && why.contains("disabled"),
        "{why}"
    );
    // A removed table is released and no longer shown, even without samples.
    admin.base.shared.tables.remove(&table);
    assert_eq!(ask(&admin, "level").await.1["data"]["result"], json!([]));
    assert_eq!(admin.view.series_count(), 0);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_series_that_has_gone_is_gone_at_once_and_its_past_stays() {
    let (admin, table) = with_table("history: {interval: 10ms}").await;
    table.observe(&point("level", Data::Gauge, "web", 7), unix_now());
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask(&admin, "count_over_time(level[1m]) >= 3").await.1["data"]["result"] == json!([]) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admin.base.shared.tables.remove(&table);
    assert_eq!(ask(&admin, "level").await.1["data"]["result"], json!([]));
    assert_ne!(
        ask(&admin, "max_over_time(level[1m])").await.1["data"]["result"],
        json!([])
    );
    // Another of the same name and labels counts from its first moment.
    let again = Arc::new(Table::new("again", vec![Rule::newest()], Limits::default()));
    again.observe(&point("level", Data::Gauge, "web", 9), unix_now());
    admin.base.shared.tables.add(again);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(ask(&admin, "level").await.1["data"]["result"][0]["value"][1], "9");
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn series_that_came_when_the_memory_was_used_up_have_a_present_only() {
    let (admin, table) = with_table("history: {interval: 10ms, max_bytes: 400B}").await;
    table.observe(&point("first", Data::Gauge, "web", 1), unix_now());
    let sampled = async |query: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let (status, answer) = ask(&admin, query).await;
            let count = answer["data"]["result"][0]["value"][1].as_str();
            if status == 422 || count.is_some_and(|count| count != "1") {
                return (status, answer);
            }
            assert!(Instant::now() < deadline, "{answer}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(sampled("count_over_time(first[1m])").await.0, 200);
    (0..50).for_each(|n| {
        table.observe(&point(&format!("later_{n}"), Data::Gauge, "web", n), unix_now());
    });
    let (status, answer) = sampled("count_over_time(later_49[1m])").await;
    let why = answer["error"].as_str().unwrap_or_default();
    assert!(
        status == 422 && why.contains("`later_49` has no past") && why.contains("used up"),
        "{answer}"
    );
    assert_eq!(
        ask(&admin, "later_49").await.1["data"]["result"][0]["value"][1],
        "49"
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_series_that_no_rule_of_the_past_matches_has_a_present_only() {
    let rules = "history: {interval: 10ms, rules: [{name: level, attributes: {service.name: web*}}]}";
    let (admin, table) = with_table(rules).await;
    for (name, job) in [("level", "web-1"), ("level", "db"), ("other", "web-1")] {
        table.observe(&point(name, Data::Gauge, job, 3), unix_now());
    }
    for (series, has_past) in [
        ("level{job=\"web-1\"}", true),
        ("level{job=\"db\"}", false),
        ("other", false),
    ] {
        let (status, present) = ask(&admin, series).await;
        assert_eq!(
            (status, present["data"]["result"].as_array().unwrap().len()),
            (200, 1),
            "{series}"
        );
        let (status, past) = ask(&admin, &format!("count_over_time({series}[1m])")).await;
        assert_eq!(status == 200, has_past, "{past}");
        let why = past["error"].as_str().unwrap_or_default();
        assert!(
            has_past || why.contains("no rule of `history::rules` matches it"),
            "{past}"
        );
    }
}

#[tokio::test]
async fn a_history_without_a_retention_reaches_as_far_as_readers_need() {
    const HOUR_MS: Millis = 3_600_000;
    for (options, alone, needed) in [
        ("", 600_000, HOUR_MS),
        ("history: {retention: 20m}", 1_200_000, 1_200_000),
    ] {
        let (admin, _table) = with_table(options).await;
        let span = || admin.view.past_limits().map(|limits| limits.span_ms);
        assert_eq!(span(), Some(alone), "{options}");
        let need = admin.view.need_past(HOUR_MS);
        assert_eq!(span(), Some(needed), "{options}");
        drop(need);
        assert_eq!(span(), Some(alone), "{options}");
        admin.stop(Instant::now() + Duration::from_secs(10)).await;
    }
}
