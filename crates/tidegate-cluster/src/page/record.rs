// SPDX-License-Identifier: Apache-2.0

//! Retained totals of a producer as an OTLP request: a point for each run, and one for each compacted sum.
//!
//! Attributes of the points say which runs they are. So a reader that only adds up points has the right sum.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{
    AttributeList, AttributeRef, AttributeValue, Attributes, CompactedPart, CompactedTotal, Key,
    LISTED_STARTS, MergeMode, Metric, Point, RetainedTotal, RunReport, Series, Value,
};

use super::decode::{decode_points, untagged, untagger};
use super::{PageError, PageLimits, PageWriter};
use crate::ProducerName;

const EPOCH: &str = "tidegate.run.epoch";
const SEQUENCE: &str = "tidegate.run.sequence";
const PART: &str = "tidegate.compacted.part";
const START: &str = "tidegate.compacted.start";
const STARTS: &str = "tidegate.compacted.starts";
const RUNS: &str = "tidegate.compacted.runs";

/// The attributes that tell the points of a series apart.
const KEYS: [&str; 6] = [EPOCH, SEQUENCE, PART, START, STARTS, RUNS];

/// The retained total of a producer in a series.
#[derive(Clone, Debug, PartialEq)]
pub struct RetainedSeries {
    /// The key of the series.
    pub key: Key,
    /// The series.
    pub series: Arc<Series>,
    /// Its ended runs.
    pub total: RetainedTotal,
}

/// The body of the record with these totals.
pub fn encode_record(producer: &ProducerName, totals: &[RetainedSeries]) -> Bytes {
    let mut writer = PageWriter::new(producer);
    for RetainedSeries { series, total, .. } in totals {
        for (at, part) in total
            .compacted
            .iter()
            .flat_map(|all| all.parts.iter().enumerate())
        {
            let mut more = vec![(PART, int(at as u64))];
            if let Some(compacted) = total.compacted.as_ref().filter(|_| at == 0) {
                let starts: AttributeList = compacted.starts.iter().map(|start| int(*start)).collect();
                more.push((START, int(compacted.start)));
                more.push((STARTS, AttributeValue::Array(starts)));
                more.push((RUNS, int(compacted.runs)));
            }
            let series = with(series, more);
            writer.value(
                &series,
                MergeMode::Add,
                (part.start, part.time),
                part.value.clone(),
            );
        }
        for run in &total.runs {
            let series = with(
                series,
                vec![(EPOCH, int(run.epoch)), (SEQUENCE, int(run.sequence))],
            );
            writer.value(&series, run.mode, (run.start, run.time), run.value.clone());
        }
    }
    writer.finish()
}

/// Hashes of a record. They do not depend on the order of the totals, and not on descriptions, which differ between
/// replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordDigest {
    /// Of all content.
    pub content: [u8; 32],
    /// Without the values of runs, which may still grow, and the gateways that have reported them: of which runs there
    /// are.
    pub runs: [u8; 32],
}

impl RecordDigest {
    /// The hashes of a record with these totals.
    pub fn of(producer: &ProducerName, totals: &[RetainedSeries]) -> Self {
        let mut totals: Vec<_> = totals.iter().map(without_description).collect();
        totals.sort_by(|one, other| one.series.cmp(&other.series));
        let content = sha256(&encode_record(producer, &totals));
        let runs = totals.iter_mut().flat_map(|retained| &mut retained.total.runs);
        for run in runs {
            (run.epoch, run.sequence, run.time) = (0, 0, 0);
            run.value = Value::NoRecordedValue;
        }
        let runs = sha256(&encode_record(producer, &totals));
        Self { content, runs }
    }
}

fn without_description(retained: &RetainedSeries) -> RetainedSeries {
    let metric = Metric {
        description: "".into(),
        metadata: Attributes::default(),
        ..Metric::clone(&retained.series.metric)
    };
    let series = Series {
        metric: Arc::new(metric),
        ..Series::clone(&retained.series)
    };
    let mut total = retained.total.clone();
    total.runs.sort_by_key(|run| (run.start, run.epoch));
    RetainedSeries {
        key: retained.key,
        series: Arc::new(series),
        total,
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Decodes the body of a record.
///
/// # Errors
/// The body is too large, or it is not a record of this producer.
pub fn decode_record(
    producer: &ProducerName,
    body: &Bytes,
    limits: PageLimits,
) -> Result<Vec<RetainedSeries>, PageError> {
    let mut totals: Vec<RetainedSeries> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut retagger = untagger();
    for point in decode_points(body, limits)? {
        let mut series = untagged(&mut retagger, &point.series, producer)?;
        let marks = std::mem::take(&mut series.attributes);
        series.attributes = marks.filter(|key| !KEYS.contains(&key));
        let key = Key::of(&series);
        let place = *places.entry(key).or_insert(totals.len());
        if place == totals.len() {
            totals.push(RetainedSeries {
                key,
                series: Arc::new(series),
                total: RetainedTotal {
                    producer: producer.id(),
                    compacted: None,
                    runs: Vec::new(),
                },
            });
        }
        let retained = totals.get_mut(place).ok_or(PageError::Retained)?;
        add(&mut retained.total, &marks, point).ok_or(PageError::Retained)?;
    }
    Ok(totals)
}

/// Adds a point to a total; `None`: its attributes say nothing valid.
fn add(total: &mut RetainedTotal, marks: &Attributes, point: Point) -> Option<()> {
    let Point {
        start, time, value, ..
    } = point;
    if marks.get(PART).is_none() {
        total.runs.push(RunReport {
            producer: total.producer,
            epoch: number(marks.get(EPOCH))?,
            start,
            sequence: number(marks.get(SEQUENCE))?,
            time,
            mode: MergeMode::Add,
            value,
        });
        return Some(());
    }
    let compacted = total.compacted.get_or_insert_default();
    if number(marks.get(PART))? == 0 {
        *compacted = CompactedTotal {
            start: number(marks.get(START))?,
            starts: starts(marks.get(STARTS))?,
            runs: number(marks.get(RUNS))?,
            parts: std::mem::take(&mut compacted.parts),
        };
    }
    compacted.parts.push(CompactedPart { start, time, value });
    Some(())
}

fn with(series: &Series, more: Vec<(&str, AttributeValue)>) -> Series {
    let more: Attributes = more.into_iter().collect();
    Series {
        attributes: series.attributes.merge(&more),
        ..Series::clone(series)
    }
}

/// Numbers keep their bits.
fn int(number: u64) -> AttributeValue {
    AttributeValue::Int(number.cast_signed())
}

fn number(value: Option<AttributeRef<'_>>) -> Option<u64> {
    match value? {
        AttributeRef::Int(number) => Some(number.cast_unsigned()),
        _ => None,
    }
}

fn starts(value: Option<AttributeRef<'_>>) -> Option<Vec<u64>> {
    let AttributeRef::Array(list) = value? else {
        return None;
    };
    list.iter()
        .take(LISTED_STARTS)
        .map(|start| number(Some(start)))
        .collect()
}
