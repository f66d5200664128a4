// SPDX-License-Identifier: Apache-2.0

//! A job as it is made from the fields of an object.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidegate_kubernetes::DataKind;

use super::fields::{Fields, Mistakes};
use super::values::{Reference, Values};
use crate::jobs::DescribedJob;
use tidegate_pipeline::component::{Account, Held};
use tidegate_pipeline::delivery::response::shorten;

/// An object that jobs come from.
pub(super) struct Origin<'a> {
    /// The kind as names of jobs have it, such as `podMonitor`.
    pub(super) kind: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Whether it may name files of the gateway.
    pub(super) allows_files: bool,
}

impl std::fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What objects become.
#[derive(Debug, Default)]
pub(super) struct Generated {
    pub(super) jobs: Vec<DescribedJob>,
    /// What is wrong with objects, or has no effect.
    pub(super) notices: Vec<String>,
    /// The bytes of the jobs of the current object.
    object_bytes: usize,
    /// The reservation of the jobs. `None`: nothing counts them.
    held: Option<Held>,
    /// Whether memory was short.
    pub(super) lacks_memory: bool,
}

/// The most notices of a kind of objects.
const MAX_NOTICES: usize = 1000;

/// The most fields that one notice or job names.
const MAX_NAMED: usize = 10;

/// The most bytes of all jobs of an object. Each endpoint repeats the selector of its object.
const MAX_OBJECT_BYTES: usize = 4 << 20;

impl Generated {
    /// Jobs that are on an account.
    pub(super) fn on(account: &Arc<Account>) -> Self {
        Self {
            held: Some(Held::new(account.clone())),
            ..Self::default()
        }
    }

    /// The jobs of another object begin.
    pub(super) fn begin_object(&mut self) {
        self.object_bytes = 0;
    }

    /// Adds a notice. Texts in it come from outside.
    pub(super) fn note(&mut self, notice: &str) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(shorten(notice));
        }
    }

    /// Adds a notice for each field without effect.
    pub(super) fn note_ignored(&mut self, origin: &Origin<'_>, places: &[String]) {
        for place in places.iter().take(MAX_NAMED) {
            self.note(&format!("{origin}: {place} has no effect"));
        }
        let others = places.len().saturating_sub(MAX_NAMED);
        if others > 0 {
            self.note(&format!("{origin}: {others} more fields have no effect"));
        }
    }

    /// Adds a job, if there is room for it.
    fn add(&mut self, job: DescribedJob) {
        let bytes = job.options.len() + job.name.len() + job.source.len();
        self.object_bytes += bytes;
        if self.object_bytes > MAX_OBJECT_BYTES {
            let why = format!("the jobs of the object have more than {MAX_OBJECT_BYTES} bytes");
            return self.note(&format!("{}: {why}; the job {} is skipped", job.source, job.name));
        }
        if let Some(held) = &mut self.held {
            if held.try_grow(bytes).is_err() {
                self.lacks_memory = true;
                let name = &job.name;
                return self.note(&format!(
                    "{}: memory is short; the job {name} is skipped",
                    job.source
                ));
            }
            let reserved = held.bytes();
            held.keep(reserved);
        }
        self.jobs.push(job);
    }
}

/// A job that is being made.
pub(super) struct Draft<'a> {
    pub(super) origin: &'a Origin<'a>,
    name: String,
    pub(super) options: Map<String, Value>,
    /// Why the job is skipped.
    pub(super) mistakes: Mistakes,
    /// Fields without effect.
    pub(super) ignored: Vec<String>,
    values: &'a mut Values,
    is_waiting: bool,
}

/// Options that HTTP clients have, by the names in objects and in jobs.
const CLIENT: &[(&str, &str)] = &[
    ("followRedirects", "follow_redirects"),
    ("enableHttp2", "enable_http2"),
    ("enableHTTP2", "enable_http2"),
    ("proxyUrl", "proxy_url"),
    ("noProxy", "no_proxy"),
];

/// Fields of an object with the same meaning in jobs.
pub(super) const LIMITS: &[(&str, &str)] = &[
    ("sampleLimit", "sample_limit"),
    ("targetLimit", "target_limit"),
    ("labelLimit", "label_limit"),
    ("labelNameLengthLimit", "label_name_length_limit"),
    ("labelValueLengthLimit", "label_value_length_limit"),
    ("keepDroppedTargets", "keep_dropped_targets"),
    ("scrapeProtocols", "scrape_protocols"),
    ("fallbackScrapeProtocol", "fallback_scrape_protocol"),
    ("scrapeNativeHistograms", "scrape_native_histograms"),
    ("scrapeClassicHistograms", "always_scrape_classic_histograms"),
    ("nativeHistogramBucketLimit", "native_histogram_bucket_limit"),
    (
        "nativeHistogramMinBucketFactor",
        "native_histogram_min_bucket_factor",
    ),
    (
        "convertClassicHistogramsToNHCB",
        "convert_classic_histograms_to_nhcb",
    ),
    ("bodySizeLimit", "body_size_limit"),
];

impl<'a> Draft<'a> {
    /// A job. `suffix` is the part of its name after that of the object.
    pub(super) fn new(origin: &'a Origin<'a>, suffix: &str, values: &'a mut Values) -> Self {
        let Origin {
            kind,
            namespace,
            name,
            ..
        } = origin;
        let name = format!("{kind}/{namespace}/{name}{suffix}");
        let mut options = Map::new();
        options.insert("job_name".to_owned(), json!(name));
        Self {
            origin,
            name,
            options,
            mistakes: Mistakes::new(),
            ignored: Vec::new(),
            values,
            is_waiting: false,
        }
    }

    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.options.insert(key.to_owned(), value);
    }

    /// Takes fields that have the same meaning in jobs.
    pub(super) fn copy(&mut self, fields: &mut Fields, table: &[(&str, &str)]) {
        for (field, option) in table {
            if let Some(value) = fields.take(field) {
                self.set(option, number_of_text(option, value));
            }
        }
    }

    pub(super) fn lowercase(&mut self, fields: &mut Fields, field: &str, option: &str) {
        if let Some(text) = fields.text(field, &mut self.mistakes) {
            self.set(option, json!(text.to_lowercase()));
        }
    }

    /// The options of an HTTP client: authentication, TLS and proxies.
    pub(super) fn client(&mut self, fields: &mut Fields) -> Map<String, Value> {
        let mut options = Map::new();
        let mut set = |key: &str, value| options.insert(key.to_owned(), value);
        for (field, option) in CLIENT {
            fields.take(field).map(|value| set(option, value));
        }
        if fields.flag("proxyFromEnvironment", &mut self.mistakes) == Some(true) {
            set("proxy_from_environment", json!(true));
        }
        // The reader of the job refuses these two with the reason.
        for (field, option) in [
            ("oauth2", "oauth2"),
            ("proxyConnectHeader", "proxy_connect_header"),
        ] {
            fields.take(field).map(|_| set(option, json!({})));
        }
        if let Some(mut basic) = fields.part("basicAuth", &mut self.mistakes) {
            let mut auth = Map::new();
            for key in ["username", "password"] {
                let text = basic.part(key, &mut self.mistakes);
                let text = text.and_then(|at| self.value(at, DataKind::Secret));
                text.map(|text| auth.insert(key.to_owned(), json!(text.trim())));
            }
            self.ignore(&basic);
            set("basic_auth", Value::Object(auth));
        }
        if let Some(mut authorization) = fields.part("authorization", &mut self.mistakes) {
            let mut auth = Map::new();
            let word = authorization.text("type", &mut self.mistakes);
            word.map(|word| auth.insert("type".to_owned(), json!(word)));
            let text = authorization.part("credentials", &mut self.mistakes);
            let text = text.and_then(|at| self.value(at, DataKind::Secret));
            text.map(|text| auth.insert("credentials".to_owned(), json!(text.trim())));
            self.ignore(&authorization);
            set("authorization", Value::Object(auth));
        }
        if let Some(at) = fields.part("bearerTokenSecret", &mut self.mistakes)
            && !at.is_unnamed()
        {
            let text = self.value(at, DataKind::Secret);
            text.map(|text| set("bearer_token", json!(text.trim())));
        }
        if let Some(file) = self.file(fields, "bearerTokenFile") {
            set("bearer_token_file", json!(file));
        }
        if let Some(tls) = fields.part("tlsConfig", &mut self.mistakes) {
            let tls = self.tls(tls);
            set("tls_config", tls);
        }
        options
    }

    fn tls(&mut self, mut fields: Fields) -> Value {
        let mut options = Map::new();
        for (field, option) in [("ca", "ca"), ("cert", "cert")] {
            let Some(mut source) = fields.part(field, &mut self.mistakes) else {
                continue;
            };
            for (key, kind) in [("secret", DataKind::Secret), ("configMap", DataKind::ConfigMap)] {
                let text = source.part(key, &mut self.mistakes);
                let text = text.and_then(|at| self.value(at, kind));
                text.map(|text| options.insert(option.to_owned(), json!(text)));
            }
            self.ignore(&source);
        }
        let key = fields.part("keySecret", &mut self.mistakes);
        let key = key.and_then(|at| self.value(at, DataKind::Secret));
        key.map(|text| options.insert("key".to_owned(), json!(text)));
        for (field, option) in [
            ("caFile", "ca_file"),
            ("certFile", "cert_file"),
            ("keyFile", "key_file"),
        ] {
            let file = self.file(&mut fields, field);
            file.map(|file| options.insert(option.to_owned(), json!(file)));
        }
        const SAME: &[(&str, &str)] = &[
            ("serverName", "server_name"),
            ("insecureSkipVerify", "insecure_skip_verify"),
            ("minVersion", "min_version"),
            ("maxVersion", "max_version"),
        ];
        for (field, option) in SAME {
            let value = fields.take(field);
            value.map(|value| options.insert((*option).to_owned(), value));
        }
        self.ignore(&fields);
        Value::Object(options)
    }

    /// The path of a file of the gateway.
    fn file(&mut self, fields: &mut Fields, key: &str) -> Option<String> {
        let path = fields.text(key, &mut self.mistakes)?;
        self.may_name_files(&fields.path(key)).then_some(path)
    }

    /// Whether the object may name a file of the gateway. If not, the job is skipped.
    pub(super) fn may_name_files(&mut self, place: &str) -> bool {
        if !self.origin.allows_files {
            self.mistakes
                .push(format!("{place} needs `allow_file_access` of `prometheus_cr`"));
        }
        self.origin.allows_files
    }

    /// The value that a part of the object names.
    fn value(&mut self, mut at: Fields, kind: DataKind) -> Option<String> {
        let place = at.path("name");
        let name = at.text("name", &mut self.mistakes);
        let key = at.text("key", &mut self.mistakes);
        let is_optional = at.flag("optional", &mut self.mistakes) == Some(true);
        self.ignore(&at);
        let (Some(name), Some(key)) = (name, key) else {
            self.mistakes
                .push(format!("{place} or the key beside it is not set"));
            return None;
        };
        let reference = Reference {
            kind,
            namespace: self.origin.namespace.to_owned(),
            name,
            key,
        };
        match self.values.get(&reference) {
            None => {
                self.is_waiting = true;
                None
            }
            Some(Ok(text)) => Some(text.expose().to_owned()),
            Some(Err(_)) if is_optional => None,
            Some(Err(why)) => {
                self.mistakes.push(format!("{reference}: {why}"));
                None
            }
        }
    }

    /// Names the fields that are left.
    pub(super) fn ignore(&mut self, fields: &Fields) {
        self.ignored.extend(fields.rest());
    }

    /// Adds the job to the others, or the reasons why it is skipped.
    pub(super) fn finish(self, to: &mut Generated) {
        let Self { origin, name, .. } = self;
        if self.is_waiting {
            return;
        }
        to.note_ignored(origin, &self.ignored);
        if !self.mistakes.is_empty() {
            let mut mistakes = self.mistakes;
            mistakes.truncate(MAX_NAMED);
            // The name of the job comes first: long texts are shortened.
            to.note(&format!(
                "{origin}: the job {name} is skipped: {}",
                mistakes.join("; ")
            ));
            return;
        }
        to.add(DescribedJob {
            name,
            options: Value::Object(self.options).to_string(),
            source: origin.to_string(),
            namespace: origin.namespace.to_owned(),
        });
    }
}

impl Fields {
    /// Whether a reference names nothing, which objects have for an absent one.
    fn is_unnamed(&self) -> bool {
        self.rest().is_empty()
    }
}

/// The factor of buckets is a quantity, which may be a text.
fn number_of_text(option: &str, value: Value) -> Value {
    let number = value.as_str().and_then(|text| text.parse::<f64>().ok());
    match number.filter(|_| option == "native_histogram_min_bucket_factor") {
        Some(number) => json!(number),
        None => value,
    }
}
