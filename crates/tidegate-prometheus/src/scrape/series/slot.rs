// SPDX-License-Identifier: Apache-2.0

//! One series of a target: its state between pages, and the point that a page gives it.

use std::sync::Arc;

use tidegate_engine::{Data, Exemplar, Point, Series, UnixNanos, Value};

use super::SeriesShape;
use crate::model::{self, Classic, Quantiles};
use crate::scrape::resource::Resources;

/// The value of a series, from the lines of a page.
#[derive(Debug)]
pub(super) enum SeriesValue {
    Number(f64),
    Classic(Box<Classic>),
    Summary(Box<Quantiles>),
    Native(Option<Value>),
}

/// The state of a series of a target.
#[derive(Debug)]
pub(super) struct SeriesSlot {
    pub(super) series: Arc<Series>,
    /// The place of its resource, and which one of those that were there it has.
    pub(super) resource: u32,
    version: u32,
    pub(super) state: SeriesValue,
    /// The page that wrote to it last.
    pub(super) page: u32,
    /// Whether that page has a sample of it, taken or not.
    pub(super) has_sample: bool,
    /// Whether something is to be emitted, and its times.
    pub(super) is_pending: bool,
    pub(super) time: UnixNanos,
    pub(super) start: UnixNanos,
    pub(super) exemplars: Vec<Exemplar>,
    pub(super) is_tracked: bool,
    /// The time of the last point, and whether it had a value.
    pub(super) last: UnixNanos,
    pub(super) is_alive: bool,
}

impl SeriesSlot {
    /// A series without samples.
    pub(super) fn new(series: Series, resource: u32, shape: SeriesShape) -> Self {
        Self {
            series: Arc::new(series),
            resource,
            version: 0,
            state: match shape {
                SeriesShape::Lines(Data::Gauge | Data::Sum { .. }) => SeriesValue::Number(0.0),
                SeriesShape::Lines(Data::Summary) => SeriesValue::Summary(Box::default()),
                SeriesShape::Lines(_) => SeriesValue::Classic(Box::default()),
                SeriesShape::Native(_) => SeriesValue::Native(None),
            },
            page: 0,
            has_sample: false,
            is_pending: false,
            time: 0,
            start: 0,
            exemplars: Vec::new(),
            is_tracked: false,
            last: 0,
            is_alive: false,
        }
    }

    /// The point of what was noted.
    pub(super) fn take(&mut self) -> Option<Point> {
        let value = match &mut self.state {
            SeriesValue::Number(number) => model::number(*number),
            SeriesValue::Classic(classic) => classic.take()?,
            SeriesValue::Summary(summary) => summary.take()?,
            SeriesValue::Native(value) => value.take()?,
        };
        Some(Point {
            series: self.series.clone(),
            start: self.start,
            time: self.time,
            value,
            exemplars: std::mem::take(&mut self.exemplars),
        })
    }

    /// Gives the series the resource that it has now; the series under the old one ends.
    #[inline]
    pub(super) fn update_resource(
        &mut self,
        resources: &Resources,
        time: UnixNanos,
        points: &mut Vec<Point>,
    ) {
        let (resource, version) = resources.get(self.resource);
        if self.version == version {
            return;
        }
        self.version = version;
        self.is_tracked |= self.is_alive;
        self.end(time, points);
        self.series = Arc::new(Series {
            resource: resource.clone(),
            ..Series::clone(&self.series)
        });
    }

    pub(super) fn end(&mut self, time: UnixNanos, points: &mut Vec<Point>) {
        if std::mem::take(&mut self.is_alive) && self.is_tracked {
            self.last = self.last.max(time);
            points.push(Point {
                series: self.series.clone(),
                start: 0,
                time,
                value: Value::NoRecordedValue,
                exemplars: Vec::new(),
            });
        }
    }
}

impl SeriesValue {
    pub(super) fn clear(&mut self) {
        match self {
            Self::Number(_) => {}
            Self::Classic(classic) => classic.clear(),
            Self::Summary(summary) => summary.clear(),
            Self::Native(value) => *value = None,
        }
    }

    pub(super) fn is_crowded(&self) -> bool {
        match self {
            Self::Classic(classic) => classic.is_crowded(),
            Self::Summary(summary) => summary.is_crowded(),
            Self::Number(_) | Self::Native(_) => false,
        }
    }

    pub(super) fn reset(&mut self) {
        match self {
            Self::Classic(classic) => **classic = Classic::default(),
            Self::Summary(summary) => **summary = Quantiles::default(),
            Self::Number(_) | Self::Native(_) => {}
        }
    }
}
