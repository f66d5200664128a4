// SPDX-License-Identifier: Apache-2.0

//! The identity that a target adds to the series of its page: labels, rules, a resource.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_engine::Attributes;

use super::labels::Labels;
use super::relabel;
use super::scrape::Workshop;
use super::target::Target;
use tidegate_prometheus::scrape;

/// In front of a label of the page that the target has too.
const EXPORTED: &str = "exported_";

/// A target as its pages need to know it.
pub(super) struct Identity {
    workshop: Arc<Workshop>,
    target: Target,
}

impl Identity {
    pub(super) fn new(workshop: Arc<Workshop>, target: Target) -> Self {
        Self { workshop, target }
    }
}

impl scrape::Target for Identity {
    fn relabel(&mut self, labels: &mut Labels) -> bool {
        let job = &self.workshop.job;
        if job.honor_labels {
            for (name, value) in self.target.labels.iter() {
                labels.set_default(name, value);
            }
        } else {
            override_labels(labels, &self.target.labels);
        }
        let keep = relabel::apply(&job.metric_relabel, job.validation, labels);
        for (name, value) in job.external_labels.iter() {
            labels.set_default(name, value);
        }
        keep
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        resource(job, instance, &self.target)
    }
}

/// The target's labels override those of the page. The overridden ones become `exported_...`, with a repeated
/// prefix if that name is taken. Short names choose first, as in Prometheus.
fn override_labels(labels: &mut Labels, target: &Labels) {
    let mut displaced: Vec<(String, String)> = Vec::new();
    for (name, value) in target.iter() {
        let old = labels.get(name);
        if !old.is_empty() {
            displaced.push((name.to_owned(), old.to_owned()));
        }
        labels.set(name, value);
    }
    displaced.sort_by_key(|(name, _)| name.len());
    for (name, value) in displaced {
        let mut free = format!("{EXPORTED}{name}");
        while labels.has(&free) {
            free.insert_str(0, EXPORTED);
        }
        labels.set(&free, value);
    }
}

/// The resource of a job and instance (specification, "Resource Attributes"; semantic conventions for scraped targets).
pub(super) fn resource(job: &str, instance: &str, target: &Target) -> Attributes {
    let (host, port) = split_port(instance);
    let scheme = target.url.scheme_str().unwrap_or("http");
    let pairs = [
        ("service.name", job),
        ("service.instance.id", instance),
        ("server.address", host),
        ("server.port", port),
        ("url.scheme", scheme),
    ];
    pairs
        .into_iter()
        .filter(|(key, value)| !value.is_empty() && (*key != "server.address" || is_telling(host)))
        .collect()
}

/// `host:port`, with or without brackets around the host. Without a port all of it is the host.
fn split_port(instance: &str) -> (&str, &str) {
    let (host, port) = match instance.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (instance, ""),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (inner.unwrap_or(host), port)
}

/// Whether a host name identifies the host to other hosts.
fn is_telling(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => !ip.is_loopback() && !ip.is_unspecified(),
        Err(_) => host != "localhost",
    }
}

#[cfg(test)]
mod tests;
