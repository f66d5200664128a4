//! The `prometheus` receiver: what it makes of pages, beside a real Prometheus that scrapes the same; discovery,
//! credentials, failures, and the end of series.

use super::kit::query_api::Sample;
use super::kit::{
    Answer, Gateway, OtlpSink, Prometheus, Release, SOON, Target, free_port, http, wait_for, wait_until,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write;

/// Everything that a page of text can have.
const PAGE: &str = "# HELP requests_total What came.
# TYPE requests_total counter
requests_total{code=\"200\",method=\"get\"} 1027
requests_total{code=\"500\",method=\"get\"} 3
# TYPE temperature_celsius gauge
temperature_celsius{room=\"a\",job=\"of the page\"} -3.5
temperature_celsius{room=\"b\"} NaN
# TYPE latency_seconds histogram
latency_seconds_bucket{le=\"0.1\"} 5
latency_seconds_bucket{le=\"1\"} 8
latency_seconds_bucket{le=\"+Inf\"} 9
latency_seconds_sum 4.25
latency_seconds_count 9
# TYPE pause_seconds summary
pause_seconds{quantile=\"0.5\"} 0.01
pause_seconds{quantile=\"0.99\"} 0.2
pause_seconds_sum 17.5
pause_seconds_count 300
untyped_thing{x=\"\u{e9} \\\"quoted\\\" \\\\ \\n\"} 7e10
dropped_thing 1
renamed_thing{old=\"v\"} 1
";

/// Rules with every action, in Prometheus's own words.
const RULES: &str = "
    relabel_configs:
      - {source_labels: [__address__], target_label: address, regex: '([^:]+):.*', replacement: 'DOLLAR{1}'}
      - {source_labels: [__address__], target_label: shard, modulus: 7, action: hashmod}
      - {regex: 'meta_(.+)', replacement: 'DOLLAR1', action: labelmap}
      - {regex: 'meta_.+', action: labeldrop}
      - {source_labels: [team], target_label: team, action: uppercase}
      - {source_labels: [team, zone], separator: '', target_label: low, action: lowercase}
      - {source_labels: [job], target_label: job, action: keepequal}
      - {source_labels: [__address__], target_label: instance, action: dropequal}
      - {regex: '.*', action: labelkeep}
      - {source_labels: [job], regex: app, action: keep}
      - {source_labels: [zone], regex: absent, action: drop}
      - {target_label: instance, replacement: the-instance}
    metric_relabel_configs:
      - {source_labels: [__name__], regex: 'dropped_.*', action: drop}
      - {source_labels: [__name__], regex: 'renamed_(.*)', target_label: __name__, replacement: 'new_DOLLAR1'}
      - {source_labels: [code, method], separator: '-', regex: '(.+)-(.+)', target_label: both, replacement: 'DOLLAR2.DOLLAR1'}
      - {source_labels: [code], target_label: hash, modulus: 1000, action: hashmod}
      - {regex: method, action: labeldrop}
";

/// A job that scrapes five times a second.
fn job(name: &str, targets: &str, more: &str) -> String {
    format!(
        "  - job_name: {name}
    scrape_interval: 200ms
    scrape_timeout: 200ms
    static_configs: [{{targets: [{targets}], labels: {{meta_team: core, meta_zone: z}}}}]
{more}"
    )
}

/// YAML of a list of jobs, to stand within braces.
fn jobs_inline(block: &str) -> String {
    let value: Vec<String> = block.lines().map(|line| format!("      {line}")).collect();
    value.join("\n")
}

/// A gateway that scrapes by jobs written as a block.
fn block_config(jobs: &str, exporters: &str, exporter: &str) -> String {
    format!(
        "receivers:
  prometheus:
    config:
      scrape_configs:
{}
exporters:
  {exporters}
service: {{pipelines: {{metrics: {{receivers: [prometheus], exporters: [{exporter}]}}}}}}
",
        jobs_inline(jobs)
    )
}

/// Series of a job by their labels, without those that differ from scrape to scrape.
fn series(prometheus: &Prometheus, job: &str) -> BTreeMap<Vec<(String, String)>, String> {
    let samples = prometheus.query(&format!(
        "{{job=\"{job}\",__name__!=\"scrape_duration_seconds\"}}"
    ));
    let key = |sample: &Sample| sample.labels.clone().into_iter().collect();
    samples
        .iter()
        .map(|sample| (key(sample), sample.value.to_string()))
        .collect()
}

#[test]
fn pages_and_rules_mean_what_they_mean_to_prometheus() {
    let target = Target::showing(PAGE);
    let address = format!("'{}'", target.address());
    let direct = job("app", &address, &RULES.replace("DOLLAR", "$"));
    let prometheus = Prometheus::start_release(Release::Newest, &format!("scrape_configs:\n{direct}"));
    let port = free_port();
    let through = job("app", &address, &RULES.replace("DOLLAR", "$$"));
    let exporter = format!("prometheus: {{endpoint: \"127.0.0.1:{port}\", without_scope_info: true}}");
    let gateway = Gateway::start(&block_config(&through, &exporter, "prometheus"));
    let behind = Prometheus::start_release(
        Release::Newest,
        &format!(
        "scrape_configs:
  - {{job_name: gateway, honor_labels: true, scrape_interval: 200ms, scrape_timeout: 200ms, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}
"
    ),
    );
    let mut last = (BTreeMap::new(), BTreeMap::new());
    let holds = |last: &mut (BTreeMap<_, _>, BTreeMap<_, _>)| {
        *last = (series(&prometheus, "app"), series(&behind, "app"));
        let settled = last.0.iter().any(|(labels, value)| {
            labels.contains(&("__name__".to_owned(), "scrape_series_added".to_owned())) && value == "0"
        });
        // What the gateway adds: which resource it was.
        last.1
            .retain(|labels, _| !labels.contains(&("__name__".to_owned(), "target_info".to_owned())));
        settled && last.0 == last.1
    };
    let started = std::time::Instant::now();
    while !holds(&mut last) {
        let (direct, through) = &last;
        let only = |one: &BTreeMap<Vec<(String, String)>, String>, other: &BTreeMap<_, _>| {
            one.iter()
                .filter(|(key, value)| other.get(*key) != Some(*value))
                .map(|(key, value)| format!("{key:?} {value}"))
                .collect::<Vec<_>>()
        };
        assert!(
            started.elapsed() < SOON,
            "only direct: {:#?}\nonly through the gateway: {:#?}",
            only(direct, through),
            only(through, direct)
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(last.0.len() >= 19, "{last:?}");
    // A series that goes away is gone at once on both sides, though both look back for five minutes.
    target.answer(
        "/metrics",
        Answer::text("requests_total{code=\"200\",method=\"get\"} 1028\n"),
    );
    for server in [&prometheus, &behind] {
        wait_until(SOON, "the others are stale", || {
            server
                .query("{job=\"app\",__name__=~\"pause_.*|latency_.*|temp.*\"}")
                .is_empty()
        });
        server.wait_for_value("requests_total{job=\"app\"}", 1028.0);
    }
    gateway.stop();
}

#[test]
fn a_target_that_is_gone_ends_at_every_sink() {
    let target = Target::showing("alive 1\n");
    let (sink, port) = (OtlpSink::start(), free_port());
    let config = block_config(
        &job("app", "'TARGET'", "").replace("TARGET", &target.address()),
        &format!(
            "prometheus: {{endpoint: \"127.0.0.1:{port}\"}}
  otlphttp: {{endpoint: \"{}\"}}
  file: {{path: out.jsonl}}",
            sink.endpoint()
        ),
        "prometheus, otlphttp, file",
    );
    let gateway = Gateway::start(&config);
    let page = || {
        http::get(port, "/metrics")
            .map(|page| page.text())
            .unwrap_or_default()
    };
    wait_until(SOON, "it is shown", || page().contains("\nalive{"));
    drop(target);
    wait_until(SOON, "it is shown no more", || {
        !page().contains("\nalive{") && page().contains("\nup{")
    });
    let line = wait_for(SOON, "up is 0", || {
        page()
            .lines()
            .find(|line| line.starts_with("up{") && line.ends_with(" 0"))
            .map(str::to_owned)
    });
    assert!(line.contains("job=\"app\""), "{line}");
    // Flag 1 is "no recorded value".
    let ended = |line: &str| line.contains("\"name\":\"alive\"") && line.contains("\"flags\":1");
    wait_until(SOON, "the file says so", || {
        std::fs::read_to_string(gateway.path("out.jsonl"))
            .unwrap_or_default()
            .lines()
            .any(ended)
    });
    wait_until(SOON, "the sink was told", || {
        sink.metrics()
            .iter()
            .any(|request| format!("{request:?}").contains("flags: 1"))
    });
    assert!(
        gateway.own_metric(
            "tidegate_scrape_failures_total",
            &["job=\"app\"", "reason=\"connection\""]
        ) > 0.0
    );
    assert_eq!(
        gateway.own_metric("tidegate_scrape_targets", &["state=\"down\""]),
        1.0
    );
    let said = gateway.stop();
    assert!(said.contains("scrape failed"), "{said}");
}

#[test]
fn every_way_to_fail_has_its_reason() {
    let sink = OtlpSink::start();
    let large = "x 1\n".repeat(3000);
    let answers = [
        (
            "status",
            Answer {
                status: 500,
                ..Answer::default()
            },
        ),
        ("content_type", Answer::of("", "x 1\n")),
        ("content_type", Answer::of("text/html", "<html>")),
        ("page", Answer::text("x{ 1\n")),
        ("page", Answer::of("application/openmetrics-text", "x 1\n")),
        ("body_size_limit", Answer::text(&large)),
        ("body_size_limit", gzip(&large)),
        (
            "body",
            Answer {
                headers: vec![("content-encoding", "gzip".to_owned())],
                ..Answer::text("x 1\n")
            },
        ),
        (
            "redirect",
            Answer {
                status: 302,
                headers: vec![("location", "/metrics".to_owned())],
                ..Answer::default()
            },
        ),
        (
            "timeout",
            Answer {
                delay: std::time::Duration::from_secs(5),
                ..Answer::text("x 1\n")
            },
        ),
    ];
    let targets: Vec<Target> = answers.iter().map(|_| Target::start()).collect();
    let mut jobs = String::new();
    for (index, (target, (_, answer))) in targets.iter().zip(&answers).enumerate() {
        target.answer("/metrics", answer.clone());
        jobs += &job(
            &format!("job{index}"),
            &format!("'{}'", target.address()),
            "    body_size_limit: 4KB\n",
        );
    }
    let gateway = Gateway::start(&block_config(
        &jobs,
        &format!("otlphttp: {{endpoint: \"{}\"}}", sink.endpoint()),
        "otlphttp",
    ));
    for (index, (reason, _)) in answers.iter().enumerate() {
        let name = format!("job{index}");
        sink.wait_until(&format!("{name} is down"), |sink| {
            sink.points_of("up")
                .iter()
                .any(|point| point.attribute("service.name") == name && point.number() == 0.0)
        });
        let labels = [&*format!("job=\"{name}\""), &*format!("reason=\"{reason}\"")];
        let counted = || gateway.own_metric("tidegate_scrape_failures_total", &labels) > 0.0;
        wait_until(SOON, &format!("{name}: {reason}"), counted);
    }
    gateway.stop();
}

fn gzip(page: &str) -> Answer {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(page.as_bytes()).expect("memory");
    Answer {
        headers: vec![
            ("content-type", "text/plain; version=0.0.4".to_owned()),
            ("content-encoding", "gzip".to_owned()),
        ],
        body: encoder.finish().expect("memory"),
        status: 200,
        ..Answer::default()
    }
}

#[test]
fn formats_codings_and_redirects_are_understood() {
    let zstd = |page: &str| Answer {
        headers: vec![
            ("content-encoding", "zstd".to_owned()),
            ("content-type", "text/plain".to_owned()),
        ],
        body: zstd::encode_all(page.as_bytes(), 1).expect("memory"),
        status: 200,
        ..Answer::default()
    };
    let answers = [
        ("plain", Answer::text("x 1\n"), ""),
        ("packed", gzip("x 1\n"), ""),
        ("packed better", zstd("x 1\n"), ""),
        (
            "openmetrics",
            Answer::of(
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                "# TYPE x gauge\nx 1\n# EOF\n",
            ),
            "",
        ),
        (
            "utf8",
            Answer::of(
                "text/plain; version=1.0.0; escaping=allow-utf-8",
                "# TYPE x gauge\n{\"x\",\"a.b\"=\"c\"} 1\n",
            ),
            "",
        ),
        (
            "fallback",
            Answer::of("", "x 1\n"),
            "    fallback_scrape_protocol: PrometheusText0.0.4\n",
        ),
        (
            "elsewhere",
            Answer {
                status: 307,
                headers: vec![("location", "/other?a=b".to_owned())],
                ..Answer::default()
            },
            "",
        ),
        ("nothing", Answer::text(""), ""),
    ];
    let sink = OtlpSink::start();
    let targets: Vec<Target> = answers.iter().map(|_| Target::start()).collect();
    let mut jobs = String::new();
    for (target, (name, answer, more)) in targets.iter().zip(&answers) {
        target.answer("/metrics", answer.clone());
        target.answer("/other", Answer::text("x 1\n"));
        jobs += &job(name, &format!("'{}'", target.address()), more);
    }
    let gateway = Gateway::start(&block_config(
        &jobs,
        &format!("otlphttp: {{endpoint: \"{}\"}}", sink.endpoint()),
        "otlphttp",
    ));
    for (name, _, _) in &answers {
        let of = |sink: &OtlpSink, metric: &str| {
            let points = sink.points_of(metric).into_iter();
            points
                .filter(|point| point.attribute("service.name") == *name)
                .map(|point| point.number())
                .collect::<Vec<_>>()
        };
        sink.wait_until(&format!("{name} is up"), |sink| of(sink, "up").contains(&1.0));
        assert_eq!(
            of(&sink, "up").iter().filter(|up| **up == 0.0).count(),
            0,
            "{name}"
        );
        if *name != "nothing" {
            assert!(of(&sink, "x").contains(&1.0), "{name}");
        }
    }
    gateway.stop();
}

#[test]
fn targets_come_and_go_by_files_and_services() {
    let (first, second, service) = (
        Target::showing("x 1\n"),
        Target::showing("x 2\n"),
        Target::start(),
    );
    let sink = OtlpSink::start();
    service.answer("/targets", Answer::json("[]"));
    let jobs = format!(
        "  - job_name: app
    scrape_interval: 200ms
    scrape_timeout: 200ms
    file_sd_configs: [{{files: ['targets/*.yml']}}]
    http_sd_configs: [{{url: 'http://{}/targets', refresh_interval: 200ms, bearer_token: s3cr3t}}]
    relabel_configs: [{{source_labels: [__meta_filepath], target_label: file}}]
",
        service.address()
    );
    let gateway = Gateway::start(&block_config(
        &jobs,
        &format!("otlphttp: {{endpoint: \"{}\"}}", sink.endpoint()),
        "otlphttp",
    ));
    std::fs::create_dir(gateway.path("targets")).expect("a directory");
    let file = gateway.path("targets/a.yml");
    std::fs::write(&file, format!("- targets: ['{}']\n", first.address())).expect("a file");
    sink.wait_until("the file's target is scraped", |sink| {
        sink.points_of("x").iter().any(|point| point.number() == 1.0)
    });
    let labelled = &sink.points_of("x")[0];
    assert_eq!(labelled.attribute("file"), "targets/a.yml");
    let list = format!(
        "[{{\"targets\": [\"{}\"], \"labels\": {{\"from\": \"service\"}}}}]",
        second.address()
    );
    service.answer("/targets", Answer::json(&list));
    sink.wait_until("the service's target is scraped", |sink| {
        sink.points_of("x").iter().any(|point| point.number() == 2.0)
    });
    let (_, headers) = &service.requests()[0];
    assert_eq!(headers["authorization"], "Bearer s3cr3t");
    assert_eq!(headers["x-prometheus-refresh-interval-seconds"], "0.2");
    // A service that breaks changes nothing; one that says that there is nothing does.
    service.answer(
        "/targets",
        Answer {
            status: 500,
            ..Answer::default()
        },
    );
    let asked = second.asked();
    wait_until(SOON, "its target is still scraped", || second.asked() > asked + 3);
    assert!(gateway.own_metric("tidegate_scrape_discovery_failures_total", &["reason=\"http\""]) > 0.0);
    std::fs::remove_file(&file).expect("it was there");
    service.answer("/targets", Answer::json("[]"));
    for target in [&first, &second] {
        let instance = target.address();
        sink.wait_until("its end is told", |sink| {
            let points = sink.points_of("up");
            let of_it = points
                .iter()
                .filter(|point| point.attribute("service.instance.id") == instance);
            of_it.clone().count() > 0 && sink.metrics().iter().any(|request| ends(request, &instance))
        });
    }
    let asked = (first.asked(), second.asked());
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert_eq!((first.asked(), second.asked()), asked, "nobody asks any more");
    assert_eq!(
        gateway.own_metric("tidegate_scrape_targets", &["state=\"up\""]),
        0.0
    );
    let said = gateway.stop();
    assert!(!said.contains("s3cr3t"), "{said}");
}

/// Whether a request ends `up` of this instance.
fn ends(
    request: &opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest,
    instance: &str,
) -> bool {
    request
        .resource_metrics
        .iter()
        .filter(|resource| format!("{:?}", resource.resource).contains(instance))
        .flat_map(|resource| &resource.scope_metrics)
        .flat_map(|scope| &scope.metrics)
        .any(|metric| metric.name == "up" && format!("{metric:?}").contains("flags: 1"))
}
