// SPDX-License-Identifier: Apache-2.0

//! Targets that come and go.

use super::into_sink;
use crate::kit::{Answer, OtlpSink, SOON, Target, wait_until};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

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
    scrape_interval: 500ms
    scrape_timeout: 500ms
    file_sd_configs: [{{files: ['targets/*.yml']}}]
    http_sd_configs: [{{url: 'http://{}/targets', refresh_interval: 200ms, bearer_token: s3cr3t}}]
    relabel_configs: [{{source_labels: [__meta_filepath], target_label: file}}]
",
        service.address()
    );
    let gateway = into_sink(&jobs, &sink);
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
    wait_until(SOON, "the failure is counted", || {
        gateway.own_metric("tidegate_scrape_discovery_failures_total", &["reason=\"http\""]) > 0.0
    });
    std::fs::remove_file(&file).expect("it was there");
    service.answer("/targets", Answer::json("[]"));
    for target in [&first, &second] {
        let instance = target.address();
        sink.wait_until("its end arrives", |sink| {
            let points = sink.points_of("up");
            let of_it = points
                .iter()
                .filter(|point| point.attribute("service.instance.id") == instance);
            of_it.clone().count() > 0 && sink.metrics().iter().any(|request| ends(request, &instance))
        });
    }
    let asked = (first.asked(), second.asked());
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!((first.asked(), second.asked()), asked, "no scraper asks any more");
    assert_eq!(
        gateway.own_metric("tidegate_scrape_targets", &["state=\"up\""]),
        0.0
    );
    let said = gateway.stop();
    assert!(!said.contains("s3cr3t"), "{said}");
}

/// Whether a request ends `up` of this instance.
fn ends(request: &ExportMetricsServiceRequest, instance: &str) -> bool {
    request
        .resource_metrics
        .iter()
        .filter(|resource| format!("{:?}", resource.resource).contains(instance))
        .flat_map(|resource| &resource.scope_metrics)
        .flat_map(|scope| &scope.metrics)
        .any(|metric| metric.name == "up" && format!("{metric:?}").contains("flags: 1"))
}
