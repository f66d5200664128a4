// SPDX-License-Identifier: Apache-2.0

//! Configured request headers: checked names and values, which are never printed.

use std::collections::HashSet;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

pub use tidegate_config::Headers;
use tidegate_config::{Node, Problems};

/// The headers that say where a message goes and where it ends. Another value would break the connection.
const OF_CONNECTIONS: [HeaderName; 6] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, TE];

/// Reports invalid and repeated names, and invalid values, of the headers at `at`, without showing the values.
pub fn check(headers: &Headers, at: &Node, cx: &mut Problems) {
    let mut names = HashSet::new();
    for (index, (name, value)) in headers.iter().enumerate() {
        let at = node(at, index, name);
        let Ok(parsed) = HeaderName::try_from(name) else {
            cx.at(at).error(format!("{name:?} is not a header name"));
            continue;
        };
        if OF_CONNECTIONS.contains(&parsed) {
            cx.at(at)
                .error(format!("the gateway sets the header {name:?} itself: remove it"));
        } else if HeaderValue::try_from(value.expose()).is_err() {
            cx.at(at)
                .error("the value has characters that a header must not have");
        } else if !names.insert(parsed) {
            cx.at(at)
                .error(format!("the header {name:?} is given more than once"));
        }
    }
}

/// The node of a header in the map or list at `at`.
pub fn node<'a>(at: &'a Node, index: usize, name: &str) -> &'a Node {
    let item = at.as_list().and_then(|items| items.get(index));
    item.unwrap_or_else(|| at.child(name))
}

/// The headers to send, without the invalid ones, which `check` has reported.
pub fn build(headers: &Headers) -> HeaderMap {
    let pairs = headers.iter().filter_map(|(name, value)| {
        let name = HeaderName::try_from(name).ok()?;
        let mut value = HeaderValue::try_from(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    pairs.collect()
}
