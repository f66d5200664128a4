// SPDX-License-Identifier: Apache-2.0

//! Detects from the environment whether this gateway is one of several replicas.

use crate::component::Context;

/// Warns once if this certainly is not the only replica. Senders behind a load balancer change replicas, and then
/// both replicas report the same totals.
pub(super) fn warn_of_others(base: &Context) {
    let name = |variable| std::env::var(variable).unwrap_or_default();
    let is_in_cluster = !name("KUBERNETES_SERVICE_HOST").is_empty();
    let host = name("HOSTNAME");
    if is_in_cluster && is_later_replica(&host) {
        tracing::warn!(
            processor = %base.path,
            host,
            remedy = "send each sender's data to one replica, or route by key with a loadbalancing exporter in front",
            "this is one of several replicas that aggregate; a sender that changes replicas is counted twice"
        );
    }
}

/// Whether a host name is that of a later pod of a StatefulSet, such as `gateway-1`.
fn is_later_replica(host: &str) -> bool {
    /// Other pods end in five random characters, which may all be digits.
    const MAX_DIGITS: usize = 3;
    let ordinal = host.rsplit_once('-').map_or("", |(_, ordinal)| ordinal);
    ordinal.len() <= MAX_DIGITS && ordinal.parse::<u16>().is_ok_and(|ordinal| ordinal > 0)
}

#[cfg(test)]
mod tests {
    use super::is_later_replica;

    #[test]
    fn only_later_pods_of_a_stateful_set_are_surely_not_alone() {
        assert!(is_later_replica("gateway-1") && is_later_replica("my-gateway-12"));
        for other in [
            "",
            "gateway",
            "gateway-0",
            "gateway-6d4cf56db6-x7zk2",
            "agent-24679",
            "1",
            "a-+1x",
        ] {
            assert!(!is_later_replica(other), "{other}");
        }
    }
}
