// SPDX-License-Identifier: Apache-2.0

//! Ways to ask for a reload, and what they answer.

use super::*;
use std::path::Path;

#[test]
fn a_post_reloads_for_clients_that_authenticate() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let guarded = plain
        .replace(
            "extensions: {admin: {",
            "extensions: {bearertokenauth: {token: secret}, admin: {auth: {authenticator: bearertokenauth}, ",
        )
        .replace("[health_check, admin]", "[health_check, bearertokenauth, admin]");
    let gateway = Gateway::start(&guarded);
    let post = |headers: &[(&str, &str)]| {
        http::request("POST", ports.admin, "/-/reload", headers, b"").expect("an answer")
    };
    assert_eq!(post(&[]).status, 401);
    let token = [("authorization", "Bearer secret")];
    // A change of what the admin extension uses would end its history.
    fs::write(
        gateway.path("config.yaml"),
        guarded.replace("token: secret", "token: other"),
    )
    .expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 500);
    assert_eq!(shown_success(&gateway), 0.0);
    let why = "extensions::bearertokenauth, which extensions::admin uses, can't change";
    assert!(answer.text().contains(why), "{}", answer.text());
    let get = http::request("GET", ports.admin, "/-/reload", &token, b"").expect("an answer");
    assert_eq!(get.status, 405);
    let changed = guarded.replace("processors: []", "processors: [attributes]");
    fs::write(gateway.path("config.yaml"), changed).expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 200);
    assert_eq!(shown_success(&gateway), 1.0);
    assert!(
        answer.text().contains("added processors::attributes@metrics"),
        "{}",
        answer.text()
    );
    let answer = post(&token);
    assert_eq!(
        (answer.status, answer.text()),
        (200, "nothing has changed\n".to_owned())
    );
    fs::write(gateway.path("config.yaml"), "receivers: {otlp: {x: 1}}").expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 500);
    assert_eq!(shown_success(&gateway), 0.0);
    assert!(answer.text().contains("config.yaml:1"), "{}", answer.text());
    gateway.stop();
    let gateway = Gateway::start(&plain);
    let answer = post(&[]);
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("SIGHUP"), "{}", answer.text());
    gateway.stop();
}

#[test]
fn a_reload_that_waits_for_the_drain_of_another_one_is_logged() {
    let ports = ports();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let first = config(ports, &nobody, BASE);
    let mut live = Live::start(ports.admin, &first);
    Sender::connect(ports.input).send().expect("the queue has room");
    // The exporter goes without a successor: it tries to send what it has.
    live.applies(&first.replace("exporters: [otlphttp]", "exporters: [debug]"));
    live.gateway.signal(Signal::HUP);
    let line = live.gateway.wait_for_log("a reload waits");
    assert!(line.contains("SIGHUP"), "{line}");
    live.gateway.stop();
}

#[test]
fn watched_files_are_applied_when_they_change() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let mut gateway = Gateway::start_with(&of(BASE), |command| {
        command.arg("--watch-config");
    });
    let line = gateway.wait_for_log("watching the files of the configuration");
    assert!(
        line.contains("config.yaml") && line.ends_with("interval=1s"),
        "{line}"
    );
    let live = Live {
        gateway,
        admin: ports.admin,
    };
    live.write(&of(VARIANTS[0]));
    let result = wait_for(SOON, "the change is applied", || live.reloads().first().cloned());
    live.shows(&result);
    assert_eq!(result["cause"], "--watch-config");
    assert_eq!(
        result["changed"],
        serde_json::json!(["added processors::attributes@metrics"])
    );
    live.gateway.stop();
}

#[test]
fn watched_rule_files_are_applied_when_they_change_appear_or_go() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let config = config(ports, &sink.endpoint(), BASE)
        .replace(
            "extensions: {admin: {",
            "extensions: {rules: {files: [\"rules/*.yaml\"]}, admin: {",
        )
        .replace("[health_check, admin]", "[health_check, admin, rules]");
    let mut gateway = Gateway::start_with(&config, |command| {
        command.arg("--watch-config");
    });
    let line = gateway.wait_for_log("watching the files of the configuration");
    assert!(line.contains("rules/*.yaml"), "{line}");
    let live = Live {
        gateway,
        admin: ports.admin,
    };
    let directory = live.gateway.path("rules");
    fs::create_dir(&directory).expect("a directory of the test");
    let [first, second] = ["a.yaml", "b.yaml"].map(|name| directory.join(name));
    let rules = |name: &str| format!("groups: [{{name: {name}, rules: [{{record: {name}, expr: up}}]}}]");
    let broken = "groups: [{name: a, rules: [{record: r, expr: sum(}]}]";
    let write = |path: &Path, text: &str| fs::write(path, text).expect("a file of the test");
    let mut reloads = 0;
    let mut reloaded = |change: &dyn Fn()| {
        change();
        reloads += 1;
        let result = wait_for(SOON, "the change is applied", || {
            let past = live.reloads();
            (past.len() == reloads).then(|| past[0].clone())
        });
        assert_eq!(result["cause"], "--watch-config");
        result
    };
    for change in [
        &(|| write(&first, &rules("one"))) as &dyn Fn(),
        &|| write(&first, &rules("two")),
        &|| write(&second, &rules("three")),
        &|| fs::remove_file(&second).expect("a file of the test"),
    ] {
        let result = reloaded(change);
        assert_eq!(result["success"], true, "{result}");
        let changed = result["changed"].to_string();
        assert!(changed.contains("rebuilt extensions::rules"), "{changed}");
    }
    // It asks once: the reload of the next change is the next one in the list.
    let refused = reloaded(&|| write(&second, broken));
    assert_eq!(refused["success"], false, "{refused}");
    let error = refused["error"].to_string();
    assert!(error.contains("b.yaml:1"), "{error}");
    let mended = reloaded(&|| write(&second, &rules("three")));
    assert_eq!(mended["success"], true, "{mended}");
    // The configuration is refused because of a file that the running one does not name.
    let [own, third] = ["config.yaml", "c.yaml"].map(|name| live.gateway.path(name));
    write(&third, broken);
    let named = config.replace("\"rules/*.yaml\"", "\"rules/*.yaml\", \"c.yaml\"");
    let refused = reloaded(&|| write(&own, &named));
    assert_eq!(refused["success"], false, "{refused}");
    let mended = reloaded(&|| write(&third, &rules("four")));
    assert_eq!(mended["success"], true, "{mended}");
    live.gateway.stop();
}
