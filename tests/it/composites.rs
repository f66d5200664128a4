// SPDX-License-Identifier: Apache-2.0

//! Composites of a running gateway by every way to them: commands, pages with authentication, a socket, shared memory.

use super::kit::gateway::tidegate;
use super::kit::keda::Keda;
use super::kit::process::Process;
use super::kit::{Answer, Gateway, SOON, Target, free_port, http, wait_for, wait_until};
use serde_json::Value as Json;
use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;
use tonic::Code;

/// A gateway whose composites are fed by datagrams, with all faces.
struct Scene {
    gateway: Gateway,
    admin: u16,
    sockets: TempDir,
}

fn start() -> Scene {
    let admin = free_port();
    let sockets = tempfile::tempdir().expect("a folder");
    let folder = sockets.path().display();
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\", auth: {{authenticator: bearertokenauth}}}}
  admin/socket: {{endpoint: \"unix:{folder}/admin.sock\"}}
  bearertokenauth: {{token: secret}}
  composite_page: {{path: \"{folder}/page\", interval: 2ms}}
receivers:
  uds: {{datagram: {{path: \"{folder}/statsd.sock\"}}}}
processors:
  composite:
    composites:
      - {{name: depth, metric: queue, function: last, across: sum, window: 60s, by: [model], quantiles: [0.5]}}
  aggregate: {{rules: [{{match: {{name: queue}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, bearertokenauth, admin, admin/socket, composite_page]
  pipelines: {{metrics: {{receivers: [uds], processors: [composite, aggregate], exporters: [prometheus]}}}}
",
        free_port()
    ));
    Scene {
        gateway,
        admin,
        sockets,
    }
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    fn send(&self, line: &str) {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket
            .send_to(line.as_bytes(), self.path("statsd.sock"))
            .expect("taken");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidegate();
        command.args(arguments).env(
            "TIDEGATE_ADMIN",
            format!("unix:{}", self.path("admin.sock").display()),
        );
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("a command")
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out.into_owned()
    }
}

#[test]
fn commands_ask_what_a_gateway_holds() {
    let scene = start();
    scene.send("queue:7|g|#model:m");
    let shown = wait_for(SOON, "the value", || {
        let shown = scene.text(&["composites"]);
        shown.contains("depth{model=\"m\"}").then_some(shown)
    });
    let line = shown
        .lines()
        .find(|line| line.starts_with("depth{"))
        .expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(&words[1..7], ["7", "7", "7", "7", "1", "fresh"], "{shown}");
    let got = scene.text(&["composites", "get", "depth", "--label", "model=m"]);
    assert!(
        got.contains("last (across series: sum) over 1m, sum 7, last 7, q0.5 7"),
        "{got}"
    );
    let sets: Json =
        serde_json::from_str(&scene.text(&["composites", "get", "depth", "--json"])).expect("JSON");
    assert_eq!(sets[0]["labels"]["model"], "m");
    let watched = scene.text(&["composites", "watch", "depth", "--events", "1"]);
    let (head, change) = watched.split_once('\n').expect("a head and a change");
    assert!(head.starts_with("TIME  COMPOSITE  VALUE"), "{watched}");
    let (time, change) = change.split_once("  ").expect("a time and a row");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{watched}");
    assert!(change.starts_with("depth{model=\"m\"}  7"), "{watched}");
    assert_eq!(scene.text(&["query", "queue + 1"]).trim(), "{model=\"m\"}  8");
    assert_eq!(scene.text(&["query", "1 + 1"]).trim(), "2");
    let explained = scene.text(&["explain", "queue{model=\"m\"}"]);
    for part in [
        "value     7",
        "made by   processors::aggregate@metrics, rules[0]",
        "1 of 1 source reporting",
    ] {
        assert!(explained.contains(part), "{part} not in {explained}");
    }
    let counted = scene.text(&["cardinality", "--top", "1"]);
    assert!(
        counted.contains("2 series") && counted.contains("model=m           2"),
        "{counted}"
    );
    for (arguments, why) in [
        (&["query", "sum("][..], "unclosed left parenthesis"),
        (&["composites", "get", "dept"], "did you mean `depth`?"),
        (
            &["composites", "get", "depth", "--label", "mode=m"],
            "depth: no group has mode=m; its groups are {model=\"m\"}",
        ),
        (&["explain", "nothing"], "metric \"nothing\" is not known"),
        (&["explain", "queu"], "did you mean \"queue\"?"),
        (
            &["explain", "queue{model=\"x\"}"],
            "no series matches now; if its source has ended, `tidegate query 'up == 0'` lists targets that are down, \
             and a range query shows the past",
        ),
        (&["query", "--fail-empty", "sum(queu)"], "did you mean \"queue\"?"),
        (
            &["query", "--fail-empty", "queue{model=\"x\"}"],
            "no series matches at this time",
        ),
        (
            &["query", "1", "--endpoint", "http://127.0.0.1:1"],
            "is the gateway running",
        ),
    ] {
        let output = scene.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(why),
            "{arguments:?}: {said}"
        );
    }
    scene.gateway.stop();
}

#[test]
fn a_watch_without_a_match_says_what_it_waits_for() {
    let scene = start();
    scene.send("queue:7|g|#model:m");
    wait_until(SOON, "the value", || {
        scene.text(&["composites"]).contains("depth{model=\"m\"}")
    });
    let arguments = [
        "composites",
        "watch",
        "depth",
        "--label",
        "model=n",
        "--events",
        "1",
    ];
    let mut watch = Process::start("watch", &mut scene.command(&arguments));
    let said = watch.stderr.clone();
    let why = "depth: no group has model=n; its groups are {model=\"m\"}; waiting for one";
    watch.wait_until("it says what it waits for", || said.find(why).is_some());
    scene.send("queue:9|g|#model:n");
    assert!(watch.wait(SOON).success());
    let shown = watch.stdout.text();
    assert!(shown.contains("  depth{model=\"n\"}  9"), "{shown}");
    assert_eq!(said.text().lines().count(), 1, "{}", said.text());
    scene.gateway.stop();
}

/// Sources the script for bash, and completes the last argument.
const COMPLETE: &str = r#"
source <("$0" completion bash)
COMP_WORDS=("$0" "$@")
COMP_CWORD=$#
COMP_LINE="$0 $*"
COMP_POINT=${#COMP_LINE}
_tidegate_with_names "$0" "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
echo "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes_the_names_that_the_gateway_has() {
    let scene = start();
    let admin = format!("unix:{}", scene.path("admin.sock").display());
    let complete = |arguments: &[&str], admin: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-c", COMPLETE, env!("CARGO_BIN_EXE_tidegate")])
            .args(arguments)
            .env("TIDEGATE_ADMIN", admin);
        let output = command.output().expect("bash runs");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    scene.send("queue:7|g|#model:m");
    wait_for(SOON, "the name", || {
        (complete(&["composites", "get", "de"], &admin) == "depth").then_some(())
    });
    assert_eq!(complete(&["composites", "watch", "x"], &admin), "");
    assert!(complete(&["composites", "get", "--js"], &admin).contains("--json"));
    // On a busy machine, an answer may take longer than the second that the script waits.
    wait_until(SOON, "the components", || {
        let expected = "aggregate composite exporters::prometheus processors::aggregate processors::composite \
                        prometheus receivers::uds uds";
        complete(&["tap", ""], &admin) == expected
    });
    wait_until(SOON, "the component", || {
        complete(&["tap", "com"], &admin) == "composite"
    });
    // The shell keeps what it has up to the last colon.
    wait_until(SOON, "the component of a path", || {
        complete(&["tap", "processors::co"], &admin) == "composite"
    });
    assert!(complete(&["tap", "--wh"], &admin).contains("--where"));
    let closed = format!("127.0.0.1:{}", free_port());
    assert_eq!(complete(&["composites", "get", "de"], &closed), "");
    assert_eq!(complete(&["tap", ""], &closed), "");
    scene.gateway.stop();
}

#[test]
fn the_script_for_fish_asks_the_gateway_with_functions_that_it_has() {
    let output = tidegate().args(["completion", "fish"]).output();
    let output = output.expect("it starts");
    let script = String::from_utf8_lossy(&output.stdout);
    assert!(script.contains("$words[1] composites ls --names"), "{script}");
    assert!(script.contains("$words[1] top --names"), "{script}");
    for function in [
        "__fish_tidegate_composites",
        "__fish_tidegate_components",
        "__fish_tidegate_using_subcommand",
    ] {
        assert!(
            script.contains(&format!("\nfunction {function}\n")),
            "{function}: {script}"
        );
    }
    let asks = "__fish_seen_subcommand_from get watch\" -f -a \"(__fish_tidegate_composites)\"";
    assert!(script.contains(asks), "{script}");
    let asks = "__fish_tidegate_using_subcommand tap\" -f -a \"(__fish_tidegate_components)\"";
    assert!(script.contains(asks), "{script}");
}

#[test]
fn the_admin_pages_require_authentication() {
    let scene = start();
    let refused = http::get(scene.admin, "/api/v1/query?query=1").expect("an answer");
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some());
    let endpoint = format!("http://127.0.0.1:{}", scene.admin);
    let output = scene.run(&["query", "1", "--endpoint", &endpoint]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("401") && said.contains("TIDEGATE_TOKEN_FILE"),
        "{said}"
    );
    let file = scene.path("token");
    std::fs::write(&file, "secret\n").expect("a file");
    let missing = scene.path("no-such-token");
    for (name, value, is_right) in [
        ("TIDEGATE_TOKEN", OsStr::new("secret"), true),
        ("TIDEGATE_TOKEN", OsStr::new("wrong"), false),
        ("TIDEGATE_TOKEN_FILE", file.as_os_str(), true),
        ("TIDEGATE_TOKEN_FILE", missing.as_os_str(), false),
    ] {
        let mut command = tidegate();
        command
            .args(["query", "1", "--endpoint", &endpoint])
            .env(name, value);
        let output = command.output().expect("a command");
        assert_eq!(output.status.success(), is_right, "{name} {value:?}: {output:?}");
    }
    let asked = scene.text(&[
        "query",
        "1",
        "--endpoint",
        &endpoint,
        "--header",
        "Authorization: Bearer secret",
    ]);
    assert_eq!(asked.trim(), "1");
    scene.gateway.stop();
}

#[test]
fn a_process_of_the_node_reads_composites_out_of_shared_memory() {
    let scene = start();
    scene.send("queue:7|g|#model:m");
    let path = scene.path("page");
    let reader = tidegate_page::Reader::open(&path).expect("a page");
    let handle = wait_for(SOON, "the slot", || reader.find("depth", "model=\"m\"").ok());
    let read = wait_for(SOON, "a value", || reader.read(&handle).ok());
    assert_eq!((read.value, read.state), (Some(7.0), tidegate_page::State::Fresh));
    scene.send("queue:9|g|#model:m");
    wait_for(SOON, "the next value", || {
        reader.read(&handle).ok().filter(|read| read.value == Some(9.0))
    });
    scene.gateway.stop();
    assert!(!path.exists(), "the page goes with the gateway");
}

/// Pushes the depth of a pod's queue over OTLP.
fn push_depth(port: u16, pod: &str, depth: u32) {
    push_point(port, pod, &format!(r#"{{"asInt":"{depth}"}}"#));
}

fn push_point(port: u16, pod: &str, point: &str) {
    let body = format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.instance.id","value":{{"stringValue":"{pod}"}}}}]}},
        "scopeMetrics":[{{"metrics":[{{"name":"queue","unit":"1","gauge":{{"dataPoints":[{point}]}}}}]}}]}}]}}"#
    );
    let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes());
    assert_eq!(answer.expect("it lives").status, 200);
}

#[test]
fn gauges_that_would_be_mixed_are_an_error_on_every_face() {
    let (input, admin, scrape) = (free_port(), free_port(), free_port());
    let mut gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  composite:
    composites:
      - {{name: depth, metric: queue, function: max}}
      - {{name: samples, metric: queue, function: count, across: sum}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{scrape}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite], exporters: [prometheus]}}}}
"
    ));
    let mut keda = Keda::at(admin);
    let depth: &[(&str, &str)] = &[("composite", "depth"), ("target", "1")];
    push_depth(input, "a", 3);
    assert_eq!(keda.metric(depth), Ok(3.0), "one gauge is not mixed");
    push_depth(input, "b", 4);
    let choices = "set `across` to sum, avg, min, max, count or quantile";
    for (name, part) in [
        ("depth", choices),
        ("samples", "adds up the samples of the gauge `queue`"),
    ] {
        let page = http::get(admin, &format!("/api/v1/composites/{name}")).expect("a page");
        let shown = page.json()[0].clone();
        assert!(shown["value"].is_null(), "{shown}");
        let error = shown["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(part), "{error}");
        for kind in ["composite", "query"] {
            let trigger = [(kind, name), ("target", "1"), ("onPartial", "use")];
            let (code, why) = keda.metric(&trigger).expect_err("no value");
            assert!(code == Code::FailedPrecondition && why.contains(part), "{why}");
        }
        let asked = http::get(admin, &format!("/api/v1/query?query={name}")).expect("an answer");
        let text = asked.json()["error"].as_str().expect("an error").to_owned();
        assert!(asked.status == 422 && text.contains(part), "{text}");
    }
    let (explained, is_explained) = explain(admin, "depth");
    assert!(is_explained && explained.contains("  error     "), "{explained}");
    assert!(explained.contains(choices), "{explained}");
    let page = http::get(scrape, "/metrics").expect("a page").text();
    assert!(!page.contains("\ndepth") && !page.contains("\nsamples"), "{page}");
    let said = [choices, "adds up the samples of the gauge `queue`"];
    for part in said {
        gateway.wait_for_log(part);
    }
    let log = gateway.stop();
    for part in said {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(part)).collect();
        assert!(lines.len() == 1 && lines[0].contains("ERROR"), "{lines:?}");
    }
}

#[test]
fn explain_names_the_target_that_a_composite_lacks() {
    let ports = [free_port(), free_port()];
    let admin = free_port();
    let targets = ports.map(|port| {
        let target = Target::start_on(port);
        target.answer("/metrics", Answer::text("queue{model=\"m\"} 3\n"));
        target
    });
    let [first, second] = ports;
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  prometheus:
    config:
      scrape_configs:
        - {{job_name: llm, scrape_interval: 500ms, scrape_timeout: 500ms,
            static_configs: [{{targets: ['127.0.0.1:{first}', '127.0.0.1:{second}']}}]}}
processors:
  composite:
    composites:
      - {{name: depth, metric: queue, function: last, across: sum, by: [model]}}
      - {{name: depth_promql, expr: 'sum by (model) (queue)'}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], processors: [composite], exporters: [prometheus]}}}}
",
        free_port()
    ));
    let names = ["depth", "depth_promql"];
    for name in names {
        let explained = wait_for(SOON, "both targets report", || {
            let (explained, _) = explain(admin, name);
            explained
                .contains("2 of 2 sources reporting")
                .then_some(explained)
        });
        assert!(!explained.contains("silent"), "{explained}");
    }
    let [_alive, dead] = targets;
    drop(dead);
    for name in names {
        let explained = wait_for(SOON, "one target is down", || {
            let (explained, _) = explain(admin, name);
            explained.contains("  silent    1 source\n").then_some(explained)
        });
        let row = explained.lines().find(|line| line.contains("  down  "));
        let row = row.expect("the target that is down");
        assert!(
            row.contains(&second.to_string()) && row.ends_with(" s ago"),
            "{explained}"
        );
    }
    gateway.stop();
}

/// The output of `tidegate explain`, and whether it has found something.
fn explain(admin: u16, selector: &str) -> (String, bool) {
    let mut command = tidegate();
    command.args([
        "explain",
        selector,
        "--endpoint",
        &format!("http://127.0.0.1:{admin}"),
    ]);
    let output = command.output().expect("a command");
    let text = [output.stdout, output.stderr].concat();
    (
        String::from_utf8_lossy(&text).into_owned(),
        output.status.success(),
    )
}

/// The composites in the answer of the API, by their states and sums.
fn explained_by_api(admin: u16, selector: &str) -> Vec<(String, Json)> {
    let page = http::get(admin, &format!("/api/v1/explain?match[]={selector}")).expect("a page");
    let page = page.json();
    let all = page["data"].as_array().expect("a list").iter();
    let all = all.filter(|one| one["composite"].is_object());
    all.map(|one| {
        let state = one["state"].as_str().expect("a state").to_owned();
        (state, one["composite"]["value"].clone())
    })
    .collect()
}

#[test]
fn a_composite_without_a_value_is_explained() {
    let (input, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  composite:
    composites:
      - {{name: depth, metric: queue, function: last, across: sum}}
  aggregate: {{rules: [{{match: {{name: queue}}}}]}}
exporters:
  nop:
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite, aggregate], exporters: [nop]}}}}
"
    ));
    let absent = vec![("absent".to_owned(), Json::Null)];
    assert_eq!(explained_by_api(admin, "depth"), absent);
    let (text, is_explained) = explain(admin, "depth");
    assert!(
        is_explained && text.contains("state     absent, 0 of 0 sources"),
        "{text}"
    );

    push_depth(input, "a", 3);
    let fresh = vec![("fresh".to_owned(), Json::from(3.0))];
    assert_eq!(
        explained_by_api(admin, "depth"),
        fresh,
        "one group is listed once"
    );
    let (text, _) = explain(admin, "queue_ratio");
    assert!(text.contains("  value     3\n"), "without its unit 1: {text}");

    // The source says that the series has ended.
    push_point(input, "a", r#"{"flags":1}"#);
    let ended = explained_by_api(admin, "depth");
    assert!(
        ended.len() == 1 && ended[0].0 != "fresh" && ended[0].1.is_null(),
        "{ended:?}"
    );
    let (text, is_explained) = explain(admin, "depth");
    let state = format!("  state     {}, 0 of ", ended[0].0);
    assert!(
        is_explained && text.contains(&state) && text.contains("  value     - (last over "),
        "{text}"
    );
    assert_eq!(explained_by_api(admin, "dept"), []);
    let (text, is_explained) = explain(admin, "dept");
    assert!(
        !is_explained && text.contains("no series matches now; "),
        "{text}"
    );
    gateway.stop();
}
