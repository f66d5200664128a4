//! `dns_sd_configs`: targets from SRV, A, AAAA, MX or NS records.

mod message;
mod resolver;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ADDRESS, Reporter};
use crate::receivers::prometheus::config::discovery::{DnsSdConfig, RecordType};
use crate::receivers::prometheus::labels::Labels;
use message::Record;
use resolver::Resolver;

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
    /// What each name gave when it last answered.
    found: BTreeMap<String, Vec<Labels>>,
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
                match self.resolver.look_up(name, self.record_type).await {
                    Ok(records) => {
                        let of = |record| labels(name, self.port, record);
                        self.found
                            .insert(name.clone(), records.into_iter().map(of).collect());
                    }
                    Err(error) => to.failed("dns", &error),
                }
            }
            if !to.report(self.found.values().flatten().cloned()).await {
                return;
            }
        }
    }
}

fn labels(name: &str, port: u16, record: Record) -> Labels {
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
            (target, port)
        }
        Record::Exchange(target) => {
            labels.set(META_MX_TARGET, target.as_str());
            (target, port)
        }
        Record::NameServer(target) => {
            labels.set(META_NS_TARGET, target.as_str());
            (target, port)
        }
    };
    labels.set(ADDRESS, address(&host, port));
    labels
}

#[cfg(test)]
mod tests;
