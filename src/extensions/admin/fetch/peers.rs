// SPDX-License-Identifier: Apache-2.0

//! The addresses of the peers.

use http::Uri;

use super::error::FetchError;
use crate::net::url::Url;

/// The most addresses of a host name.
const MAX_ADDRESSES: usize = 64;

/// A replica at one address.
pub(super) struct Peer {
    pub(super) url: Uri,
    pub(super) name: String,
}

/// The host of a URL, without brackets; `None`: it is a socket.
pub(super) fn host_of(endpoint: &Url) -> Option<String> {
    let Url::Http(uri) = endpoint else { return None };
    let host = uri.host()?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Some(inner.unwrap_or(host).to_owned())
}

/// The peers of an endpoint: each address of its host, with this path.
pub(super) async fn addresses(endpoint: &Url, path: &str) -> Result<Vec<Peer>, FetchError> {
    let url = endpoint.join(path);
    let Some(host) = host_of(endpoint) else {
        let name = endpoint.to_string();
        return Ok(vec![Peer { url, name }]);
    };
    let usual = if url.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let port = url.port_u16().unwrap_or(usual);
    let found = tokio::net::lookup_host((host.as_str(), port)).await;
    let mut found: Vec<_> = found.map_err(FetchError::Lookup)?.collect();
    found.sort_unstable();
    found.dedup();
    let peers = found.into_iter().take(MAX_ADDRESSES).filter_map(|address| {
        let mut parts = url.clone().into_parts();
        parts.authority = address.to_string().parse().ok();
        let url = Uri::from_parts(parts).ok()?;
        let name = format!("{endpoint} ({address})");
        Some(Peer { url, name })
    });
    Ok(peers.collect())
}
