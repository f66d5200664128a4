// SPDX-License-Identifier: Apache-2.0

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tidegate_engine::{Point, Value};
use tokio::net::TcpListener;

use super::*;
use tidegate_pipeline::batch::Payload;
use tidegate_pipeline::component::testing::{Sink, eventually, settings};

/// The answer of a target, as a function of the number of earlier requests.
type Answer = fn(usize, &Request<Incoming>) -> Response<Full<Bytes>>;

struct Exporter {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Exporter {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let count = count.clone();
                let service = hyper::service::service_fn(move |request| {
                    let answer = answer(count.fetch_add(1, SeqCst), &request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self { port, asked }
    }
}

fn text(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let response = Response::builder().header("content-type", "text/plain; version=0.0.4");
    response.body(Full::new(body.into())).unwrap()
}

fn receiver(sink: &Arc<Sink>, yaml: &str) -> Prometheus {
    let config = settings::<PrometheusReceiverConfig>(yaml).get::<PrometheusReceiverConfig>();
    Prometheus::new(&config, &sink.receiver_context("prometheus")).unwrap()
}

/// A job that scrapes a port each 1.5 s, unless `more` says otherwise.
fn job(port: u16, more: &str) -> String {
    format!(
        "config: {{global: {{scrape_interval: 1500ms}}, scrape_configs: [{{job_name: j, static_configs: \
         [{{targets: ['127.0.0.1:{port}'], labels: {{env: dev}}}}], {more}}}]}}"
    )
}

fn points(sink: &Sink) -> Vec<Vec<Point>> {
    let of = |batch: tidegate_pipeline::batch::Batch| match batch.payload {
        Payload::Points(points) => points.points.to_vec(),
        _ => panic!("scrapes are points"),
    };
    sink.batches().into_iter().map(of).collect()
}

fn value<'a>(points: &'a [Point], name: &str) -> Option<&'a Value> {
    let found = points.iter().find(|point| &*point.series.metric.name == name);
    found.map(|point| &point.value)
}

async fn stop(receiver: Prometheus) {
    receiver.stop(Instant::now() + Duration::from_secs(60)).await;
    assert!(receiver.tasks.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_becomes_one_batch_with_its_report_series() {
    let exporter = Exporter::start(|_, request| {
        let headers = request.headers();
        assert!(
            headers["accept"]
                .to_str()
                .unwrap()
                .starts_with("application/openmetrics-text")
        );
        assert_eq!(headers["x-prometheus-scrape-timeout-seconds"], "1.5");
        assert_eq!(headers["accept-encoding"], "identity");
        text("# TYPE c counter\nc_total{a=\"b\"} 3\ng 1.5\n")
    })
    .await;
    let sink = Sink::new();
    let receiver = receiver(
        &sink,
        &job(
            exporter.port,
            "extra_scrape_metrics: true, sample_limit: 7, enable_compression: false",
        ),
    );
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("two scrapes", || sink.batches().len() >= 2));
    stop(receiver).await;
    let batches = points(&sink);
    let first = &batches[0];
    let expected = [
        ("c_total", 3.0),
        ("g", 1.5),
        ("up", 1.0),
        ("scrape_samples_scraped", 2.0),
        ("scrape_samples_post_metric_relabeling", 2.0),
        ("scrape_series_added", 2.0),
        ("scrape_timeout_seconds", 1.5),
        ("scrape_sample_limit", 7.0),
        ("scrape_body_size_bytes", 40.0),
    ];
    for (name, expected) in expected {
        assert_eq!(value(first, name), Some(&Value::Double(expected)), "{name}");
    }
    assert_eq!(first.len(), expected.len() + 1, "and the duration");
    assert_eq!(
        value(&batches[1], "scrape_series_added"),
        Some(&Value::Double(0.0))
    );
    for point in first {
        let resource = &point.series.resource.attributes;
        let text = |key: &str| {
            resource
                .get(key)
                .and_then(|value| value.as_str().map(str::to_owned))
        };
        assert_eq!(text("service.name").as_deref(), Some("j"));
        assert_eq!(
            text("service.instance.id"),
            Some(format!("127.0.0.1:{}", exporter.port))
        );
        assert_eq!(text("server.port"), Some(exporter.port.to_string()));
        assert_eq!(text("url.scheme").as_deref(), Some("http"));
        assert_eq!(
            text("server.address"),
            None,
            "a loopback address identifies no host"
        );
        let attributes = &point.series.attributes;
        assert_eq!(
            attributes
                .get("env")
                .and_then(|value| value.as_str().map(str::to_owned))
                .as_deref(),
            Some("dev")
        );
        assert!(attributes.get("job").is_none() && attributes.get("instance").is_none());
    }
    assert!(batches[1][0].time > first[0].time);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_down_and_ends_what_was_there() {
    let table: [(Answer, &str); 7] = [
        (
            |_, _| Response::builder().status(503).body(Full::default()).unwrap(),
            "",
        ),
        (|_, _| Response::new(Full::new("g 1\n".into())), ""),
        (|_, _| text("g{ 1\n"), ""),
        (|_, _| text("g 1\nh 1\ni 1\n"), "sample_limit: 2"),
        (|_, _| text("g{a=\"1\",b=\"1\"} 1\n"), "label_limit: 5"),
        (|_, _| text("x".repeat(2048)), "body_size_limit: 1KB"),
        (
            |_, _| {
                Response::builder()
                    .status(302)
                    .header("location", "/metrics")
                    .body(Full::default())
                    .unwrap()
            },
            "",
        ),
    ];
    for (bad, more) in table {
        static BAD: Mutex<Option<Answer>> = Mutex::new(None);
        *BAD.lock() = Some(bad);
        let exporter = Exporter::start(|count, request| match count {
            0 => text("g 1\n"),
            _ => BAD.lock().expect("set")(count, request),
        })
        .await;
        let sink = Sink::new();
        let receiver = receiver(&sink, &job(exporter.port, more));
        receiver.start().await.unwrap();
        tokio::task::block_in_place(|| eventually("two scrapes", || sink.batches().len() >= 2));
        stop(receiver).await;
        let batches = points(&sink);
        assert_eq!(value(&batches[0], "up"), Some(&Value::Double(1.0)), "{more}");
        assert_eq!(value(&batches[1], "up"), Some(&Value::Double(0.0)), "{more}");
        assert_eq!(value(&batches[1], "g"), Some(&Value::NoRecordedValue), "{more}");
        let at = |name: &str| {
            let mut points = batches[1].iter();
            points.position(|point| &*point.series.metric.name == name)
        };
        assert!(at("up") < at("g"), "readers find the failure, {more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_comes_again_and_is_not_overtaken() {
    let exporter = Exporter::start(|count, _| text(format!("g {count}\n"))).await;
    let sink = Sink::new();
    sink.refuse(3);
    let receiver = receiver(&sink, &job(exporter.port, "scrape_interval: 2s"));
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("two scrapes", || sink.batches().len() >= 2));
    stop(receiver).await;
    let values: Vec<_> = points(&sink)
        .iter()
        .filter_map(|points| value(points, "g").cloned())
        .collect();
    assert_eq!(values[..2], [Value::Double(0.0), Value::Double(1.0)]);
    assert_eq!(sink.refusals_left(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn points_that_wait_to_be_taken_stay_on_the_account() {
    let exporter = Exporter::start(|_, _| {
        let lines = (0..500).map(|number| format!("g{number} 1\n"));
        text(lines.collect::<String>())
    })
    .await;
    let sink = Sink::new();
    sink.refuse(1_000_000);
    let config = settings::<PrometheusReceiverConfig>(&job(exporter.port, "scrape_interval: 4s"))
        .get::<PrometheusReceiverConfig>();
    let cx = sink.receiver_context("prometheus");
    let memory = cx.base.shared.memory.clone();
    let receiver = Prometheus::new(&config, &cx).unwrap();
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| {
        eventually("it is refused again and again", || {
            sink.refusals_left() <= 999_997
        });
        let waiting = memory.reserved_bytes();
        sink.refuse(0);
        eventually("it is taken", || !sink.batches().is_empty());
        // The receiver keeps its knowledge of the series. Of each point at least its value and its times go.
        eventually("the points are held no more", || {
            memory.reserved_bytes() + 500 * 24 < waiting
        });
    });
    stop(receiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_leaves_ends_later_and_one_that_returns_continues() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.json");
    let write = |text: String| {
        let temporary = directory.path().join("tmp");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, &file).unwrap();
    };
    let exporter = Exporter::start(|_, _| text("g 1\n")).await;
    let there = format!("[{{\"targets\": [\"127.0.0.1:{}\"]}}]", exporter.port);
    write(there.clone());
    let sink = Sink::new();
    let yaml = format!(
        "config: {{scrape_configs: [{{job_name: j, scrape_interval: 1s, scrape_timeout: 1s, file_sd_configs: [{{files: ['{}']}}]}}]}}",
        file.display()
    );
    let receiver = receiver(&sink, &yaml);
    receiver.start().await.unwrap();
    let ended = || {
        points(&sink)
            .iter()
            .any(|points| value(points, "up") == Some(&Value::NoRecordedValue))
    };
    tokio::task::block_in_place(|| {
        eventually("a scrape", || !sink.batches().is_empty());
        write("[]".to_owned());
        eventually("the end", ended);
    });
    let last = points(&sink).pop().unwrap();
    assert_eq!(value(&last, "g"), Some(&Value::NoRecordedValue));
    assert!(last.iter().all(|point| point.value == Value::NoRecordedValue));
    let before = exporter.asked.load(SeqCst);
    write(there);
    tokio::task::block_in_place(|| {
        eventually("it is scraped again", || exporter.asked.load(SeqCst) > before + 1);
    });
    stop(receiver).await;
    // When the gateway stops nothing is ended: it may be back at once.
    let last = points(&sink).pop().unwrap();
    assert_eq!(value(&last, "g"), Some(&Value::Double(1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_targets_fail_all_of_them() {
    let exporter = Exporter::start(|_, _| text("g 1\n")).await;
    let sink = Sink::new();
    let more = format!(
        "static_configs: [{{targets: ['127.0.0.1:{0}', 'localhost:{0}']}}], target_limit: 1",
        exporter.port
    );
    let yaml =
        format!("config: {{global: {{scrape_interval: 100ms}}, scrape_configs: [{{job_name: j, {more}}}]}}");
    let receiver = receiver(&sink, &yaml);
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("scrapes", || sink.batches().len() >= 2));
    stop(receiver).await;
    for points in points(&sink) {
        assert_eq!(value(&points, "up"), Some(&Value::Double(0.0)));
    }
    assert_eq!(exporter.asked.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn report_series_of_a_scrape_have_the_resource_of_the_target() {
    let exporter = Exporter::start(|count, _| match count {
        0 => text("g 1\n"),
        _ => text("# TYPE target_info gauge\ntarget_info{version=\"2\"} 1\ng 1\n"),
    })
    .await;
    let sink = Sink::new();
    let receiver = receiver(&sink, &job(exporter.port, ""));
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("three scrapes", || sink.batches().len() >= 3));
    stop(receiver).await;
    let batches = points(&sink);
    let up = |points: &[Point]| {
        let of = points.iter().filter(|point| &*point.series.metric.name == "up");
        of.map(|point| {
            (
                point.value.clone(),
                point.series.resource.attributes.get("version").is_some(),
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(up(&batches[0]), [(Value::Double(1.0), false)]);
    assert_eq!(
        up(&batches[1]),
        [(Value::NoRecordedValue, false), (Value::Double(1.0), true)]
    );
    assert_eq!(up(&batches[2]), [(Value::Double(1.0), true)]);
    let resources = |points: &[Point]| {
        let first = points[0].series.resource.clone();
        points.iter().all(|point| point.series.resource == first)
    };
    assert!(resources(&batches[0]) && resources(&batches[2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_for_which_there_is_no_room_fails_and_gives_its_room_back() {
    let exporter = Exporter::start(|count, _| match count {
        0 => text("x 1\n".repeat(1024)),
        _ => text("x 1\n"),
    })
    .await;
    let sink = Sink::new();
    let yaml = format!("{}\nmax_buffered_size: 1KiB", job(exporter.port, ""));
    let receiver = receiver(&sink, &yaml);
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("two scrapes", || sink.batches().len() >= 2));
    stop(receiver).await;
    let up: Vec<_> = points(&sink)
        .iter()
        .filter_map(|points| value(points, "up").cloned())
        .collect();
    assert_eq!(up[..2], [Value::Double(0.0), Value::Double(1.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_answers_does_not_delay_the_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sink = Sink::new();
    let more = "scrape_interval: 1h, scrape_timeout: 1h, relabel_configs: [{target_label: __scrape_interval__, replacement: 100ms}, {target_label: __scrape_timeout__, replacement: 100ms}]";
    let slow = receiver(&sink, &job(port, more));
    slow.start().await.unwrap();
    let _held = listener.accept().await.unwrap();
    tokio::task::block_in_place(|| eventually("a failure", || !sink.batches().is_empty()));
    assert_eq!(value(&points(&sink)[0], "up"), Some(&Value::Double(0.0)));
    stop(slow).await;

    // Scrapes of ten minutes are spread over ten minutes. Of so many targets, one is scraped soon.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let targets: Vec<String> = (0..500)
        .map(|number| format!("{{targets: ['127.0.0.1:{port}'], labels: {{number: '{number}'}}}}"))
        .collect();
    let yaml = format!(
        "config: {{scrape_configs: [{{job_name: j, scrape_interval: 10m, scrape_timeout: 10m, static_configs: [{}]}}]}}",
        targets.join(", ")
    );
    let slow = receiver(&sink, &yaml);
    slow.start().await.unwrap();
    let _held = listener.accept().await.unwrap();
    stop(slow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_leave_the_list_with_their_receiver() {
    let exporter = Exporter::start(|_, _| text("g 1\n")).await;
    let sink = Sink::new();
    let running = receiver(&sink, &job(exporter.port, ""));
    let pools = running.base.shared.scrape_pools.clone();
    running.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("a scrape", || !sink.batches().is_empty()));
    assert_eq!(pools.list().len(), 1);
    stop(running).await;
    tokio::task::block_in_place(|| eventually("it leaves the list", || pools.list().is_empty()));
    // One that never starts, as in a reload that fails.
    let discarded = receiver(&sink, &job(exporter.port, ""));
    let pools = discarded.base.shared.scrape_pools.clone();
    assert_eq!(pools.list().len(), 1);
    drop(discarded);
    assert!(pools.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_scraped_while_there_is_no_memory() {
    let exporter = Exporter::start(|_, _| text("g 1\n")).await;
    let sink = Sink::new();
    let receiver = receiver(&sink, &job(exporter.port, ""));
    let memory = &receiver.base.shared.memory;
    memory.add_limit(tidegate_pipeline::component::Limit::of(10));
    memory.note(11);
    receiver.start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((exporter.asked.load(SeqCst), sink.items()), (0, 0));
    memory.remove_limit(tidegate_pipeline::component::Limit::of(10));
    tokio::task::block_in_place(|| eventually("a scrape", || !sink.batches().is_empty()));
    stop(receiver).await;
    assert_eq!(value(&points(&sink)[0], "up"), Some(&Value::Double(1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_targets_is_on_the_account_and_bounded() {
    let exporter = Exporter::start(|count, _| {
        let lines = if count == 1 { 300 } else { 10 };
        let line = |at: usize| format!("metric_{at}{{page=\"{count}\"}} 1\n");
        text((0..lines).map(line).collect::<String>())
    })
    .await;
    let sink = Sink::new();
    let receiver = receiver(&sink, &job(exporter.port, ""));
    let memory = receiver.base.shared.memory.clone();
    // A page of 300 lines may be read, but half of this is too little to keep their series.
    memory.add_limit(tidegate_pipeline::component::Limit::of(256 << 10));
    receiver.start().await.unwrap();
    tokio::task::block_in_place(|| eventually("three scrapes", || sink.batches().len() >= 3));
    let kept = memory.reserved_bytes();
    assert!((2_000..50_000).contains(&kept), "{kept}");
    stop(receiver).await;
    let up: Vec<_> = points(&sink)
        .iter()
        .filter_map(|points| value(points, "up").cloned())
        .collect();
    assert_eq!(up[..3], [1.0, 0.0, 1.0].map(Value::Double));
    let is_of_first = |point: &&Point| {
        let page = point.series.attributes.get("page");
        page.and_then(tidegate_engine::AttributeRef::as_str) == Some("0")
    };
    let second = &points(&sink)[1];
    assert!(
        second
            .iter()
            .filter(is_of_first)
            .all(|point| point.value == Value::NoRecordedValue)
    );
    let ended = second.iter().filter(is_of_first).count();
    assert_eq!(ended, 10, "what the target had before has ended");
    assert_eq!(memory.reserved_bytes(), 0);
}
