// SPDX-License-Identifier: Apache-2.0

//! Measures how long something takes.

use std::time::{Duration, Instant};

use super::Histogram;

/// Observes the seconds since it was started when it is dropped.
#[derive(Debug)]
#[must_use = "a timer measures until it is dropped"]
pub struct Timer {
    histogram: Option<Histogram>,
    started: Instant,
}

impl Timer {
    pub(super) fn new(histogram: Histogram) -> Self {
        Self {
            histogram: Some(histogram),
            started: Instant::now(),
        }
    }

    /// Observes now, and tells what.
    pub fn stop(mut self) -> Duration {
        let took = self.started.elapsed();
        if let Some(histogram) = self.histogram.take() {
            histogram.observe(took.as_secs_f64());
        }
        took
    }

    /// Observes nothing.
    pub fn discard(mut self) {
        self.histogram = None;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(histogram) = self.histogram.take() {
            histogram.observe(self.started.elapsed().as_secs_f64());
        }
    }
}
