// SPDX-License-Identifier: Apache-2.0

//! Alerts go on over restarts, reloads and dead sources.

use super::*;
use crate::kit::{Answer, Repeated, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Seconds since an alert became active.
fn active_for(alert: &Value) -> f64 {
    let since = alert["activeAt"].as_str().expect("a time");
    let since = humantime::parse_rfc3339(since).expect("a time");
    SystemTime::now()
        .duration_since(since)
        .map_or(0.0, |time| time.as_secs_f64())
}

#[test]
fn a_restart_with_storage_keeps_the_time_of_for() {
    /// Longer than a gateway takes to start.
    const PENDING_SECONDS: f64 = 8.0;
    let scene = Scene::new(&rules("1h")).with("storage: file_storage");
    let gateway = scene.start();
    scene.send("x", 9.0);
    wait_until(SOON, "the alert is pending for some seconds", || {
        scene
            .alert("x")
            .is_some_and(|alert| active_for(&alert) > PENDING_SECONDS)
    });
    gateway.kill();
    // A run in which the series does not come: the alert waits, and outlasts it.
    let gateway = scene.start();
    wait_until(SOON, "the rules have run", || {
        scene.get("/api/v1/rules")["groups"][0]["rules"][1]["health"] == "ok"
    });
    assert!(scene.alerts().is_empty(), "its series is not there");
    gateway.stop();
    let started = Instant::now();
    let gateway = scene.start();
    scene.send("x", 9.0);
    let alert = scene.wait_for_alert("x", "pending");
    // Alerts are kept every second. Without them, the alert would be younger than the gateway.
    let age = started.elapsed().as_secs_f64();
    assert!(active_for(&alert) > age, "`for` began again: {alert}");
    gateway.stop();
}

#[test]
fn a_reload_keeps_alerts_of_equal_rules_and_takes_new_rules() {
    let scene = Scene::new(&rules("1h"));
    let gateway = scene.start();
    scene.send("x", 9.0);
    let before = scene.wait_for_alert("x", "pending");
    let unchanged = scene.reload(&gateway);
    assert_eq!(unchanged["success"], true, "{unchanged}");
    assert_eq!(unchanged["changed"], json!([]), "nothing is built again");
    scene.write(&(rules("1h") + "  - record: zones\n    expr: count(depth)\n"));
    let result = scene.reload(&gateway);
    assert_eq!(result["success"], true, "{result}");
    wait_until(SOON, "the new rule records", || {
        scene.value("zones").as_deref() == Some("1")
    });
    let after = scene.wait_for_alert("x", "pending");
    assert_eq!(after["activeAt"], before["activeAt"]);
    assert_eq!(scene.value("zone:depth:max").as_deref(), Some("9"));
    scene.write("groups:\n- name: web\n  rules:\n  - alert: Broken\n    expr: sum(\n");
    let broken = scene.reload(&gateway);
    assert_eq!(broken["success"], false, "{broken}");
    let error = broken["error"].as_str().expect("a text");
    assert!(error.contains("web.yaml:5"), "{error}");
    let still = scene.wait_for_alert("x", "pending");
    assert_eq!(still["activeAt"], before["activeAt"]);
    scene.write("groups: []\n");
    assert_eq!(scene.reload(&gateway)["success"], true);
    wait_until(SOON, "the series of removed rules end", || {
        scene.alerts().is_empty() && scene.value("zone:depth:max").is_none()
    });
    gateway.stop();
}

/// The rules with another one, which records the number of the configuration. Its place, the group's other rule and its `for`
/// differ.
fn numbered_rules(number: usize) -> String {
    let numbered = format!("  - record: configuration:{number}\n    expr: vector({number})\n");
    match number {
        0 => rules("1h") + &numbered,
        1 => rules("2h") + &numbered,
        _ => rules("1h").replace("  rules:\n", &format!("  rules:\n{numbered}")),
    }
}

#[test]
fn a_recorded_series_is_always_there_while_a_reload_changes_other_rules() {
    const CONFIGURATIONS: usize = 3;
    const ROUNDS: usize = 3;
    let scene = Arc::new(Scene::new(&numbered_rules(0)));
    let gateway = scene.start();
    scene.send("x", 9.0);
    let on_page = |scene: &Scene| {
        let page = scene.page();
        let series: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("zone:depth:max{"))
            .collect();
        if series == ["zone:depth:max{zone=\"x\"} 9"] {
            Ok(())
        } else {
            Err(format!("{series:?} on the page: {page}"))
        }
    };
    // A sum shows a second series too.
    let in_queries = |scene: &Scene| match scene.value("sum(zone:depth:max)").as_deref() {
        Some("9") => Ok(()),
        other => Err(format!("the answer is {other:?}")),
    };
    wait_until(SOON, "the series is recorded", || {
        on_page(&scene).is_ok() && in_queries(&scene).is_ok()
    });
    let (of_page, of_queries) = (scene.clone(), scene.clone());
    let mut readers = [
        Repeated::start("the page", move || on_page(&of_page)),
        Repeated::start("the query", move || in_queries(&of_queries)),
    ];
    for step in 1..=CONFIGURATIONS * ROUNDS {
        let number = step % CONFIGURATIONS;
        scene.write(&numbered_rules(number));
        let result = scene.reload(&gateway);
        assert_eq!(result["success"], true, "{result}");
        let changed = result["changed"].to_string();
        assert!(changed.contains("extensions::rules"), "{changed}");
        // The new rules have run at least once.
        wait_until(SOON, "the rules of the new configuration record", || {
            let value = scene.value(&format!("configuration:{number}"));
            value.as_deref() == Some(&*number.to_string())
        });
        readers.iter_mut().for_each(Repeated::wait_for_run);
    }
    for reader in readers {
        assert!(reader.stop() >= (CONFIGURATIONS * ROUNDS) as u64);
    }
    gateway.stop();
}

#[test]
fn alerts_of_a_dead_target_are_unknown_until_it_is_back() {
    let page = |depth: u32| Answer::text(&format!("# TYPE depth gauge\ndepth{{zone=\"x\"}} {depth}\n"));
    let target = Target::start();
    target.answer("/metrics", page(9));
    let rules = "groups: [{name: web, rules: [{alert: Deep, expr: depth > 5}]}]\n";
    let scene = Scene::new(rules).with("stale: unknown");
    let scrape = format!(
        "receivers:
  prometheus:
    config:
      global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
      scrape_configs: [{{job_name: web, static_configs: [{{targets: [\"{}\"]}}]}}]
",
        target.address()
    );
    let config = scene.config().replace("receivers:\n", &scrape);
    let gateway = Gateway::start(&config.replace("[otlp]", "[otlp, prometheus]"));
    let firing = scene.wait_for_alert("x", "firing");
    let broken = Answer {
        status: 500,
        ..Answer::default()
    };
    target.answer("/metrics", broken);
    let is_unknown = |alert: &Value| alert["labels"]["state"] == "unknown";
    wait_until(SOON, "an alert says that the state is unknown", || {
        scene.alerts().iter().any(is_unknown)
    });
    let still = scene.wait_for_alert("x", "firing");
    assert_eq!(
        still["activeAt"], firing["activeAt"],
        "it has not resolved in between"
    );
    // The rules that a reload brings know of the dead source too.
    scene.write(&rules.replace("rules: [", "rules: [{record: ones, expr: vector(1)}, "));
    let result = scene.reload(&gateway);
    assert_eq!(result["success"], true, "{result}");
    wait_until(SOON, "the new rule records", || {
        scene.value("ones").as_deref() == Some("1")
    });
    let still = scene.wait_for_alert("x", "firing");
    assert_eq!(still["activeAt"], firing["activeAt"], "the reload keeps it");
    target.answer("/metrics", page(1));
    wait_until(SOON, "the alert resolves with its source", || {
        scene.alerts().is_empty()
    });
    gateway.stop();
}

/// The firing alert that a rule gives, without the one that says that its state is unknown.
fn firing(scene: &Scene) -> Option<Value> {
    let mut alerts = scene.alerts().into_iter();
    alerts.find(|alert| alert["labels"]["state"].is_null() && alert["state"] == "firing")
}

/// Waits until an alert says that the state is unknown. The other one is as it was.
fn wait_until_unknown(scene: &Scene, deadline: Duration, before: &Value) {
    wait_until(deadline, "an alert says that the state is unknown", || {
        let mut alerts = scene.alerts().into_iter();
        alerts.any(|alert| alert["labels"]["state"] == "unknown")
    });
    let still = firing(scene).expect("it still fires");
    assert_eq!(
        still["activeAt"], before["activeAt"],
        "it has not resolved in between"
    );
}

#[test]
fn alerts_of_a_silent_sender_are_unknown_until_it_reports_again() {
    /// Requests of a sender within 1 s are one push, and its lease is short after three of them.
    const PUSHES: Duration = Duration::from_secs(4);
    /// Longer than the lease of a sender whose interval is not known.
    const SILENCE: Duration = Duration::from_mins(2);
    let rules = "groups: [{name: web, rules: [{alert: Deep, expr: depth > 5}]}]\n";
    let scene = Scene::new(rules).with("stale: unknown");
    let gateway = scene.start();
    let send = |depth| scene.send_from(Some("web"), "x", depth);
    let begun = Instant::now();
    wait_until(SOON, "the interval of the sender is known", || {
        send(9.0);
        begun.elapsed() > PUSHES
    });
    let before = wait_for(SOON, "the alert fires", || firing(&scene));
    wait_until_unknown(&scene, SILENCE, &before);
    wait_until(SOON, "both alerts resolve with the sender", || {
        send(1.0);
        scene.alerts().is_empty()
    });
    gateway.stop();
}

#[test]
fn alerts_over_a_stale_composite_are_unknown_until_it_is_fresh() {
    let rules = "groups: [{name: web, rules: [{alert: Deep, expr: deepest > 5}]}]\n";
    let scene = Scene::new(rules).with("stale: unknown");
    let composite = "processors:
  composite:
    composites: [{name: deepest, metric: depth, function: last, across: max, by: [], lease: 1s}]
receivers:
";
    let config = scene.config().replace("receivers:\n", composite);
    let pipeline = "{receivers: [otlp], processors: [composite],";
    let gateway = Gateway::start(&config.replace("{receivers: [otlp],", pipeline));
    // Without any report, the state is unknown too.
    let before = wait_for(SOON, "only the alert fires", || {
        scene.send("x", 9.0);
        firing(&scene).filter(|_| scene.alerts().len() == 1)
    });
    wait_until_unknown(&scene, SOON, &before);
    assert!(scene.value("depth").is_some(), "only the composite is stale");
    wait_until(SOON, "both alerts resolve with the composite", || {
        scene.send("x", 1.0);
        scene.alerts().is_empty()
    });
    gateway.stop();
}
