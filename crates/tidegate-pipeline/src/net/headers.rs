// SPDX-License-Identifier: Apache-2.0

//! Configured request headers: checked names and values, which are never printed.

use std::collections::HashSet;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

pub use tidegate_config::Headers;
use tidegate_config::{Node, Problems, Scalar, ScalarKind};

/// The headers that say where a message goes and where it ends. Another value would break the connection.
const OF_CONNECTIONS: [HeaderName; 6] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, TE];

/// Reports invalid and repeated names, and invalid and missing values, of the headers at `at`, without showing the
/// values.
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
        } else if value.expose().is_empty() {
            warn_of_no_value(at.child("value"), cx);
        }
    }
}

/// Warns of a value that is null or empty in the text of the configuration. A variable without a value may be meant, and
/// one that is not set is reported already.
fn warn_of_no_value(value: &Node, cx: &mut Problems) {
    let is_empty =
        |scalar: &Scalar| scalar.kind == ScalarKind::Null || (scalar.quoted && scalar.text.is_empty());
    if value.scalar().is_some_and(is_empty) && !value.is_substituted() && !cx.has_unset(value) {
        cx.at(value)
            .help("write its value, or leave the header out")
            .warning("the header has no value; it is sent empty");
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

#[cfg(test)]
mod tests {
    use tidegate_config::{Decode, Loader};

    use super::*;

    /// The problems of headers. The variable `EMPTY` is empty, and no other one is set.
    fn problems(headers: &str) -> String {
        let mut problems = Problems::default();
        let root = Loader::default()
            .text("h.yaml", format!("headers: {headers}\n"))
            .env(|name| (name == "EMPTY").then(String::new))
            .root(&mut problems)
            .unwrap();
        let node = root.get("headers").unwrap();
        let headers = Headers::decode(node, &mut problems).unwrap();
        check(&headers, node, &mut problems);
        problems.to_string()
    }

    #[test]
    fn a_header_without_a_value_is_warned_of_once() {
        let shown = problems("\n  Authorization:\n  x-a: b");
        let expected =
            "h.yaml:2:3: warning: headers::Authorization: the header has no value; it is sent empty\n";
        assert!(shown.starts_with(expected), "{shown}");
        assert!(
            shown.contains("help: write its value, or leave the header out"),
            "{shown}"
        );
        for headers in ["{a: }", "{a: ~}", "{a: \"\"}", "[{name: a, value: }]"] {
            let shown = problems(headers);
            assert_eq!(shown.matches("warning: ").count(), 1, "{headers}: {shown}");
            assert!(shown.contains("the header has no value"), "{headers}: {shown}");
        }
        for headers in [
            "{a: \"${env:NOPE}\"}",
            "{a: \"${env:NOPE}${env:NOPE}\"}",
            "[{name: a, value: \"${env:NOPE}\"}]",
        ] {
            let shown = problems(headers);
            assert!(shown.contains("NOPE is not set"), "{headers}: {shown}");
            assert!(!shown.contains("the header"), "{headers}: {shown}");
        }
        for headers in [
            "{a: b}",
            "{a: \"${env:EMPTY}\"}",
            "{a: \"${env:NOPE:-}\"}",
            "[{name: a, value: \"${env:EMPTY}\"}]",
        ] {
            assert_eq!(problems(headers), "", "{headers}");
        }
    }
}
