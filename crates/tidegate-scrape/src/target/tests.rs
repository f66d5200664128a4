// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::config::PrometheusReceiverConfig;
use tidegate_pipeline::component::testing::settings;

/// The only job of a configuration.
fn job(yaml: &str) -> Job {
    let yaml = format!("config: {{scrape_configs: [{{job_name: j, {yaml}}}]}}");
    let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
    Job::new(&config.config.scrape_configs[0], &config)
}

fn target(labels: &[(&str, &str)], yaml: &str) -> Result<Option<Target>, BadTarget> {
    Target::new(labels.iter().copied().collect(), &job(yaml))
}

fn shown(labels: &Labels) -> Vec<String> {
    labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[test]
fn labels_and_urls_are_those_of_prometheus() {
    let plain = target(&[("__address__", "a:1")], "").unwrap().unwrap();
    assert_eq!(shown(&plain.labels), ["instance=a:1", "job=j"]);
    assert_eq!(plain.url, "http://a:1/metrics");
    let elsewhere = target(&[("__address__", "a:1")], "metrics_path: /m");
    assert_eq!(elsewhere.unwrap().unwrap().url, "http://a:1/m");
    assert_eq!(
        (plain.interval, plain.timeout),
        (Duration::from_secs(60), Duration::from_secs(10))
    );

    let own = [
        ("__address__", "a"),
        ("__scheme__", "https"),
        ("__metrics_path__", "x y%2F/z"),
        ("__param_m", "1"),
        ("__scrape_interval__", "1m30s"),
        ("__scrape_timeout__", "2s"),
        ("__meta_x", "gone"),
        ("__tmp", "gone"),
        ("job", "other"),
        ("env", "dev"),
    ];
    let own = target(&own, "params: {k: [b c, d], m: [x]}").unwrap().unwrap();
    // Labels of the target are before the job's options, except for parameters.
    assert_eq!(own.url, "https://a/x%20y%252F/z?k=b+c&k=d&m=x");
    assert_eq!(shown(&own.labels), ["env=dev", "instance=a", "job=other"]);
    assert_eq!(
        (own.interval, own.timeout),
        (Duration::from_secs(90), Duration::from_secs(2))
    );
}

#[test]
fn rules_see_and_set_everything() {
    let yaml = "
        params: {module: [http]},
        relabel_configs: [
          {source_labels: [__address__], target_label: __param_target},
          {source_labels: [__param_target], target_label: instance},
          {target_label: __address__, replacement: 'blackbox:9115'},
          {source_labels: [__scrape_interval__], target_label: every},
          {source_labels: [__meta_role], regex: gone, action: drop}]";
    let kept = target(&[("__address__", "site.example")], yaml).unwrap().unwrap();
    assert_eq!(
        kept.url,
        "http://blackbox:9115/metrics?module=http&target=site.example"
    );
    assert_eq!(
        shown(&kept.labels),
        ["every=1m", "instance=site.example", "job=j"]
    );
    assert_eq!(
        target(&[("__address__", "a"), ("__meta_role", "gone")], yaml),
        Ok(None)
    );
}

#[test]
fn what_can_not_be_scraped_is_said() {
    let rename = "relabel_configs: [{target_label: __scheme__, replacement: ftp}]";
    let table = [
        (vec![], "", BadTarget::NoAddress),
        (
            vec![("__address__", "http://a")],
            "",
            BadTarget::Address("http://a".to_owned()),
        ),
        (vec![("__address__", "user:word@a")], "", BadTarget::Credentials),
        (
            vec![("__address__", "a b")],
            "",
            BadTarget::Url("http://a b/metrics".to_owned()),
        ),
        (
            vec![("__address__", "a")],
            rename,
            BadTarget::Scheme("ftp".to_owned()),
        ),
        (
            vec![("__address__", "a"), ("__scrape_interval__", "0")],
            "",
            BadTarget::Duration {
                label: INTERVAL,
                value: "0".to_owned(),
            },
        ),
        (
            vec![("__address__", "a"), ("__scrape_timeout__", "2m")],
            "",
            BadTarget::TimeoutAboveInterval {
                timeout: PromDuration::seconds(120),
                interval: PromDuration::seconds(60),
            },
        ),
    ];
    for (labels, yaml, expected) in table {
        assert_eq!(target(&labels, yaml), Err(expected));
    }
}

#[test]
fn scrapes_are_spread_and_stay_where_they_are() {
    let job = job("scrape_interval: 10s");
    let mut offsets = Vec::new();
    for index in 0..1000 {
        let labels = [("__address__", format!("host-{index}:9100"))]
            .into_iter()
            .collect();
        let target = Target::new(labels, &job).unwrap().unwrap();
        let now = 1_700_000_003_000_000_000;
        let offset = target.offset(now, 7);
        assert!(offset < target.interval);
        // The same moment of the interval, whenever it is asked for.
        let later = target.offset(now + 4_000_000_000, 7) + Duration::from_secs(4);
        assert_eq!(
            later.as_nanos() % 10_000_000_000,
            offset.as_nanos() % 10_000_000_000
        );
        offsets.push(offset.as_secs());
    }
    for second in 0..10 {
        let here = offsets.iter().filter(|offset| **offset == second).count();
        assert!((50..150).contains(&here), "{here} of 1000 in second {second}");
    }
}
