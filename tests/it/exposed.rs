// SPDX-License-Identifier: Apache-2.0

//! The `prometheus` exporter and PromQL show the same series under the same names: tables of processors, the exporter's
//! own table, scrapes and `target_info`. The commands that ask the gateway see it too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use serde_json::Value as Json;
use tidegate_exposition::{Event, Format, Labels, Options, Parser};

use super::kit::command::{asking, result};
use super::kit::fixture::every_kind;
use super::kit::{Gateway, QueryApi, SOON, Target, free_port, http, wait_for, wait_until};

/// Labels of a series, with the metric's name as `__name__`.
type Series = BTreeMap<String, String>;

/// Values by series; as text, in which NaN is NaN.
type Seen = BTreeMap<Series, String>;

const EVERYTHING: &str = "{__name__=~\".+\"}";

/// The samples of an exporter's page; empty until it answers.
fn page(port: u16) -> Seen {
    let Ok(answer) = http::get(port, "/metrics") else {
        return Seen::new();
    };
    let mut parser = Parser::new(Format::Text, &answer.body, Options::default());
    let (mut seen, mut labels) = (Seen::new(), Labels::default());
    while let Some(event) = parser.next(b"").expect("a good page") {
        let Event::Sample(sample) = event else { continue };
        sample.series.labels(&mut labels).expect("good labels");
        let series = labels
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let before = seen.insert(series.collect(), sample.value.to_string());
        assert_eq!(before, None, "twice on the page: {}", answer.text());
    }
    seen
}

/// The samples that the API gives for all series, except native histograms, which a page of text can't have.
fn asked(admin: QueryApi) -> Seen {
    let samples = admin.query(EVERYTHING).into_iter();
    let seen: Vec<_> = samples.map(|one| (one.labels, one.value.to_string())).collect();
    let (count, seen) = (seen.len(), Seen::from_iter(seen));
    assert_eq!(seen.len(), count, "a series twice in an answer");
    seen
}

fn names(seen: &Seen) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for series in seen.keys() {
        *names.entry(series["__name__"].clone()).or_default() += 1;
    }
    names
}

/// How many series of each metric the cardinality page counts.
fn counted(tsdb: &Json) -> BTreeMap<String, usize> {
    let metrics = tsdb["seriesCountByMetricName"].as_array().expect("a list");
    let count = |one: &Json| {
        let name = one["name"].as_str().expect("a name").to_owned();
        (name, one["value"].as_u64().expect("a count") as usize)
    };
    metrics.iter().map(count).collect()
}

/// The series of an answer's `metric`.
fn series(one: &Json) -> Series {
    let labels = one["metric"].as_object().expect("labels").iter();
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    labels.map(|(name, value)| (name.clone(), text(value))).collect()
}

/// A gateway with two exporters of everything: `a` and `b` are before their names.
struct Pair {
    gateway: Gateway,
    admin: QueryApi,
    pages: BTreeMap<&'static str, u16>,
}

fn pair(chosen: Option<&str>) -> Pair {
    let (otlp, admin, a, b) = (free_port(), free_port(), free_port(), free_port());
    let chosen = chosen.map_or_else(String::new, |name| format!(", exporter: prometheus/{name}"));
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"{chosen}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
processors:
  composite: {{composites: [{{name: warmest, metric: room.temperature, function: max, across: max, window: 5m}}]}}
  aggregate: {{rules: [{{match: {{name: \"regex:requests|latency|size\"}}}}]}}
exporters:
  prometheus/a: {{endpoint: \"127.0.0.1:{a}\", namespace: a}}
  prometheus/b:
    endpoint: \"127.0.0.1:{b}\"
    namespace: b
    const_labels: {{site: x}}
    resource_to_telemetry_conversion: {{enabled: true}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [composite, aggregate], exporters: [prometheus/a, prometheus/b]}}
"
    ));
    let body = every_kind().encode_to_vec();
    let sent = http::post(otlp, "/v1/metrics", "application/x-protobuf", &body);
    assert_eq!(sent.expect("the gateway answers").status, 200);
    Pair {
        gateway,
        admin: QueryApi::at(admin),
        pages: BTreeMap::from([("a", a), ("b", b)]),
    }
}

impl Pair {
    /// The page of an exporter that shows everything.
    fn page(&self, name: &str) -> Seen {
        wait_for(SOON, "everything is on the page", || {
            let page = page(self.pages[name]);
            let names = names(&page);
            let all = ["warmest", "requests_total", "pause_seconds_sum", "target_info"];
            let has = |one: &str| names.contains_key(&format!("{name}_{one}"));
            all.into_iter().all(has).then_some(page)
        })
    }

    fn warnings(&self, path: &str, form: &[(&str, &str)]) -> Vec<String> {
        let answer = self.admin.api(path, form);
        assert_eq!(answer["status"], "success", "{answer}");
        let warnings = answer["warnings"].as_array().into_iter().flatten();
        warnings
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    }
}

#[test]
fn queries_see_the_page_of_the_chosen_exporter_and_each_table_once() {
    for (chosen, own, other) in [(None, "a", "b"), (Some("a"), "a", "b"), (Some("b"), "b", "a")] {
        let pair = pair(chosen);
        let (page, others) = (pair.page(own), pair.page(other));
        assert_eq!(asked(pair.admin), page, "chosen: {chosen:?}");
        assert_eq!(others.len(), page.len(), "both show the same tables");
        assert!(page.len() > 25, "{page:?}");

        // The native histogram is the one series that no page of text has.
        let mut names = names(&page);
        names.insert(format!("{own}_size_bytes"), 1);
        let everything = format!("count({EVERYTHING})");
        assert_eq!(pair.admin.value(&everything), Some(page.len() as f64 + 1.0));
        let tsdb = pair.admin.get("/api/v1/status/tsdb", &[("limit", "1000")]);
        assert_eq!(counted(&tsdb), names);
        assert_eq!(tsdb["headStats"]["numSeries"], page.len() + 1);
        // From now on: a composite that was sampled before its exporter started has a past under its plain name.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let start = format!("{}.{:03}", now.as_secs(), now.subsec_millis());
        let listed = pair
            .admin
            .get("/api/v1/label/__name__/values", &[("start", &start)]);
        let listed: BTreeSet<&str> = listed
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        assert_eq!(listed, names.keys().map(String::as_str).collect());
        pair.gateway.stop();
    }
}

#[test]
fn a_composite_and_target_info_are_explained_by_the_names_of_queries() {
    for own in ["a", "b"] {
        let pair = pair(Some(own));
        let page = pair.page(own);
        let explain = |name: &str| {
            let selector = format!("{own}_{name}");
            // `target_info` is there with the next sample of the past.
            let found = wait_for(SOON, &selector, || {
                let found = pair.admin.get("/api/v1/explain", &[("match[]", &selector)]);
                found.as_array().filter(|all| !all.is_empty()).cloned()
            });
            assert_eq!(found.len(), 1, "{selector}: {found:?}");
            assert!(page.contains_key(&series(&found[0])), "{found:?}");
            found[0].clone()
        };
        let composite = explain("warmest");
        assert_eq!(
            (&composite["composite"]["name"], &composite["composite"]["value"]),
            (&"warmest".into(), &21.5.into())
        );
        let target = explain("target_info");
        assert_eq!(
            (&target["value"], &target["state"]),
            (&1.0.into(), &"fresh".into()),
            "{target}"
        );
        assert_eq!(target["fed_by"][0]["source"]["host.name"], "worker");
        assert_eq!(
            explain("requests_total")["owner"],
            "processors::aggregate@metrics"
        );
        let owner = explain("sent_bytes_total")["owner"].clone();
        assert_eq!(
            owner,
            format!("exporters::prometheus/{own}"),
            "the copy of the chosen one"
        );
        pair.gateway.stop();
    }
}

#[test]
fn a_name_of_another_exporter_is_unknown_and_ours_is_suggested() {
    for (own, other) in [("a", "b"), ("b", "a")] {
        let pair = pair(Some(own));
        pair.page(own);
        for name in [
            "warmest",
            "requests_total",
            "latency_seconds_bucket",
            "target_info",
            "room_temperature_celsius",
        ] {
            let expected = format!(
                "metric \"{other}_{name}\" is not known: no present or recent series has this name; queries call it \"{own}_{name}\""
            );
            let asked = format!("{other}_{name}");
            for (path, form) in [("/api/v1/query", "query"), ("/api/v1/explain", "match[]")] {
                assert_eq!(pair.warnings(path, &[(form, &asked)]), [&*expected], "{path}");
            }
            let known = format!("{own}_{name}");
            assert_eq!(pair.warnings("/api/v1/query", &[("query", &known)]), [""; 0]);
            let (code, out, said) = command(pair.admin, &["query", &asked]);
            assert_eq!(
                (code, &*out, said),
                (Some(0), "", format!("warning: {expected}\nno result\n"))
            );
        }
        let whole = format!("{own}_latency_seconds");
        let warnings = pair.warnings("/api/v1/query", &[("query", &whole)]);
        assert!(
            warnings[0].ends_with(&format!("did you mean \"{whole}_bucket\"?")),
            "{warnings:?}"
        );
        assert_eq!(pair.warnings("/api/v1/explain", &[("match[]", &whole)]), [""; 0]);
        pair.gateway.stop();
    }
}

const PAGE: &str = "# TYPE requests_total counter\nrequests_total{code=\"200\"} 1027\nrequests_total{code=\"500\"} 3\n\
# TYPE depth gauge\ndepth 4.5\n\
# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 1\nwait_seconds_bucket{le=\"+Inf\"} 2\nwait_seconds_sum 3\nwait_seconds_count 2\n";

/// Exit code, standard output and standard error of a command that asks the gateway.
fn command(admin: QueryApi, arguments: &[&str]) -> (Option<i32>, String, String) {
    result(&mut asking(admin.port(), arguments))
}

/// Standard output of a command that succeeds without a word on standard error.
fn stdout_of(admin: QueryApi, arguments: &[&str]) -> String {
    let (code, out, said) = command(admin, arguments);
    assert_eq!((code, &*said), (Some(0), ""), "{arguments:?}");
    out
}

/// A line of `tidegate query`.
fn line((series, value): (&Series, &String)) -> String {
    let labels = series.iter().filter(|(name, _)| *name != "__name__");
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{}{{{}}}  {value}", series["__name__"], labels.join(", "))
}

#[test]
fn scraped_series_are_on_the_page_in_queries_and_in_every_command() {
    let target = Target::showing(PAGE);
    let (admin, port) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  prometheus:
    config:
      scrape_configs:
        - {{job_name: app, scrape_interval: 15s, static_configs: [{{targets: ['{}'], labels: {{rack: r1}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{port}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], exporters: [prometheus]}}}}
",
        target.address()
    ));
    let admin = QueryApi::at(admin);
    wait_until(SOON, "a scrape", || {
        page(port)
            .keys()
            .any(|series| series["__name__"] == "target_info")
    });

    // No scrape may come between the answers.
    let views = wait_for(SOON, "all answers between two scrapes", || {
        let before = page(port);
        let views = (
            asked(admin),
            stdout_of(admin, &["query", EVERYTHING]),
            stdout_of(admin, &["query", EVERYTHING, "--json"]),
            admin.get("/api/v1/explain", &[("match[]", EVERYTHING), ("limit", "1000")]),
            stdout_of(admin, &["explain", EVERYTHING, "--limit", "1000"]),
            stdout_of(admin, &["cardinality", "--top", "1000", "--json"]),
            stdout_of(admin, &["cardinality", "--top", "1000"]),
        );
        (page(port) == before).then_some((before, views))
    });
    let (page, (asked, lines, json, explained, explanations, counts, table)) = views;
    let names = names(&page);
    for name in [
        "up",
        "scrape_duration_seconds",
        "scrape_samples_scraped",
        "requests_total",
        "depth",
        "target_info",
    ] {
        assert!(names.contains_key(name), "{name}: {names:?}");
    }
    assert_eq!(names["wait_seconds_bucket"], 2);
    let value = |name: &str| {
        let found = page.iter().find(|(series, _)| series["__name__"] == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(
        (value("up"), value("scrape_samples_scraped")),
        (Some("1"), Some("7"))
    );

    assert_eq!(asked, page);
    let lines: BTreeSet<String> = lines.lines().map(str::to_owned).collect();
    assert_eq!(lines, page.iter().map(line).collect());
    let json: Json = serde_json::from_str(&json).expect("JSON");
    let of_json = json["result"].as_array().expect("a vector").iter();
    let of_json = of_json.map(|one| {
        (
            series(one),
            one["value"][1].as_str().unwrap_or_default().to_owned(),
        )
    });
    assert_eq!(of_json.collect::<Seen>(), page);

    let explained = explained.as_array().expect("a list");
    let is_whole = |one: &&Json| one["metric"]["__name__"] != "wait_seconds";
    let of_numbers = explained.iter().filter(is_whole);
    let of_numbers =
        of_numbers.map(|one| (series(one), one["value"].as_f64().unwrap_or(f64::NAN).to_string()));
    let mut others = page.clone();
    others.retain(|series, _| !series["__name__"].starts_with("wait_seconds"));
    assert_eq!(of_numbers.collect::<Seen>(), others);
    assert_eq!(explained.len(), others.len() + 1, "and the histogram");
    for one in explained {
        let is_target = one["metric"]["__name__"] == "target_info";
        let owner = if is_target {
            "the attributes of the resource"
        } else {
            "exporters::prometheus"
        };
        assert_eq!(
            (&one["owner"], &one["state"]),
            (&owner.into(), &"fresh".into()),
            "{one}"
        );
        let head = line((&series(one), &String::new()));
        assert!(
            explanations.lines().any(|line| line == head.trim_end()),
            "{head}: {explanations}"
        );
    }

    let counts: Json = serde_json::from_str(&counts).expect("JSON");
    assert_eq!(counted(&counts), names);
    assert_eq!(counts["headStats"]["numSeries"], page.len());
    assert!(table.starts_with(&format!("{} series,", page.len())), "{table}");
    assert!(table.contains("rack=r1"), "{table}");
    gateway.stop();
}
