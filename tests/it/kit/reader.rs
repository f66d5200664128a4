// SPDX-License-Identifier: Apache-2.0

//! The way of a scraped page into the gateway, without a socket: what the `prometheus` receiver does with a body.

use super::http::Response;
use std::sync::Arc;
use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{Counts, Failure, ScrapeDecoder, Settings, Target};
use tidegate_engine::{Attributes, Point, Scope};
use tidegate_exposition::{Format, NativeHistograms, Options};

/// Nanoseconds between two pages.
const INTERVAL: u64 = 1_000_000_000;

/// A target whose own labels count (`honor_labels`) and which adds nothing.
struct Honest;

impl Target for Honest {
    fn relabel(&mut self, _: &mut LabelSet) -> bool {
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        let pairs = [("service.name", job), ("service.instance.id", instance)];
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Reads the pages of one target, a second apart.
pub(crate) struct Reader {
    decoder: ScrapeDecoder,
    now: u64,
}

impl Reader {
    /// Before the first page, which comes at `now`.
    pub(crate) fn new(now: u64) -> Self {
        let settings = Settings {
            parser: Options {
                native_histograms: NativeHistograms::Native,
            },
            scope: Arc::new(Scope::default()),
            ..Settings::default()
        };
        Self {
            decoder: ScrapeDecoder::new(settings, Box::new(Honest)),
            now,
        }
    }

    /// The points of a page, and of series that are not on it any more.
    pub(crate) fn read(&mut self, page: &Response) -> Result<(Vec<Point>, Counts), Failure> {
        let format = page.header("content-type").and_then(Format::of_content_type);
        let mut points = Vec::new();
        let counts = self
            .decoder
            .page(format.expect("a format"), &page.body, self.now, &mut points);
        self.now += INTERVAL;
        let counts = counts.map_err(|failed| failed.failure)?;
        Ok((points, counts))
    }
}
