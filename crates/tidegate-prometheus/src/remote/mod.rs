// SPDX-License-Identifier: Apache-2.0

//! Prometheus remote write, 1.0 (`prometheus.WriteRequest`) and 2.0 (`io.prometheus.write.v2.Request`): points to
//! requests and back. The senders and servers are components; this module has their common part of the protocol.

pub mod decoder;
mod generations;
pub mod histogram;
mod known;
pub mod read;
pub mod series;
pub mod translate;
pub mod weight;
pub mod write;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

/// The message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    One,
    /// `io.prometheus.write.v2.Request`.
    Two,
}

impl Version {
    /// Its name in the parameter `proto` of a content type.
    pub const fn message(self) -> &'static str {
        match self {
            Self::One => "prometheus.WriteRequest",
            Self::Two => "io.prometheus.write.v2.Request",
        }
    }

    /// The content type of a sender. Receivers of 1.0 may not know the parameter.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::One => MEDIA_TYPE,
            Self::Two => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    /// The value of [`VERSION_HEADER`].
    pub const fn header(self) -> &'static str {
        match self {
            Self::One => "0.1.0",
            Self::Two => "2.0.0",
        }
    }

    /// The version of a content type; `None`: neither of them. Without a parameter it is 1.0.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let mut parts = content_type.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(MEDIA_TYPE) {
            return None;
        }
        let parameters = parts.filter_map(|part| part.split_once('='));
        let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("proto"));
        let Some((_, message)) = named.next() else {
            return Some(Self::One);
        };
        let message = message.trim().trim_matches('"');
        [Self::One, Self::Two]
            .into_iter()
            .find(|version| version.message() == message)
    }
}

/// The media type of both versions.
pub const MEDIA_TYPE: &str = "application/x-protobuf";
/// The header that names the version of the protocol.
pub const VERSION_HEADER: &str = "x-prometheus-remote-write-version";
/// Headers by which a receiver of 2.0 says how much it wrote: samples, native histograms, exemplars.
pub const WRITTEN_HEADERS: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

/// The mark of a series that has ended.
pub fn stale() -> f64 {
    f64::from_bits(crate::model::STALE_NAN)
}

/// Counts series that a cache has forgotten to make room for others. The cache resolves them again when they return.
pub fn count_evicted(class: &'static str, id: &Arc<str>, series: usize) {
    if series > 0 {
        metrics::counter!("tidegate_remote_write_forgotten_series_total", class => id.clone())
            .increment(series as u64);
    }
}
