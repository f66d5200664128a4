// SPDX-License-Identifier: Apache-2.0

//! `cors`: the pages of other origins that a browser allows to use a server (Fetch standard, "CORS protocol").

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer, ExposeHeaders};

use tidegate_config::{Node, Problems};

tidegate_config::options! {
    /// Pages of other origins that may use the endpoint.
    pub struct CorsConfig {
        /// Origins whose pages may use the endpoint (`https://app.example.com`), each with at most one `*` for any
        /// text; `*` alone: all.
        pub allowed_origins: Vec<String> = Vec::new(),
        /// Headers that a page may send in addition to those that every client needs; `*` alone: all.
        pub allowed_headers: Vec<String> = Vec::new(),
        /// Headers of responses that a page may read.
        pub exposed_headers: Vec<String> = Vec::new(),
        /// Time in seconds for which a browser may cache the answer; 0 = the browser decides.
        pub max_age: u64 = 0,
    }
    check = CorsConfig::check
}

impl CorsConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for (origin, node) in self
            .allowed_origins
            .iter()
            .zip(items(at.child("allowed_origins")))
        {
            if origin.matches('*').count() > 1 {
                cx.at(node).error("an origin has at most one `*`");
            }
        }
        for (option, names) in [
            ("allowed_headers", &self.allowed_headers),
            ("exposed_headers", &self.exposed_headers),
        ] {
            for (name, node) in names.iter().zip(items(at.child(option))) {
                if name != "*" && HeaderName::try_from(name.as_str()).is_err() {
                    cx.at(node).error(format!("{name:?} is not a header name"));
                }
            }
        }
    }

    /// The CORS layer of a server with these methods; `None` without an allowed origin. Pages may always send
    /// `headers`.
    pub fn layer<const N: usize>(&self, methods: [Method; N], headers: &[HeaderName]) -> Option<CorsLayer> {
        if self.allowed_origins.is_empty() {
            return None;
        }
        let origins = self.allowed_origins.clone();
        let allowed = move |origin: &HeaderValue, _: &http::request::Parts| {
            let origin = origin.to_str().unwrap_or_default();
            origins.iter().any(|pattern| matches(pattern, origin))
        };
        let mut layer = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(allowed))
            .allow_methods(methods)
            .allow_headers(self.allowed(headers))
            .expose_headers(ExposeHeaders::list(names(&self.exposed_headers)));
        if self.max_age > 0 {
            layer = layer.max_age(Duration::from_secs(self.max_age));
        }
        Some(layer)
    }

    fn allowed(&self, always: &[HeaderName]) -> AllowHeaders {
        if self.allowed_headers.iter().any(|name| name == "*") {
            AllowHeaders::mirror_request()
        } else {
            AllowHeaders::list(names(&self.allowed_headers).chain(always.iter().cloned()))
        }
    }
}

fn items(list: &Node) -> &[Node] {
    list.as_list().unwrap_or_default()
}

/// The valid names. `check` has reported the others.
fn names(names: &[String]) -> impl Iterator<Item = HeaderName> {
    names
        .iter()
        .filter_map(|name| HeaderName::try_from(name.as_str()).ok())
}

/// Whether an origin matches a pattern. Browsers send schemes and hosts in lower case.
fn matches(pattern: &str, origin: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(origin),
        Some((start, end)) => {
            let origin = origin.to_ascii_lowercase();
            origin.len() >= start.len() + end.len()
                && origin.starts_with(&start.to_ascii_lowercase())
                && origin.ends_with(&end.to_ascii_lowercase())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, origin, expected) in [
            ("*", "https://a.example", true),
            ("https://*.example.com", "https://app.example.com", true),
            ("https://*.example.com", "https://example.com", false),
            ("https://*.example.com", "https://app.example.com.evil", false),
            ("https://A.example", "https://a.example", true),
            ("https://a.example", "http://a.example", false),
        ] {
            assert_eq!(matches(pattern, origin), expected, "{pattern} {origin}");
        }
    }
}
