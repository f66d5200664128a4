// SPDX-License-Identifier: Apache-2.0

//! Targets: discovered labels after relabelling, the URL to scrape, and the offset in the interval.

use std::time::Duration;

use http::Uri;

use super::job::Job;
use super::labels::Labels;
use super::relabel;
use tidegate_pipeline::component::targets::Pairs;
use tidegate_prometheus::duration::PromDuration;

const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const METRICS_PATH: &str = "__metrics_path__";
const INTERVAL: &str = "__scrape_interval__";
const TIMEOUT: &str = "__scrape_timeout__";
const PARAM_PREFIX: &str = "__param_";
const META_PREFIX: &str = "__meta_";
const RESERVED_PREFIX: &str = "__";
/// The label that names the job.
pub(super) const JOB: &str = "job";
/// The label that names the target.
pub(super) const INSTANCE: &str = "instance";

/// Something to scrape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// The labels of its series; `job` and `instance` are among them.
    pub(super) labels: Labels,
    /// The labels as discovery found them, with what the job says.
    pub(super) discovered: Labels,
    /// The URL of its page.
    pub(super) url: Uri,
    /// The scrape interval.
    pub(super) interval: Duration,
    /// The scrape timeout.
    pub(super) timeout: Duration,
    /// A hash of the labels and the URL.
    pub(super) hash: u64,
}

/// The reason why a discovered target is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum BadTarget {
    /// No `__address__`.
    #[error("no address")]
    NoAddress,
    /// The address has credentials, which the message does not repeat.
    #[error("an address must not contain credentials: use `basic_auth`")]
    Credentials,
    /// The address is a URL.
    #[error("{0:?} is not a valid hostname")]
    Address(String),
    /// Neither http nor https.
    #[error("the scheme {0:?} is not supported: use http or https")]
    Scheme(String),
    /// The parts make no URL.
    #[error("{0:?} is not a URL")]
    Url(String),
    /// A label that should hold a time does not.
    #[error("{label}: {value:?} is not a duration above 0")]
    Duration {
        /// The name of the label.
        label: &'static str,
        /// The value of the label.
        value: String,
    },
    /// An answer may take longer than the time between two scrapes.
    #[error("scrape timeout cannot be greater than scrape interval ({timeout} > {interval})")]
    TimeoutAboveInterval {
        /// The one.
        timeout: PromDuration,
        /// The other.
        interval: PromDuration,
    },
}

impl Target {
    /// Relabels discovered labels; `None` if the rules drop them.
    #[cfg(test)]
    pub(super) fn new(labels: Labels, job: &Job) -> Result<Option<Self>, BadTarget> {
        Self::of(Self::discovered(labels, job), job)
    }

    /// The labels that discovery found with those that the job adds.
    pub(super) fn discovered(mut labels: Labels, job: &Job) -> Labels {
        let defaults = [
            (JOB, job.name.to_string()),
            (INTERVAL, job.interval.to_string()),
            (TIMEOUT, job.timeout.to_string()),
            (METRICS_PATH, job.metrics_path.clone()),
            (SCHEME, job.scheme.clone()),
        ];
        for (name, value) in defaults {
            labels.set_default(name, &value);
        }
        for (name, values) in &job.params {
            if let Some(first) = values.first() {
                labels.set(&format!("{PARAM_PREFIX}{name}"), first.as_str());
            }
        }
        labels
    }

    /// The target of relabelled labels; `None` if the rules drop them.
    pub(super) fn of(discovered: Labels, job: &Job) -> Result<Option<Self>, BadTarget> {
        let mut labels = discovered.clone();
        if !relabel::apply(&job.relabel, job.validation, &mut labels) {
            return Ok(None);
        }
        Self::relabelled(labels, discovered, job).map(Some)
    }

    fn relabelled(mut labels: Labels, discovered: Labels, job: &Job) -> Result<Self, BadTarget> {
        let address = labels.get(ADDRESS).to_owned();
        if address.is_empty() {
            return Err(BadTarget::NoAddress);
        }
        if address.contains('@') {
            return Err(BadTarget::Credentials);
        }
        if address.contains('/') {
            return Err(BadTarget::Address(address));
        }
        let interval = duration(&labels, INTERVAL)?;
        let timeout = duration(&labels, TIMEOUT)?;
        if timeout > interval {
            return Err(BadTarget::TimeoutAboveInterval { timeout, interval });
        }
        let url = url(&labels, &address, job)?;
        labels.set_default(INSTANCE, &address);
        labels.retain(|name| !name.starts_with(META_PREFIX));
        let hash = hash(&labels, &url);
        labels.retain(|name| !name.starts_with(RESERVED_PREFIX));
        Ok(Self {
            labels,
            discovered,
            url,
            interval: interval.0,
            timeout: timeout.0,
            hash,
        })
    }

    /// The delay from `now` to the first scrape. The target's hash determines the position in the interval, so
    /// that scrapes are spread, and keep their position after a restart. `seed` differs between gateways.
    pub(super) fn offset(&self, now_nanos: u64, seed: u64) -> Duration {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let to_next = interval - now_nanos % interval;
        let place = (self.hash ^ seed) % interval;
        Duration::from_nanos((to_next.saturating_add(place)) % interval)
    }
}

/// Labels as others show them.
pub(super) fn pairs(labels: &Labels) -> Pairs {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn duration(labels: &Labels, label: &'static str) -> Result<PromDuration, BadTarget> {
    let value = labels.get(label);
    let parsed = PromDuration::parse(value).filter(|duration| !duration.is_zero());
    parsed.ok_or_else(|| BadTarget::Duration {
        label,
        value: value.to_owned(),
    })
}

fn url(labels: &Labels, address: &str, job: &Job) -> Result<Uri, BadTarget> {
    let scheme = labels.get(SCHEME);
    if !matches!(scheme, "http" | "https") {
        return Err(BadTarget::Scheme(scheme.to_owned()));
    }
    let path = escaped_path(labels.get(METRICS_PATH));
    let query = query(labels, job);
    let text = format!("{scheme}://{address}{path}{query}");
    let uri: Option<Uri> = text.parse().ok();
    uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()))
        .ok_or(BadTarget::Url(text))
}

/// The path as Go writes one that is not escaped yet.
fn escaped_path(path: &str) -> String {
    let mut out = String::new();
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The parameters of the job, the first value of each as relabelling left it, in the order of their names.
fn query(labels: &Labels, job: &Job) -> String {
    let mut params: Vec<(&str, &str)> = Vec::new();
    for (name, value) in labels.iter() {
        if let Some(name) = name.strip_prefix(PARAM_PREFIX) {
            params.push((name, value));
        }
    }
    for (name, values) in &job.params {
        let is_labelled = labels.has(&format!("{PARAM_PREFIX}{name}"));
        let rest = values.iter().skip(usize::from(is_labelled));
        params.extend(rest.map(|value| (name.as_str(), value.as_str())));
    }
    // Stable: several values of a name stay in their order.
    params.sort_by_key(|(name, _)| *name);
    if params.is_empty() {
        return String::new();
    }
    let mut encoded = form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(params);
    format!("?{}", encoded.finish())
}

/// FNV-1a, which is equal in every build, so that scrapes keep their position in the interval.
struct Fnv(u64);

impl Fnv {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    fn add(&mut self, text: &str) {
        // No UTF-8 has this byte, so no two lists of texts run together.
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
    }
}

fn hash(labels: &Labels, url: &Uri) -> u64 {
    let mut fnv = Fnv(Fnv::OFFSET);
    for (name, value) in labels.iter() {
        fnv.add(name);
        fnv.add(value);
    }
    fnv.add(&url.to_string());
    fnv.0
}

/// A number of this host, so that several gateways scrape the same targets at different times.
pub(super) fn seed() -> u64 {
    let mut fnv = Fnv(Fnv::OFFSET);
    fnv.add(&rustix::system::uname().nodename().to_string_lossy());
    fnv.0
}

#[cfg(test)]
mod tests;
