// SPDX-License-Identifier: Apache-2.0

//! Decodes a page into reports and windows. The limits are checked before anything is decoded.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{
    AttributeRef, Attributes, Data, Key, MergeMode, Point, RunReport, Series, SubWindow, Temporality, Value,
};
use tidegate_otlp::wire::{MAX_ELEMENTS, weigh};
use tidegate_otlp::{Signal, convert};

use super::{
    MAX_PAGE_SERIES, MERGE_KEY, PRODUCER_KEY, PageError, PageHeaders, Retagger, WINDOW, default_mode,
};
use crate::ProducerName;

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
            None => page.windows.push(window(&series, point)?),
            Some(mode) if matches!(point.value, Value::NoRecordedValue) => {
                page.ended.extend((!mode.is_retained()).then_some(key));
            }
            Some(mode) => page.reports.push(PageReport {
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

/// How the values of a series merge; `None`: they are windows.
fn mode(series: &Series) -> Result<Option<MergeMode>, PageError> {
    let metric = &series.metric;
    let mode = match metric.metadata.get(MERGE_KEY) {
        None => default_mode(metric.data).ok_or(PageError::Delta)?,
        Some(name) => {
            let name = name.as_str().unwrap_or_default();
            if name == WINDOW {
                return Ok(None);
            }
            MergeMode::named(name).ok_or_else(|| PageError::MergeMode(name.chars().take(32).collect()))?
        }
    };
    if mode.is_retained() && default_mode(metric.data).is_none() {
        return Err(PageError::Delta);
    }
    Ok(Some(mode))
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
