// SPDX-License-Identifier: Apache-2.0

//! Host names, links and their escapes in templates.

use std::net::IpAddr;

/// Host and port; `None`: there is no port. A host in brackets loses them.
fn split(address: &str) -> Option<(&str, &str)> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, port) = rest.split_once("]:")?;
        let is_plain = !host.contains(['[', ']']) && !port.contains([':', '[', ']']);
        return is_plain.then_some((host, port));
    }
    let (host, port) = address.rsplit_once(':')?;
    (!host.contains([':', '[', ']'])).then_some((host, port))
}

/// Without the port.
pub(super) fn strip_port(address: &str) -> String {
    split(address).map_or(address, |(host, _)| host).to_owned()
}

/// Without the domain of the host's name; an IP address stays.
pub(super) fn strip_domain(address: &str) -> String {
    let (host, port) = split(address).unwrap_or((address, ""));
    if host.parse::<IpAddr>().is_ok() {
        return address.to_owned();
    }
    let name = host.split('.').next().unwrap_or_default();
    match port {
        "" => name.to_owned(),
        port if name.contains(':') => format!("[{name}]:{port}"),
        port => format!("{name}:{port}"),
    }
}

/// The path of a page that shows an expression.
pub(super) fn link(expr: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", escape_query(expr))
}

/// A text as the value of a parameter in an address.
pub(super) fn escape_query(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            b' ' => escaped.push('+'),
            byte => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// A text without signs of HTML.
pub(super) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&#34;",
            '\'' => escaped += "&#39;",
            '\0' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The path of an address, without a slash at the end.
pub(super) fn path(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let path = after.find('/').map_or("", |at| &after[at..]);
    path.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_domains_are_stripped_from_addresses() {
        let table = [
            ("node1.example.com:9100", "node1.example.com", "node1:9100"),
            ("node1.example.com", "node1.example.com", "node1"),
            ("10.0.0.1:80", "10.0.0.1", "10.0.0.1:80"),
            ("[::1]:80", "::1", "[::1]:80"),
            ("::1", "::1", "::1"),
            ("", "", ""),
        ];
        for (address, no_port, no_domain) in table {
            assert_eq!(strip_port(address), no_port);
            assert_eq!(strip_domain(address), no_domain);
        }
    }

    #[test]
    fn links_escape_the_expression() {
        assert_eq!(link("up == 1", 1), "/graph?g0.expr=up+%3D%3D+1&g0.tab=1");
        assert_eq!(escape_html("<a & 'b'>"), "&lt;a &amp; &#39;b&#39;&gt;");
        assert_eq!(path("http://a.example/prom?x"), "/prom");
        assert_eq!(path("http://a.example"), "");
    }
}
