// SPDX-License-Identifier: Apache-2.0

//! Samples as they are written remotely, version 1.0.

use prost::Message;

use super::JOB;
use crate::BenchError;

/// Series with a sample each.
#[derive(Default)]
pub(super) struct Written(WriteRequest);

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<WrittenSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    sample: Option<WrittenSample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenSample {
    #[prost(double, tag = "1")]
    value: f64,
    /// Milliseconds.
    #[prost(int64, tag = "2")]
    time: i64,
}

impl Written {
    pub(super) fn clear(&mut self) {
        self.0.series.clear();
    }

    /// Appends a series. `labels` are in order and come behind `job` and `le`.
    pub(super) fn push(&mut self, name: &str, bound: Option<&str>, labels: &[(&str, String)], value: f64) {
        let label = |(name, value): (&str, &str)| Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let first = [("__name__", name), ("job", JOB)].into_iter();
        let bound = bound.map(|bound| ("le", bound));
        let own = labels.iter().map(|(name, value)| (*name, &**value));
        self.0.series.push(WrittenSeries {
            labels: first.chain(bound).chain(own).map(label).collect(),
            sample: Some(WrittenSample { value, time: 0 }),
        });
    }

    /// The request, of samples of this millisecond.
    pub(super) fn body(&mut self, now: u64) -> Result<Vec<u8>, BenchError> {
        let samples = self
            .0
            .series
            .iter_mut()
            .filter_map(|series| series.sample.as_mut());
        samples.for_each(|sample| sample.time = now as i64);
        Ok(snap::raw::Encoder::new().compress_vec(&self.0.encode_to_vec())?)
    }
}
