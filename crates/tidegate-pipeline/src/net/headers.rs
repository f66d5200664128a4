// SPDX-License-Identifier: Apache-2.0

//! Configured request headers: checked names and values, which are never printed.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use tidegate_config::Headers;
use tidegate_config::{Node, Problems};

/// Reports invalid and repeated names, and invalid values, of the headers at `at`, without showing the values.
pub fn check(headers: &Headers, at: &Node, cx: &mut Problems) {
    let mut names = HashSet::new();
    for (index, (name, value)) in headers.iter().enumerate() {
        let at = node(at, index, name);
        if HeaderName::try_from(name).is_err() {
            cx.at(at).error(format!("{name:?} is not a header name"));
        } else if HeaderValue::try_from(value.expose()).is_err() {
            cx.at(at)
                .error("the value has characters that a header must not have");
        } else if !names.insert(name) {
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
