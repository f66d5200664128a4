// SPDX-License-Identifier: Apache-2.0

//! `dns_sd_configs`: targets from SRV, A, AAAA, MX or NS records.

mod resolver;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::group::{ListError, Listed, label_bytes};
use super::{ADDRESS, Reporter};
use crate::config::discovery::{DnsSdConfig, RecordType};
use crate::labels::Labels;
use resolver::{Record, Resolver};
use tidegate_pipeline::component::{Account, Held};

const META_NAME: &str = "__meta_dns_name";
const META_SRV_TARGET: &str = "__meta_dns_srv_record_target";
const META_SRV_PORT: &str = "__meta_dns_srv_record_port";
const META_MX_TARGET: &str = "__meta_dns_mx_record_target";
const META_NS_TARGET: &str = "__meta_dns_ns_record_target";

pub(super) struct DnsDiscovery {
    names: Vec<String>,
    record_type: RecordType,
    port: u16,
    refresh_interval: Duration,
    resolver: Resolver,
    /// The last answer for each name.
    found: BTreeMap<String, Listed>,
}

impl DnsDiscovery {
    pub(super) fn new(config: &DnsSdConfig) -> Self {
        let servers = config.servers.iter().filter_map(|server| server.parse().ok());
        Self {
            names: config.names.clone(),
            record_type: config.r#type,
            port: config.port.map_or(0, std::num::NonZeroU16::get),
            refresh_interval: config.refresh_interval.0,
            resolver: Resolver::new(config.resolv_conf.clone(), servers.collect()),
            found: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self, to: Reporter) {
        let mut ticks = tokio::time::interval(self.refresh_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for name in &self.names {
                let mut held = Held::new(to.memory.clone());
                let found = self.resolver.look_up(name, self.record_type, &mut held).await;
                let records = match found {
                    Ok(records) => records,
                    Err(error) => {
                        to.failed("dns", &error);
                        continue;
                    }
                };
                match listed(name, self.port, records, self.found.get(name), &to.memory) {
                    Ok(Some(listed)) => {
                        self.found.insert(name.clone(), listed);
                    }
                    Ok(None) => {}
                    Err(error) => to.failed("dns", &format_args!("{name}: {error}")),
                }
            }
            let targets = self
                .found
                .values()
                .flat_map(|listed| listed.labels.iter().cloned());
            let rooms = self.found.values().map(|listed| listed.room.clone()).collect();
            if !to.report_with(targets, rooms).await {
                return;
            }
        }
    }
}

/// The targets from the records of a name, with their own reservation. `None`: nothing has changed.
///
/// # Errors Memory is short.
fn listed(
    name: &str,
    port: u16,
    mut records: Vec<Record>,
    known: Option<&Listed>,
    memory: &Arc<Account>,
) -> Result<Option<Listed>, ListError> {
    // Servers change their order from answer to answer.
    records.sort_unstable();
    records.dedup();
    let is_known = |known: &Listed| {
        let mut pairs = known.labels.iter().zip(&records);
        known.labels.len() == records.len()
            && pairs.all(|(known, record)| *known == labels(name, port, record))
    };
    if known.is_some_and(is_known) {
        return Ok(None);
    }
    let weights = records.iter().map(|record| weight(name, record));
    let weight = weights.fold(0, usize::saturating_add);
    let make = || records.iter().map(|record| labels(name, port, record)).collect();
    Listed::of_records(records.len(), weight, make, Held::new(memory.clone())).map(Some)
}

/// Bytes that the labels of a record take, once, at most.
fn weight(name: &str, record: &Record) -> usize {
    /// The longest text of an IP address, in bytes.
    const ADDRESS_BYTES: usize = 45;
    /// The bytes of a port with its colon, and of brackets around an address.
    const PORT_BYTES: usize = 8;
    let host = match record {
        Record::Address(_) => ADDRESS_BYTES,
        Record::Service { target, .. } | Record::Exchange(target) | Record::NameServer(target) => {
            target.len()
        }
    };
    // The labels of a service, which has most of them and the longest names.
    let labels = [
        (META_NAME, name.len()),
        (META_SRV_TARGET, host),
        (META_SRV_PORT, PORT_BYTES),
        (ADDRESS, host + PORT_BYTES),
    ];
    labels
        .iter()
        .map(|(label, bytes)| label_bytes(label, *bytes))
        .sum()
}

fn labels(name: &str, port: u16, record: &Record) -> Labels {
    let mut labels = Labels::default();
    labels.set(META_NAME, name);
    // Rooted names lose their last dot, as people write them.
    let address = |host: &str, port: u16| match host.trim_end_matches('.') {
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    };
    let (host, port) = match record {
        Record::Address(ip) => (ip.to_string(), port),
        Record::Service { target, port } => {
            labels.set(META_SRV_PORT, port.to_string());
            labels.set(META_SRV_TARGET, target.as_str());
            (target.clone(), *port)
        }
        Record::Exchange(target) => {
            labels.set(META_MX_TARGET, target.as_str());
            (target.clone(), port)
        }
        Record::NameServer(target) => {
            labels.set(META_NS_TARGET, target.as_str());
            (target.clone(), port)
        }
    };
    labels.set(ADDRESS, address(&host, port));
    labels
}

#[cfg(test)]
mod tests;
