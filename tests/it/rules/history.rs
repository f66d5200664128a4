// SPDX-License-Identifier: Apache-2.0

//! The history reaches as far as the rules read.

use super::*;

/// A rule that records the greatest depth of a range.
fn greatest(range: &str) -> String {
    format!(
        "groups:
- name: web
  rules:
  - record: depth:max{range}
    expr: max_over_time(depth[{range}])
"
    )
}

#[test]
fn rules_with_long_ranges_work_without_a_setting_of_the_history() {
    let scene = Scene::new(&greatest("1h"));
    let config = scene.config().replace(", retention: 1m", "");
    assert!(!config.contains("retention"), "{config}");
    let checked = tidegate()
        .args(["validate", "--config", &format!("yaml:{config}")])
        .args(["--set", "extensions.health_check.endpoint=127.0.0.1:1"])
        .output()
        .expect("it starts");
    let found = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{found}");
    let gateway = Gateway::start(&config);
    scene.send("x", 9.0);
    wait_until(SOON, "the rule records", || {
        scene.value("depth:max1h").as_deref() == Some("9")
    });
    wait_until(SOON, "the history has the value", || {
        let count = scene.value("count_over_time(depth[1m])");
        count.is_some_and(|count| count.parse::<f64>().expect("a number") >= 2.0)
    });
    scene.send("x", 1.0);
    wait_until(SOON, "the value is another", || {
        scene.value("depth").as_deref() == Some("1")
    });
    scene.write(&greatest("2h"));
    let longer = scene.reload(&gateway);
    assert_eq!(longer["success"], true, "{longer}");
    wait_until(SOON, "the new rule records", || {
        scene.value("depth:max2h").is_some()
    });
    let greatest_value = || scene.value("depth:max2h");
    assert_eq!(
        greatest_value().as_deref(),
        Some("9"),
        "the samples of before are there"
    );
    scene.write(&greatest("9999d"));
    let refused = scene.reload(&gateway);
    assert_eq!(refused["success"], false, "{refused}");
    let error = refused["error"].as_str().expect("a text");
    for part in ["web.yaml:4: rule `depth:max9999d`", "`history::max_bytes`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(greatest_value().as_deref(), Some("9"), "the old rules run on");
    gateway.stop();
}
