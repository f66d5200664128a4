// SPDX-License-Identifier: Apache-2.0

//! The answers that targets may give: formats, codings, redirects, and every way to fail.

use super::{config, into_sink, job};
use crate::kit::{Answer, Gateway, OtlpSink, SOON, Target, Trouble, wait_until};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

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
    let gateway = into_sink(&jobs, &sink);
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
    let gateway = into_sink(&jobs, &sink);
    for (name, _, _) in &answers {
        let of = |sink: &OtlpSink, metric: &str| {
            let points = sink.points_of(metric).into_iter();
            points
                .filter(|point| point.attribute("service.name") == *name)
                .map(|point| point.number())
                .collect::<Vec<_>>()
        };
        sink.wait_until(&format!("{name} is up"), |sink| of(sink, "up").contains(&1.0));
        if *name != "nothing" {
            sink.wait_until(&format!("{name} is taken"), |sink| of(sink, "x").contains(&1.0));
        }
    }
    gateway.stop();
}

#[test]
fn refused_scrapes_are_counted_and_nothing_is_overtaken() {
    let (target, sink) = (Target::start(), OtlpSink::start());
    target.answer("/metrics", Answer::text("x 1\n"));
    sink.trouble(std::iter::repeat_n(Trouble::UNAVAILABLE, 60));
    let exporter = format!(
        "otlphttp:
    endpoint: \"{}\"
    sending_queue: {{sizer: items, queue_size: 6, num_consumers: 1}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms}}",
        sink.endpoint()
    );
    let jobs = job("app", &format!("'{}'", target.address()), "");
    let gateway = Gateway::start(&config(&jobs, &exporter, "otlphttp"));
    let dropped = || gateway.own_metric("tidegate_scrape_dropped_points_total", &["reason=\"refused\""]);
    wait_until(SOON, "points are dropped, and said to be", || dropped() >= 6.0);
    wait_until(SOON, "scrapes arrive again", || sink.points_of("up").len() >= 5);
    let times: Vec<_> = sink.points_of("up").iter().map(|point| point.time_ns).collect();
    assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
    let accepted = || gateway.own_metric("otelcol_receiver_accepted_metric_points", &[]);
    let failed = || gateway.own_metric("otelcol_receiver_failed_metric_points", &[]);
    // A scrape may end between two looks.
    wait_until(SOON, "every point was taken or given up", || {
        let scrapes = gateway.own_metric("tidegate_scrapes_total", &[]);
        failed() == dropped() && accepted() + failed() == 6.0 * scrapes
    });
    let said = gateway.stop();
    assert!(said.contains("scraped points dropped"), "{said}");
}
