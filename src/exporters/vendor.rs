// SPDX-License-Identifier: Apache-2.0

//! Presets for vendors of observability services, one table row each. Options of the user override them.
//!
//! Sources: the vendors' public documentation of their OTLP endpoints, as of late 2026. A field that a vendor does
//! not document stays at the exporter's default.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use crate::config::{ByteSize, Node, OptionDoc, Problems, Secret, yaml_text};
use crate::delivery::{
    Delivery, NameRules, QueueConfig, RetryConfig, Shape, StorageMode, TemporalityChoice, Together,
};
use crate::net::headers::Headers;

/// The default limits for joining ready requests: small requests cost more than their content. The number of items
/// is that of the Collector's batches.
const TOGETHER: Together = Together {
    items: 8192,
    bytes: 1 << 20,
};

crate::choices! {
    /// Vendors with a preset.
    pub enum VendorName {
        /// Datadog.
        Datadog = "datadog",
        /// Dynatrace.
        Dynatrace = "dynatrace",
        /// New Relic.
        NewRelic = "newrelic",
        /// Grafana Cloud.
        GrafanaCloud = "grafana_cloud",
        /// Splunk Observability Cloud.
        Splunk = "splunk",
        /// Honeycomb.
        Honeycomb = "honeycomb",
        /// Chronosphere.
        Chronosphere = "chronosphere",
        /// Google Cloud.
        GoogleCloud = "google_cloud",
        /// Amazon CloudWatch.
        Aws = "aws",
        /// Azure Monitor.
        Azure = "azure",
    }
}

/// The form of the API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAs {
    /// `api_key` in this header, after this prefix.
    Header(&'static str, &'static str),
    /// `api_key` is `user:token`, for HTTP's basic authentication.
    Basic,
    /// By what an extension makes: its type.
    Extension(&'static str),
}

/// A preset. 0 = no limit beyond the exporter's own.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// The value of `vendor`.
    pub name: VendorName,
    /// Whether it takes OTLP over gRPC.
    pub grpc: bool,
    /// The path of metrics below the endpoint, if it differs from OTLP's.
    pub metrics_path: Option<&'static str>,
    /// The form of the API key.
    pub key: KeyAs,
    /// The temporality of points.
    pub temporality: TemporalityChoice,
    /// `gzip` or `zstd`.
    pub compression: &'static str,
    /// The largest request in bytes, before compression.
    pub max_request_bytes: u64,
    /// The largest request, in items.
    pub max_request_items: usize,
    /// The most buckets of a histogram; neighbours are merged beyond it.
    pub max_buckets: usize,
    /// The rules for names.
    pub names: NameRules,
}

/// The common values.
const PLAIN: Vendor = Vendor {
    name: VendorName::Honeycomb,
    grpc: false,
    metrics_path: None,
    key: KeyAs::Header("authorization", ""),
    temporality: TemporalityChoice::Preserve,
    compression: "gzip",
    max_request_bytes: 0,
    max_request_items: 0,
    max_buckets: 0,
    names: NameRules::Keep,
};

/// Every preset.
pub const VENDORS: &[Vendor] = &[
    Vendor {
        name: VendorName::Datadog,
        key: KeyAs::Header("dd-api-key", ""),
        temporality: TemporalityChoice::Delta,
        compression: "zstd",
        // The limit is 5.1 MB; their own sample cuts here.
        max_request_bytes: 4 << 20,
        ..PLAIN
    },
    Vendor {
        name: VendorName::Dynatrace,
        key: KeyAs::Header("authorization", "Api-Token "),
        temporality: TemporalityChoice::Delta,
        max_request_bytes: 4_000_000,
        max_request_items: 15_000,
        names: NameRules::LowerCaseKeys,
        ..PLAIN
    },
    Vendor {
        name: VendorName::NewRelic,
        grpc: true,
        key: KeyAs::Header("api-key", ""),
        temporality: TemporalityChoice::Delta,
        max_request_bytes: 1_000_000,
        ..PLAIN
    },
    Vendor {
        name: VendorName::GrafanaCloud,
        key: KeyAs::Basic,
        temporality: TemporalityChoice::Cumulative,
        ..PLAIN
    },
    Vendor {
        name: VendorName::Splunk,
        metrics_path: Some("/v2/datapoint/otlp"),
        key: KeyAs::Header("x-sf-token", ""),
        temporality: TemporalityChoice::Delta,
        // "Fewer than 31".
        max_buckets: 30,
        ..PLAIN
    },
    Vendor {
        name: VendorName::Honeycomb,
        grpc: true,
        key: KeyAs::Header("x-honeycomb-team", ""),
        ..PLAIN
    },
    Vendor {
        name: VendorName::Chronosphere,
        grpc: true,
        key: KeyAs::Header("api-token", ""),
        temporality: TemporalityChoice::Cumulative,
        compression: "zstd",
        // Counted compressed there; here before, to be safe.
        max_request_bytes: 16_000_000,
        // "Fewer than 10,000".
        max_request_items: 9_999,
        ..PLAIN
    },
    Vendor {
        name: VendorName::GoogleCloud,
        grpc: true,
        key: KeyAs::Extension("bearertokenauth"),
        temporality: TemporalityChoice::Cumulative,
        names: NameRules::GoogleCloud,
        ..PLAIN
    },
    Vendor {
        name: VendorName::Aws,
        key: KeyAs::Extension("sigv4auth"),
        ..PLAIN
    },
    Vendor {
        name: VendorName::Azure,
        key: KeyAs::Extension("bearertokenauth"),
        ..PLAIN
    },
];

impl VendorName {
    /// The preset of the vendor.
    pub fn preset(self) -> &'static Vendor {
        let found = VENDORS.iter().find(|vendor| vendor.name == self);
        found.unwrap_or(&PLAIN)
    }
}

/// The user's values of options that a preset may also set.
pub struct Chosen<'a> {
    /// The preset, if any.
    pub vendor: Option<VendorName>,
    /// The API key.
    pub api_key: Option<&'a Secret>,
    /// Options of the exporter.
    pub temporality: Option<TemporalityChoice>,
    /// See `Shape`.
    pub max_buckets: Option<usize>,
    /// See `Shape`.
    pub metric_names: Option<NameRules>,
}

impl Chosen<'_> {
    fn preset(&self) -> &'static Vendor {
        self.vendor.map_or(&PLAIN, VendorName::preset)
    }

    /// The temporality of requests: the user's, then the vendor's.
    pub fn temporality(&self) -> TemporalityChoice {
        self.temporality.unwrap_or(self.preset().temporality)
    }

    /// The changes to metrics.
    fn shape(&self) -> Shape {
        let preset = self.preset();
        Shape {
            max_buckets: self.max_buckets.unwrap_or(preset.max_buckets),
            names: self.metric_names.unwrap_or(preset.names),
        }
    }

    /// The queue with the vendor's limits.
    fn queue(&self, queue: &QueueConfig) -> QueueConfig {
        let preset = self.preset();
        let bytes = Some(preset.max_request_bytes).filter(|bytes| *bytes > 0);
        let items = Some(preset.max_request_items).filter(|items| *items > 0);
        QueueConfig {
            max_request_size: queue.max_request_size.or(bytes.map(ByteSize)),
            max_request_items: queue.max_request_items.or(items),
            ..queue.clone()
        }
    }

    /// Whether the default compression is zstd instead of gzip.
    pub fn prefers_zstd(&self) -> bool {
        self.preset().compression == "zstd"
    }

    /// The delivery options: the user's, then the vendor's. A `timeout` of zero means no limit.
    pub fn delivery(&self, queue: &QueueConfig, retry: &RetryConfig, timeout: Duration) -> Delivery {
        Delivery {
            queue: self.queue(queue),
            retry: retry.clone(),
            timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
            temporality: self.temporality(),
            refuses_falling: false,
            shape: self.shape(),
            in_order: false,
            together: Some(TOGETHER),
        }
    }

    /// The headers with the vendor's key in them, unless they have one.
    pub fn headers(&self, headers: &Headers) -> Headers {
        let mut all = headers.clone();
        let Some(key) = self.api_key else { return all };
        let (name, value) = match self.preset().key {
            KeyAs::Header(name, before) => (name, format!("{before}{}", key.expose())),
            KeyAs::Basic => (
                "authorization",
                format!("Basic {}", STANDARD.encode(key.expose())),
            ),
            KeyAs::Extension(_) => return all,
        };
        if all.get(name).is_none() {
            all.0.push((name.to_owned(), Secret::new(value)));
        }
        all
    }

    /// Reports what does not fit together.
    pub fn check(&self, at: &Node, over_grpc: bool, cx: &mut Problems) {
        let Some(name) = self.vendor else {
            if self.api_key.is_some() {
                cx.at(at.child("api_key"))
                    .help("without a preset, name the header in `headers`")
                    .error("needs `vendor`");
            }
            return;
        };
        let preset = name.preset();
        if over_grpc && !preset.grpc {
            cx.at(at.child("vendor"))
                .help("use the `otlphttp` exporter")
                .error(format!("{} takes OTLP over HTTP only", name.show_name()));
        }
        if at.get("api_key").is_some() && self.api_key.is_none_or(|key| key.expose().is_empty()) {
            cx.at(at.child("api_key"))
                .help("set the variable that it names, or leave `api_key` out and set the header yourself")
                .error(format!("the key for {} is empty", name.show_name()));
            return;
        }
        let Some(key) = self.api_key else { return };
        match preset.key {
            KeyAs::Extension(kind) => {
                cx.at(at.child("api_key"))
                    .help(format!("set `auth: {{authenticator: {kind}}}`"))
                    .error(format!("{} accepts no keys in headers", name.show_name()));
            }
            KeyAs::Basic if !key.expose().contains(':') => {
                cx.at(at.child("api_key")).error("must be `instance:token`");
            }
            _ if HeaderValue::try_from(key.expose()).is_err() => {
                cx.at(at.child("api_key"))
                    .error("has characters that no header may have");
            }
            _ => {}
        }
    }
}

/// Whether the positions of streams are on disk.
fn has_positions(queue: &QueueConfig) -> bool {
    queue.storage.is_some() && queue.storage_mode == StorageMode::Always
}

/// Reports deltas of a cluster whose positions are on disk: they would be older than those of the other replicas.
pub fn check_led(
    only_leader: Option<&String>,
    temporality: TemporalityChoice,
    queue: Option<&QueueConfig>,
    at: &Node,
    cx: &mut Problems,
) {
    let is_delta = only_leader.is_some() && temporality == TemporalityChoice::Delta;
    if is_delta && queue.is_some_and(has_positions) {
        cx.at(at.child("only_leader"))
            .help("set `storage_mode: spill` in `sending_queue`")
            .error("can't be combined with delta temporality and `storage_mode: always`: the stored positions miss the intervals that other replicas export");
    }
}

/// The methods of an exporter's options that a vendor's preset may set. A macro, because the options are fields of
/// different types. Each exporter has its own list of compressions, with gzip and zstd.
macro_rules! vendor_methods {
    ($config:ident, $compression:ident) => {
        impl $config {
            /// The options that a vendor's preset may set.
            pub(super) fn chosen(&self) -> $crate::exporters::vendor::Chosen<'_> {
                $crate::exporters::vendor::Chosen {
                    vendor: self.vendor,
                    api_key: self.api_key.as_ref(),
                    temporality: self.temporality,
                    max_buckets: self.max_buckets,
                    metric_names: self.metric_names,
                }
            }

            /// The compression of requests: the user's, then the vendor's.
            pub(super) fn compression(&self) -> $compression {
                self.compression.unwrap_or(if self.chosen().prefers_zstd() {
                    $compression::Zstd
                } else {
                    $compression::Gzip
                })
            }

            /// The delivery options: the user's, then the vendor's.
            pub(super) fn delivery(&self) -> $crate::delivery::Delivery {
                self.chosen()
                    .delivery(&self.sending_queue, &self.retry_on_failure, self.timeout)
            }
        }
    };
}
pub(super) use vendor_methods;

impl VendorName {
    fn show_name(self) -> String {
        crate::config::Decode::show(&self)
    }
}

/// The table for people, where options have a `vendor` among them; one line a preset.
pub fn describe(options: &[OptionDoc]) -> Vec<String> {
    if !options.iter().any(|option| option.name == "vendor") {
        return Vec::new();
    }
    let limit = |name: &str, limit: u64| match limit {
        0 => String::new(),
        limit => format!(", {name}: {limit}"),
    };
    let line = |vendor: &Vendor| {
        let key = match vendor.key {
            KeyAs::Header(name, before) => format!("header `{name}: {before}KEY`"),
            KeyAs::Basic => "basic, `instance:token`".to_owned(),
            KeyAs::Extension(kind) => format!("extension `{kind}`"),
        };
        let protocols = if vendor.grpc { "http, grpc" } else { "http" };
        format!(
            "{}: {{protocols: [{protocols}], key: {}, temporality: {}, compression: {}{}{}{}{}{}}}",
            vendor.name.show_name(),
            yaml_text(&key),
            crate::config::Decode::show(&vendor.temporality),
            vendor.compression,
            limit("max_request_size", vendor.max_request_bytes),
            limit("max_request_items", vendor.max_request_items as u64),
            limit("max_buckets", vendor.max_buckets as u64),
            match vendor.names {
                NameRules::Keep => String::new(),
                names => format!(", metric_names: {}", crate::config::Decode::show(&names)),
            },
            vendor
                .metrics_path
                .map_or_else(String::new, |path| format!(", metrics_path: {}", yaml_text(path))),
        )
    };
    VENDORS.iter().map(line).collect()
}
