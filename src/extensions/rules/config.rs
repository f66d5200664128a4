// SPDX-License-Identifier: Apache-2.0

//! Options of the `rules` extension.

use std::time::Duration;

use http::Uri;
use tidegate_promql::Labels;
use tidegate_rules::{RuleOptions, StaleInputs};

use crate::config::{Node, Ordered, Problems};
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;
use crate::prom::relabel::{Rule as RelabelRule, Validation};

/// The shortest interval of a group.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

crate::options! {
    /// Options of the `rules` extension.
    pub struct RulesConfig {
        /// Prometheus rule files: paths or globs, relative to the working directory. A reload reads them again.
        pub files: Vec<String> = required,
        /// Interval between two evaluations of a group that names none, at least 100ms.
        #[alias = "evaluation_interval"]
        pub interval: Duration = Duration::from_secs(60),
        /// Distance of queries into the past, for groups that name none.
        pub query_offset: Duration = Duration::ZERO,
        /// Labels that every alert gets on its way to the Alertmanagers, unless it has them.
        pub external_labels: Ordered<String> = Ordered::default(),
        /// URL under which people reach the `admin` extension. Alerts link to it, and templates can read it.
        pub external_url: String = String::new(),
        /// Relabelling of alerts before they leave, after `external_labels`. Alerts that a rule drops are counted. The API and
        /// the series show them all.
        pub alert_relabel_configs: Vec<RelabelRule> = Vec::new(),
        /// Alertmanagers. Each of them gets every alert. Empty: alerts only show in the API and as series.
        pub alertmanagers: Vec<AlertmanagerConfig> = Vec::new(),
        /// Interval at which a firing alert is sent again.
        pub resend_delay: Duration = Duration::from_secs(60),
        /// Most alerts that wait for one Alertmanager. The oldest are dropped and counted.
        pub max_queued_alerts: usize = 10_000,
        /// Id of the storage extension that keeps alerts, and so their `for`, across a restart. Unset: after a restart,
        /// `for` begins again. A reload keeps them in any case.
        pub storage: Option<String> = None,
        /// Most recorded series, those of `ALERTS` included. Samples of further series are dropped and counted.
        pub max_series: usize = 100_000,
        /// Most alerts of one rule. A rule with more fails.
        pub max_alerts: usize = 10_000,
        /// Longest time of one query.
        pub timeout: Duration = Duration::from_secs(10),
        /// Treatment of alerts whose query reads only sources that are dead or late.
        pub stale: StaleChoice = StaleChoice::Resolve,
    }
    check = RulesConfig::check
}

crate::options! {
    /// An Alertmanager.
    pub struct AlertmanagerConfig {
        /// Base URL, for example `http://alertmanager:9093`.
        pub endpoint: Url = required,
        /// Path before `/api/v2/alerts`.
        pub path_prefix: String = String::new(),
        /// TLS of an `https` URL.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Credentials of the gateway, from an extension before `rules` in `service::extensions`.
        pub auth: Option<AuthConfig> = None,
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Longest time of one request.
        pub timeout: Duration = Duration::from_secs(10),
        /// Relabelling of alerts for this Alertmanager, after that of the extension.
        pub alert_relabel_configs: Vec<RelabelRule> = Vec::new(),
    }
    check = AlertmanagerConfig::check
}

crate::choices! {
    /// The treatment of alerts whose sources are dead or late.
    pub enum StaleChoice {
        /// They resolve when their series have gone, as in Prometheus.
        Resolve = "resolve",
        /// They keep their state, and an alert with the label `state="unknown"` says so.
        Unknown = "unknown",
    }
}

impl RulesConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.files.is_empty() {
            cx.at(at.child("files")).error("must not be empty");
        }
        if self.interval < MIN_INTERVAL {
            cx.at(at.child("interval")).error("must be at least 100ms");
        }
        for (name, is_zero) in [
            ("resend_delay", self.resend_delay.is_zero()),
            ("timeout", self.timeout.is_zero()),
            ("max_queued_alerts", self.max_queued_alerts == 0),
            ("max_alerts", self.max_alerts == 0),
        ] {
            if is_zero {
                cx.at(at.child(name)).error("must be more than 0");
            }
        }
        for (name, _) in self.external_labels.iter() {
            let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_name || name == tidegate_promql::NAME {
                cx.at(at.child("external_labels").child(name))
                    .error(format!("{name:?} is not a label name"));
            }
        }
        let is_url = |uri: Uri| uri.scheme().is_some() && uri.host().is_some();
        if !self.external_url.is_empty() && !self.external_url.parse().is_ok_and(is_url) {
            cx.at(at.child("external_url"))
                .error("expected a URL that begins with http:// or https://");
        }
        check_relabelling(&self.alert_relabel_configs, at, cx);
        for item in at.child("files").as_list().unwrap_or_default() {
            if let Some(Err(error)) = item.as_str().map(glob::Pattern::new) {
                cx.at(item).error(format!("not a glob: {error}"));
            }
        }
    }

    /// The options of the groups.
    pub(super) fn rule_options(&self) -> RuleOptions {
        let labels = self.external_labels.iter();
        RuleOptions {
            external_labels: labels.map(|(name, value)| (name, value.as_str())).collect(),
            external_url: self.external_url.trim_end_matches('/').to_owned(),
            stale: match self.stale {
                StaleChoice::Resolve => StaleInputs::Resolve,
                StaleChoice::Unknown => StaleInputs::Unknown,
            },
            max_alerts: self.max_alerts,
            default_query_offset: super::millis(self.query_offset),
        }
    }

    /// The labels for alerts that leave.
    pub(super) fn labels_of_alerts(&self) -> Labels {
        let labels = self.external_labels.iter();
        labels.map(|(name, value)| (name, value.as_str())).collect()
    }
}

impl AlertmanagerConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        check_relabelling(&self.alert_relabel_configs, at, cx);
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be more than 0");
        }
        let path = format!("/{}", self.path_prefix.trim_matches('/'));
        if path.parse::<http::uri::PathAndQuery>().is_err() {
            cx.at(at.child("path_prefix"))
                .error("expected a path, for example /alertmanager");
        }
    }

    /// The URL that alerts are posted to.
    pub(super) fn url(&self) -> Uri {
        let prefix = self.path_prefix.trim_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        self.endpoint.join(&format!("{slash}{prefix}/api/v2/alerts"))
    }

    /// Its name in logs, metrics and the API.
    pub(super) fn shown(&self) -> String {
        match self.endpoint.unix_path() {
            Some(path) => format!("unix:{}", path.display()),
            None => crate::delivery::response::address(&self.url()),
        }
    }
}

/// Reports names of labels that the rules of relabelling must not have.
fn check_relabelling(rules: &[RelabelRule], at: &Node, cx: &mut Problems) {
    let nodes = at.child("alert_relabel_configs").as_list().unwrap_or_default();
    for (rule, node) in rules.iter().zip(nodes) {
        rule.check_names(Validation::Utf8, node, cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::{names_mistakes, options};

    #[test]
    fn wrong_options_are_named() {
        names_mistakes::<RulesConfig>(&[
            ("files: []", "must not be empty"),
            ("{files: [a], interval: 10ms}", "must be at least 100ms"),
            ("{files: [a], timeout: 0}", "must be more than 0"),
            ("{files: [a], external_labels: {a-b: c}}", "is not a label name"),
            ("{files: [a], external_url: gateway}", "begins with http://"),
            ("{files: [\"[\"]}", "not a glob"),
            ("{files: [a], alertmanagers: [{}]}", "endpoint"),
            (
                "{files: [a], alert_relabel_configs: [{action: replace}]}",
                "requires `target_label`",
            ),
            (
                "{files: [a], alertmanagers: [{endpoint: \"http://a\", alert_relabel_configs: [{action: labelmap, replacement: ''}]}]}",
                "is invalid `replacement`",
            ),
        ]);
        let config = options::<RulesConfig>("files: [/nowhere/*.yaml]").unwrap();
        assert_eq!(config.interval, Duration::from_secs(60));
    }

    #[test]
    fn alerts_are_posted_below_the_endpoint_and_the_prefix() {
        let table = [
            ("{endpoint: \"http://a:9093\"}", "http://a:9093/api/v2/alerts"),
            (
                "{endpoint: \"http://a/x/\", path_prefix: am}",
                "http://a/x/am/api/v2/alerts",
            ),
            (
                "{endpoint: \"https://u:p@a\", path_prefix: /am/}",
                "https://a/am/api/v2/alerts",
            ),
        ];
        for (text, expected) in table {
            let config = options::<AlertmanagerConfig>(text).unwrap();
            assert_eq!(config.shown(), expected);
        }
    }
}
