// SPDX-License-Identifier: Apache-2.0

//! Limits of the system against those of the configuration: open files and memory.

use rustix::process::{Resource, getrlimit};

use super::report::Report;
use super::roles::Role;
use super::sites::Site;
use crate::component::account::measure::total_bytes;
use crate::config::ByteSize;

/// Descriptors that the gateway keeps from connections. It keeps a quarter of a low limit.
const RESERVED: u64 = 4096;

pub(super) fn check(sites: &[Site<'_>], report: &mut Report<'_>) {
    // The gateway raises its limit to the most that the system allows.
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    check_connections(sites, descriptors, report);
    if let Ok(memory) = total_bytes() {
        check_memory(sites, memory, report);
    }
}

fn check_connections(sites: &[Site<'_>], descriptors: u64, report: &mut Report<'_>) {
    let listeners: Vec<_> = sites
        .iter()
        .filter(|site| site.role == Role::Connections)
        .filter_map(|site| Some((site, site.text.parse::<u64>().ok()?)))
        .collect();
    let Some((largest, _)) = listeners.iter().max_by_key(|(_, count)| *count) else {
        return;
    };
    report.begin_check();
    let wanted = listeners
        .iter()
        .fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let free = descriptors - RESERVED.min(descriptors / 4);
    if wanted > free {
        let message = format!(
            "all listeners may have {wanted} connections, but the limit of {descriptors} open files leaves {free}"
        );
        let help = "raise the limit (`LimitNOFILE` of systemd, `--ulimit nofile` of the container), or lower `max_connections`";
        report.warning(&largest.position(), message, help);
    }
}

fn check_memory(sites: &[Site<'_>], memory: u64, report: &mut Report<'_>) {
    let mut sum = 0u64;
    let mut largest: Option<(&Site<'_>, u64)> = None;
    for site in sites {
        // Only what the user wrote: defaults follow the memory or are small.
        let bytes = match site.role {
            Role::MemoryMib => site
                .text
                .parse::<u64>()
                .ok()
                .map(|mib| mib.saturating_mul(1 << 20)),
            Role::MemoryBytes => site.text.parse::<ByteSize>().ok().map(ByteSize::bytes),
            _ => None,
        };
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && site.node.is_some()) else {
            continue;
        };
        report.begin_check();
        if bytes > memory {
            let message = format!(
                "{} MiB are more than the memory of this machine or container: {} MiB",
                bytes >> 20,
                memory >> 20
            );
            let help = "lower the limit, or give the gateway more memory: the kernel ends it before this limit counts";
            report.warning(&site.position(), message, help);
        } else if site.role == Role::MemoryBytes {
            sum = sum.saturating_add(bytes);
            if largest.is_none_or(|(_, most)| bytes > most) {
                largest = Some((site, bytes));
            }
        }
    }
    if let Some((site, _)) = largest.filter(|_| sum > memory) {
        let message = format!(
            "all memory limits together are {} MiB, more than this machine or container has: {} MiB",
            sum >> 20,
            memory >> 20
        );
        report.warning(
            &site.position(),
            message,
            "lower the largest limit, or give the gateway more memory",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::sites::tests::with_sites;
    use super::*;

    const TEXT: &str = "
receivers: {otlp: {protocols: {grpc: {max_connections: 700}, http: {max_connections: 100}}}}
processors: {memory_limiter: {check_interval: 1s, limit_mib: 1000}}
exporters: {nop: }
service: {pipelines: {logs: {receivers: [otlp], processors: [memory_limiter], exporters: [nop]}}}
";

    fn messages(run: impl FnOnce(&[Site<'_>], &mut Report<'_>)) -> String {
        let mut messages = String::new();
        with_sites(TEXT, |sites, problems| {
            run(sites, &mut Report::new(problems));
            messages = problems.to_string();
        });
        messages
    }

    #[test]
    fn connections_are_compared_with_the_descriptors_that_are_left() {
        let said = messages(|sites, report| check_connections(sites, 1024, report));
        assert!(
            said.contains("800 connections, but the limit of 1024 open files leaves 768"),
            "{said}"
        );
        assert!(said.contains("grpc::max_connections"), "{said}");
        assert_eq!(
            messages(|sites, report| check_connections(sites, 10_000, report)),
            ""
        );
    }

    #[test]
    fn a_memory_limit_above_the_memory_is_a_warning() {
        let said = messages(|sites, report| check_memory(sites, 512 << 20, report));
        assert!(said.contains("1000 MiB are more than"), "{said}");
        assert_eq!(messages(|sites, report| check_memory(sites, 1 << 30, report)), "");
    }
}
