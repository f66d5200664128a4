// SPDX-License-Identifier: Apache-2.0

//! Options of Prometheus and the Collector's receiver that are refused, each with the reason.

use tidegate_config::WithoutEffect;

/// Beside `config`.
pub(super) const RECEIVER: &[(&str, &str)] = &[
    (
        "use_start_time_metric",
        "start times are those that the targets expose as created timestamps",
    ),
    (
        "start_time_metric_regex",
        "start times are those that the targets expose as created timestamps",
    ),
    (
        "trim_metric_suffixes",
        "names stay as the targets have them; exporters add no suffix twice",
    ),
    (
        "api_server",
        "the gateway's own metrics, such as `tidegate_scrape_targets`, show the scrapes",
    ),
    (
        "enable_prometheus_ui_server",
        "tidegate has no page for it; see `tidegate_scrape_targets`",
    ),
];

/// Beside `scrape_configs`.
pub(super) const PROMETHEUS: &[(&str, &str)] = &[
    (
        "alerting",
        "name the Alertmanagers in `alertmanagers` of the `rules` extension",
    ),
    (
        "remote_read",
        "the `admin` extension answers queries over the gateway's data",
    ),
    (
        "remote_write",
        "name a `prometheusremotewrite` exporter in the pipeline",
    ),
    ("rule_files", "name the files in `files` of the `rules` extension"),
    ("runtime", "tidegate has no Go runtime"),
    (
        "scrape_config_files",
        "list the jobs in `scrape_configs`, or give tidegate several `--config` files",
    ),
    (
        "storage",
        "nothing is stored; see `history` of the `admin` extension",
    ),
    ("tracing", "see `service::telemetry::traces`"),
    ("otlp", "name an `otlp` receiver in the pipeline"),
];

/// In `global`.
pub(super) const GLOBAL: &[(&str, &str)] = &[
    ("query_log_file", "nothing is queried here"),
    (
        "scrape_failure_log_file",
        "failures are logged and counted by `tidegate_scrape_failures_total`",
    ),
];

const NO_SUCH_DISCOVERY: &str =
    "use `file_sd_configs` or `http_sd_configs` with something that writes or serves the targets";

/// In a job.
pub(super) const JOB: &[(&str, &str)] = &[
    (
        "scrape_failure_log_file",
        "failures are logged and counted by `tidegate_scrape_failures_total`",
    ),
    ("aws_sd_configs", NO_SUCH_DISCOVERY),
    ("azure_sd_configs", NO_SUCH_DISCOVERY),
    (
        "consul_sd_configs",
        "ask Consul's DNS by `dns_sd_configs`, or use `http_sd_configs`",
    ),
    ("digitalocean_sd_configs", NO_SUCH_DISCOVERY),
    ("docker_sd_configs", NO_SUCH_DISCOVERY),
    ("dockerswarm_sd_configs", NO_SUCH_DISCOVERY),
    ("ec2_sd_configs", NO_SUCH_DISCOVERY),
    ("eureka_sd_configs", NO_SUCH_DISCOVERY),
    ("gce_sd_configs", NO_SUCH_DISCOVERY),
    ("hetzner_sd_configs", NO_SUCH_DISCOVERY),
    ("ionos_sd_configs", NO_SUCH_DISCOVERY),
    ("kuma_sd_configs", NO_SUCH_DISCOVERY),
    ("lightsail_sd_configs", NO_SUCH_DISCOVERY),
    ("linode_sd_configs", NO_SUCH_DISCOVERY),
    ("marathon_sd_configs", NO_SUCH_DISCOVERY),
    ("nerve_sd_configs", NO_SUCH_DISCOVERY),
    ("nomad_sd_configs", NO_SUCH_DISCOVERY),
    ("openstack_sd_configs", NO_SUCH_DISCOVERY),
    ("ovhcloud_sd_configs", NO_SUCH_DISCOVERY),
    ("puppetdb_sd_configs", NO_SUCH_DISCOVERY),
    ("scaleway_sd_configs", NO_SUCH_DISCOVERY),
    ("serverset_sd_configs", NO_SUCH_DISCOVERY),
    ("stackit_sd_configs", NO_SUCH_DISCOVERY),
    ("triton_sd_configs", NO_SUCH_DISCOVERY),
    ("uyuni_sd_configs", NO_SUCH_DISCOVERY),
    ("vultr_sd_configs", NO_SUCH_DISCOVERY),
    ("oauth2", super::http::REFUSED[0].1),
    ("proxy_url", super::http::REFUSED[1].1),
    ("no_proxy", super::http::REFUSED[2].1),
    ("proxy_from_environment", super::http::REFUSED[3].1),
    ("proxy_connect_header", super::http::REFUSED[4].1),
];

const NO_RULES: &str = "the receiver evaluates no rules";
const NO_LIST: &str = "`/api/v1/targets` lists up to 1000 dropped targets of each job";
const ONE_HISTOGRAM: &str = "classic histograms and those with custom buckets become the same here";

/// Options in `global` that are accepted without effect.
pub(super) const GLOBAL_WITHOUT_EFFECT: &WithoutEffect = &[
    ("evaluation_interval", NO_RULES),
    ("rule_query_offset", NO_RULES),
    ("keep_dropped_targets", NO_LIST),
    ("convert_classic_histograms_to_nhcb", ONE_HISTOGRAM),
];

/// Options in a job that are accepted without effect.
pub(super) const JOB_WITHOUT_EFFECT: &WithoutEffect = &[
    ("keep_dropped_targets", NO_LIST),
    ("convert_classic_histograms_to_nhcb", ONE_HISTOGRAM),
];
