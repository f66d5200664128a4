// SPDX-License-Identifier: Apache-2.0

//! Configured request headers: checked names and values, which are never printed.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};

use tidegate_config::{Node, Problems, Secret};

/// Headers from the configuration.
pub type Headers = BTreeMap<String, Secret>;

/// Reports invalid names and values of the map at `at`, without showing the values.
pub fn check(headers: &Headers, at: &Node, cx: &mut Problems) {
    for (name, value) in headers {
        let at = at.child(name);
        if HeaderName::try_from(name.as_str()).is_err() {
            cx.at(at).error(format!("{name:?} is not a header name"));
        } else if HeaderValue::try_from(value.expose()).is_err() {
            cx.at(at)
                .error("the value has characters that a header must not have");
        }
    }
}

/// The headers to send, without the invalid ones, which `check` has reported.
pub fn build(headers: &Headers) -> HeaderMap {
    let pairs = headers.iter().filter_map(|(name, value)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        let mut value = HeaderValue::try_from(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    pairs.collect()
}
