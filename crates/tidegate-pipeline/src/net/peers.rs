// SPDX-License-Identifier: Apache-2.0

//! Limits the connections of each address, so that none takes all connections of a listener.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::shares::{Most, Share, Shares};
use super::stream::Peer;

/// The connections of each address.
pub(super) type Peers = Shares<IpAddr>;

/// Counts a connection until the share is dropped. `None` means that its address has its maximum. Addresses of
/// this machine count only if `most` is configured.
pub(super) fn enter(peers: &Arc<Peers>, peer: Peer, most: PerPeer) -> Option<Share<IpAddr>> {
    let of = counted(peer).or_else(|| whole(peer).filter(|_| most.is_configured));
    let most = Most {
        of_all: usize::MAX,
        of_one: most.connections,
    };
    peers.take(1, of, most).ok()
}

/// The limit of connections for one address.
#[derive(Clone, Copy, Debug)]
pub struct PerPeer {
    pub(super) connections: usize,
    /// Whether the limit is configured. Otherwise it is a share of all, and local proxies are exempt.
    pub(super) is_configured: bool,
}

/// The address of a peer over TCP.
fn whole(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        _ => None,
    }
}

/// The address that counts for a peer. An IPv6 user has 2^64 addresses, so only the prefix counts.
pub(super) fn counted(peer: Peer) -> Option<IpAddr> {
    let Peer::Tcp(address) = peer else {
        return None;
    };
    match address.ip().to_canonical() {
        ip if ip.is_loopback() => None,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
        }
        ip @ IpAddr::V4(_) => Some(ip),
    }
}

/// The whole address of the peer of a TCP connection, in the extensions of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerAddress(pub(super) IpAddr);

impl PeerAddress {
    pub(super) fn of(peer: Peer) -> Option<Self> {
        whole(peer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(ip: &str) -> Peer {
        Peer::Tcp((ip.parse::<IpAddr>().unwrap(), 1).into())
    }

    fn share(connections: usize) -> PerPeer {
        PerPeer {
            connections,
            is_configured: false,
        }
    }

    #[test]
    fn an_address_has_so_many_connections_and_others_have_theirs() {
        let peers = Arc::new(Peers::default());
        let enter = |ip: &str| enter(&peers, peer(ip), share(2));
        let first = enter("10.0.0.1").unwrap();
        let _second = enter("::ffff:10.0.0.1").unwrap();
        assert!(enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some());
        drop(first);
        assert!(enter("10.0.0.1").is_some());
        let _network = [enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap()];
        assert!(enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        assert_eq!(peers.taken(), 3);
    }

    #[test]
    fn this_machine_is_counted_where_that_is_configured() {
        let peers = Arc::new(Peers::default());
        for peer in [
            peer("127.0.0.1"),
            peer("::1"),
            peer("::ffff:127.0.0.1"),
            Peer::Unix(None),
        ] {
            assert!(enter(&peers, peer, share(0)).is_some(), "{peer:?}");
        }
        let configured = PerPeer {
            is_configured: true,
            ..share(1)
        };
        let first = enter(&peers, peer("127.0.0.1"), configured).unwrap();
        assert!(enter(&peers, peer("::ffff:127.0.0.1"), configured).is_none());
        let _others = ["127.0.0.2", "::1"].map(|ip| enter(&peers, peer(ip), configured).unwrap());
        assert!(enter(&peers, Peer::Unix(None), configured).is_some());
        drop(first);
        assert!(enter(&peers, peer("127.0.0.1"), configured).is_some());
    }
}
