// SPDX-License-Identifier: Apache-2.0

//! The Prometheus exporter scraped by real servers: over TLS, with passwords, names of any characters, every form of
//! compression. Other tests cover the values of samples; these cover the requests.

use super::kit::{Gateway, Prometheus, Release, SOON, free_port, http, wait_until};
use std::fs;
use std::io::Read;
use tempfile::TempDir;

/// Takes OTLP/HTTP and answers scrapes with these options.
struct Rig {
    gateway: Gateway,
    scrape: u16,
    receive: u16,
}

impl Rig {
    fn start(options: &str) -> Self {
        let (receive, scrape) = (free_port(), free_port());
        let gateway = Gateway::start(&format!(
            "extensions:
  basicauth: {{htpasswd: {{inline: \"ada:s3cr3t-word\"}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receive}\"}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{scrape}\", {options}}}
service:
  extensions: [health_check, basicauth]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
"
        ));
        Self {
            gateway,
            scrape,
            receive,
        }
    }

    /// Pushes a counter `http.hits` of 7 with an attribute `http.method`.
    fn push(&self) {
        let body =
            br#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"http.hits","unit":"1","sum":{
            "isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{"asInt":"7","timeUnixNano":"TIME",
            "attributes":[{"key":"http.method","value":{"stringValue":"GET"}}]}]}}]}]}]}"#;
        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
        let body = String::from_utf8_lossy(body).replace("TIME", &now.to_string());
        let answer = http::post(self.receive, "/v1/metrics", "application/json", body.as_bytes());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    fn get(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> http::Response {
        http::request(method, self.scrape, path, headers, b"").expect("an answer")
    }
}

#[test]
fn servers_scrape_over_tls_and_only_with_the_password() {
    let files = TempDir::new().expect("a temporary directory");
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    fs::write(&certificate, pair.cert.pem()).expect("written");
    fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
    let rig = Rig::start(&format!(
        "tls: {{cert_file: {certificate:?}, key_file: {key:?}}}, auth: {{authenticator: basicauth}}"
    ));
    rig.push();
    let scrape = rig.scrape;
    for release in Release::ALL {
        let target = format!(
            "scheme: https, scrape_interval: 1s, scrape_timeout: 1s, tls_config: {{ca_file: {certificate:?}}}, \
             static_configs: [{{targets: [\"127.0.0.1:{scrape}\"]}}]"
        );
        let server = Prometheus::start_release(
            release,
            &format!(
                "scrape_configs:
  - {{job_name: known, basic_auth: {{username: ada, password: s3cr3t-word}}, {target}}}
  - {{job_name: unknown, basic_auth: {{username: ada, password: wr0ng}}, {target}}}
"
            ),
        );
        server.wait_for_value("http_hits_total{http_method=\"GET\"}", 7.0);
        server.wait_for_value("up{job=\"unknown\"}", 0.0);
        // On a busy machine, a scrape may fail for its time.
        wait_until(SOON, "the server was told that it is unknown", || {
            server.targets().to_string().contains("401")
        });
    }
    let said = rig.gateway.stop();
    assert!(!said.contains("s3cr3t") && !said.contains("wr0ng"), "{said}");
}

/// In protobuf the newest server does not say that it takes UTF-8 names; it asks for protobuf first where it takes
/// native histograms.
const TEXT: &str = "scrape_protocols: [PrometheusText1.0.0, OpenMetricsText1.0.0]";

#[test]
fn utf8_names_reach_a_server_that_knows_them_and_others_get_escaped_ones() {
    let rig = Rig::start("translation_strategy: NoTranslation");
    rig.push();
    for (release, protocols, series) in [
        (Release::Stable, "", "http_hits{http_method=\"GET\"}"),
        (Release::Newest, TEXT, "{\"http.hits\",\"http.method\"=\"GET\"}"),
    ] {
        let server = Prometheus::start_release(
            release,
            &format!(
                "scrape_configs:
  - {{job_name: a, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: [\"127.0.0.1:{}\"]}}],
      {protocols}}}
",
                rig.scrape
            ),
        );
        server.wait_for_value(series, 7.0);
    }
    rig.gateway.stop();
}

#[test]
fn the_newest_server_gets_its_names_escaped_as_it_is_configured() {
    let rig = Rig::start("translation_strategy: NoUTF8EscapingWithSuffixes");
    rig.push();
    for (scheme, series) in [
        ("underscores", "http_hits_total"),
        ("dots", "http_dot_hits__total"),
        ("values", "U__http_2e_hits__total"),
    ] {
        let server = Prometheus::start_release(
            Release::Newest,
            &format!(
                "scrape_configs:
  - {{job_name: a, metric_name_validation_scheme: legacy, metric_name_escaping_scheme: {scheme}, {TEXT},
      scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: [\"127.0.0.1:{}\"]}}]}}
",
                rig.scrape
            ),
        );
        server.wait_for_value(series, 7.0);
    }
    rig.gateway.stop();
}

#[test]
fn compressed_answers_are_the_page_and_head_is_its_headers() {
    let rig = Rig::start("");
    rig.push();
    let plain = rig.get("GET", "/metrics", &[]);
    assert!(
        plain.text().contains("http_hits_total{http_method=\"GET\"} 7\n"),
        "{}",
        plain.text()
    );
    assert_eq!(
        plain.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    for (accepted, coding) in [("gzip", "gzip"), ("zstd;q=1, gzip;q=0.5", "zstd")] {
        let packed = rig.get("GET", "/metrics", &[("accept-encoding", accepted)]);
        assert_eq!(packed.header("content-encoding"), Some(coding));
        let mut page = Vec::new();
        match coding {
            "gzip" => flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut page),
            _ => zstd::Decoder::new(&*packed.body).and_then(|mut all| all.read_to_end(&mut page)),
        }
        .expect("what the header says");
        assert_eq!(page, plain.body);
    }
    let post = rig.get("POST", "/metrics", &[]);
    assert_eq!(
        (post.status, post.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    rig.gateway.stop();
}

/// A scraper that stops reading does not affect others.
#[test]
fn a_scraper_that_does_not_read_delays_no_other() {
    use std::io::Write;
    let rig = Rig::start("max_series: 100000");
    let points: Vec<String> = (0..50_000)
        .map(|n| {
            format!(r#"{{"asInt":"{n}","attributes":[{{"key":"n","value":{{"stringValue":"{n:0200}"}}}}]}}"#)
        })
        .collect();
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"wide","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
        points.join(",")
    );
    let answer = http::post(rig.receive, "/v1/metrics", "application/json", body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
    let stalled: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", rig.scrape)).expect("it listens");
            let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(request).expect("sent");
            stream
        })
        .collect();
    rig.push();
    wait_until(SOON, "the others get the new value", || {
        let page = rig.get("GET", "/metrics", &[("accept-encoding", "gzip")]);
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&*page.body);
        decoder.read_to_string(&mut text).expect("gzip");
        text.contains("http_hits_total")
    });
    drop(stalled);
    rig.gateway.stop();
}
