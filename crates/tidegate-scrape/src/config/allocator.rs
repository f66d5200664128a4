// SPDX-License-Identifier: Apache-2.0

//! Options of `target_allocator`, in the spelling of the Collector's receiver.

use std::time::Duration;

use super::discovery::HttpSdConfig;
use super::http::{self, HttpOptions, PromTlsVersion, TlsConfig, http_options};
use tidegate_config::{Node, Ordered, Problems};
use tidegate_pipeline::net::TlsClientConfig;
use tidegate_pipeline::net::tls::TlsVersion;
use tidegate_prometheus::duration::PromDuration;

http_options! {
    /// Options of the requests for targets.
    pub struct AllocatorSdConfig {
        /// Interval of requests for the targets of a job.
        pub refresh_interval: PromDuration = PromDuration::seconds(30),
    }
    refused = http::REFUSED;
    check = AllocatorSdConfig::check
}

http_options! {
    /// Options of the HTTP clients of jobs, instead of those of the allocator's answer.
    pub struct AllocatorScrapeConfig {
    }
    refused = http::REFUSED;
    check = AllocatorScrapeConfig::check
}

tidegate_config::options! {
    /// Jobs and targets from the target allocator of the OpenTelemetry operator.
    pub struct TargetAllocatorConfig {
        /// URL of the allocator.
        pub endpoint: String = required,
        /// Interval of requests for the jobs.
        pub interval: Duration = Duration::from_secs(30),
        /// Name of this gateway at the allocator. Default: the environment variable `POD_NAME`.
        pub collector_id: String = String::new(),
        /// Longest duration of a request for the jobs.
        pub timeout: Duration = Duration::from_secs(30),
        /// TLS of the requests for jobs and targets.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Options of the requests for targets.
        pub http_sd_config: AllocatorSdConfig = AllocatorSdConfig::default(),
        /// Options of scrapes, instead of those of the answer.
        pub http_scrape_config: Option<AllocatorScrapeConfig> = None,
    }
    check = TargetAllocatorConfig::check
}

impl AllocatorSdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_http(at, cx);
        if self.refresh_interval.is_zero() {
            cx.at(at.child("refresh_interval"))
                .error("must be greater than zero");
        }
    }
}

impl AllocatorScrapeConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_http(at, cx);
    }
}

impl TargetAllocatorConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let url = self.endpoint.parse::<::http::Uri>().ok();
        let is_usable = url.is_some_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.authority().is_some_and(|host| !host.as_str().contains('@'))
                && url.query().is_none()
        });
        if !is_usable {
            cx.at(at.child("endpoint"))
                .error("expected a URL that begins with http:// or https://, without credentials");
        }
        for (key, duration) in [("interval", self.interval), ("timeout", self.timeout)] {
            if duration.is_zero() {
                cx.at(at.child(key)).error("must be greater than zero");
            }
        }
    }

    /// The URL of a path of the allocator.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint.trim_end_matches('/'))
    }

    /// The discovery of the targets of a job.
    pub fn discovery(&self, job: &str, collector: &str) -> HttpSdConfig {
        let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let path = format!(
            "/jobs/{}/targets?collector_id={}",
            escaped(job),
            escaped(collector)
        );
        let options = &self.http_sd_config;
        HttpSdConfig {
            url: self.url(&path),
            refresh_interval: options.refresh_interval,
            basic_auth: options.basic_auth.clone(),
            authorization: options.authorization.clone(),
            bearer_token: options.bearer_token.clone(),
            bearer_token_file: options.bearer_token_file.clone(),
            tls_config: self.tls_of_requests(),
            follow_redirects: false,
            enable_http2: options.enable_http2,
            http_headers: options.http_headers.clone(),
        }
    }

    /// The client of the requests for jobs.
    pub fn http(&self) -> HttpOptions {
        HttpOptions {
            tls: self.tls_of_requests(),
            follow_redirects: true,
            enable_http2: self.http_sd_config.enable_http2,
            http_headers: Ordered::default(),
            ..self.http_sd_config.http()
        }
    }

    /// `tls`, or that of `http_sd_config` without it.
    fn tls_of_requests(&self) -> TlsConfig {
        if self.tls == TlsClientConfig::default() {
            return self.http_sd_config.tls_config.clone();
        }
        let version = |version| match version {
            TlsVersion::V12 => PromTlsVersion::V12,
            TlsVersion::V13 => PromTlsVersion::V13,
        };
        TlsConfig {
            ca: self.tls.ca_pem.clone(),
            ca_file: self.tls.ca_file.clone(),
            cert: self.tls.cert_pem.clone(),
            cert_file: self.tls.cert_file.clone(),
            key: self.tls.key_pem.clone(),
            key_file: self.tls.key_file.clone(),
            server_name: self.tls.server_name_override.clone(),
            insecure_skip_verify: self.tls.insecure_skip_verify,
            min_version: version(self.tls.min_version),
            max_version: version(self.tls.max_version),
        }
    }
}
