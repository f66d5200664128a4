// SPDX-License-Identifier: Apache-2.0

//! Decodes a page into reports and windows. The limits are checked before anything is decoded.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{
    AttributeRef, Attributes, Data, Key, MergeMode, Point, RunReport, Series, StreamTotal, SubWindow,
    Temporality, UnixNanos, Value,
};
use tidegate_otlp::wire::{MAX_ELEMENTS, weigh};
use tidegate_otlp::{Signal, convert};

use super::{
    MAX_PAGE_SERIES, MERGE_KEY, PRODUCER_KEY, PageError, PageHeaders, Retagger, STREAM, WINDOW, default_mode,
};
use crate::ProducerName;
use crate::name::StreamProducer;

/// The limits of messages.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// The most bytes of a body (default: 1 MiB).
    pub max_body_bytes: usize,
    /// The most bytes of a decoded body (default: 32 MiB).
    pub max_decoded_bytes: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            max_decoded_bytes: 32 << 20,
        }
    }
}

/// The report of a run about a series.
#[derive(Clone, Debug, PartialEq)]
pub struct PageReport {
    /// The key of the series.
    pub key: Key,
    /// The series, without what a page adds to it.
    pub series: Arc<Series>,
    /// The report.
    pub report: RunReport,
}

/// A sub-window of a composite.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowReport {
    /// The name of the composite.
    pub composite: Arc<str>,
    /// The group.
    pub group: Attributes,
    /// The values.
    pub part: SubWindow,
}

/// The content of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodedPage {
    /// Values of series.
    pub reports: Vec<PageReport>,
    /// Levels that the run no longer has.
    pub ended: Vec<Key>,
    /// Windows of composites.
    pub windows: Vec<WindowReport>,
}

/// Decodes the body of a page.
///
/// # Errors
/// The body is too large, or it is not a page of this producer.
pub fn decode_page(
    producer: &ProducerName,
    headers: &PageHeaders,
    body: &Bytes,
    limits: PageLimits,
) -> Result<DecodedPage, PageError> {
    let mut page = DecodedPage::default();
    let mut keys = HashSet::new();
    let points = decode_points(body, limits)?;
    let mut retagger = untagger();
    let run = (producer.id(), headers);
    for point in points {
        let series = untagged(&mut retagger, &point.series, producer)?;
        let key = Key::of(&series);
        keys.insert(key);
        if keys.len() > MAX_PAGE_SERIES {
            return Err(PageError::TooManySeries);
        }
        match mode(&point.series)? {
            PageMode::Window => page.windows.push(window(&series, point)?),
            PageMode::Stream => page
                .reports
                .push(stream_report(key, series, headers.epoch, point)),
            PageMode::Value(mode) if matches!(point.value, Value::NoRecordedValue) => {
                page.ended.extend((!mode.is_retained()).then_some(key));
            }
            PageMode::Value(mode) => page.reports.push(PageReport {
                key,
                report: RunReport {
                    producer: run.0,
                    epoch: run.1.epoch,
                    start: point.start,
                    sequence: run.1.sequence,
                    time: point.time,
                    mode,
                    value: point.value,
                },
                series: Arc::new(series),
            }),
        }
    }
    Ok(page)
}

/// The points of a body that keeps within the limits.
pub(super) fn decode_points(body: &Bytes, limits: PageLimits) -> Result<Vec<Point>, PageError> {
    let (bytes, most) = (body.len(), limits.max_body_bytes);
    if bytes > most {
        return Err(PageError::TooLarge { bytes, most });
    }
    let most = limits.max_decoded_bytes;
    let checked = weigh(Signal::Metrics, body.clone(), MAX_ELEMENTS, |more| more <= most)
        .map_err(|error| PageError::Otlp(error.to_string()))?;
    if checked.weight > most {
        return Err(PageError::TooHeavy(most));
    }
    if checked.cut.is_some() {
        return Err(PageError::Otlp("a series has too many attributes".to_owned()));
    }
    convert::points(&checked.encoded).map_err(|error| PageError::Otlp(error.to_string()))
}

/// Removes what pages add to series.
type Untag = fn(&Attributes) -> Attributes;

pub(super) fn untagger() -> Retagger<Untag, Untag> {
    let resource: Untag = |attributes| attributes.filter(|key| key != PRODUCER_KEY);
    let metric: Untag = |metadata| metadata.filter(|key| key != MERGE_KEY);
    Retagger::new(resource, metric)
}

/// The series without what pages add to it.
pub(super) fn untagged(
    retagger: &mut Retagger<Untag, Untag>,
    series: &Series,
    producer: &ProducerName,
) -> Result<Series, PageError> {
    let said = series.resource.attributes.get(PRODUCER_KEY);
    if said.and_then(AttributeRef::as_str) != Some(producer.as_str()) {
        return Err(PageError::Producer);
    }
    Ok(retagger.series(series, &Attributes::default()))
}

/// How the values of a series merge.
enum PageMode {
    Value(MergeMode),
    Window,
    Stream,
}

fn mode(series: &Series) -> Result<PageMode, PageError> {
    let metric = &series.metric;
    let default = default_mode(metric.data);
    let mode = match metric.metadata.get(MERGE_KEY) {
        None => default.ok_or(PageError::Delta)?,
        Some(name) => match name.as_str().unwrap_or_default() {
            WINDOW => return Ok(PageMode::Window),
            STREAM if default != Some(MergeMode::Add) => return Err(PageError::Stream),
            STREAM => return Ok(PageMode::Stream),
            name => {
                MergeMode::named(name).ok_or_else(|| PageError::MergeMode(name.chars().take(32).collect()))?
            }
        },
    };
    if mode.is_retained() && default.is_none() {
        return Err(PageError::Delta);
    }
    Ok(PageMode::Value(mode))
}

/// The report of a stream. Its producer is the stream: the gateway of the page is one of several that may report it.
fn stream_report(key: Key, series: Series, epoch: UnixNanos, point: Point) -> PageReport {
    let Point {
        start, time, value, ..
    } = point;
    PageReport {
        key,
        report: StreamTotal { time, value }.report(StreamProducer::of(&series).id, epoch, start),
        series: Arc::new(series),
    }
}

fn window(series: &Series, point: Point) -> Result<WindowReport, PageError> {
    let is_window = series.metric.data
        == Data::ExponentialHistogram {
            temporality: Temporality::Delta,
        };
    let Value::ExponentialHistogram(histogram) = point.value else {
        return Err(PageError::Window);
    };
    if !is_window || point.start > point.time {
        return Err(PageError::Window);
    }
    let is_without_buckets =
        histogram.zero_count == 0 && histogram.positive.count() == 0 && histogram.negative.count() == 0;
    Ok(WindowReport {
        composite: series.metric.name.clone(),
        group: series.attributes.clone(),
        part: SubWindow {
            start: point.start,
            end: point.time,
            count: histogram.count as f64,
            sum: histogram.sum.unwrap_or_default(),
            min: histogram.min,
            max: histogram.max,
            last: None,
            distribution: (!is_without_buckets).then_some(*histogram),
        },
    })
}
