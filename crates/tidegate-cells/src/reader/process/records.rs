// SPDX-License-Identifier: Apache-2.0

//! Records of a file: resource, families, series and their ends.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::{Limits, Room, record, weight};
use super::{ReadError, Source, SourceSeries};
use crate::family::overflow_labels;
use crate::layout::{MAX_PAYLOAD, Reject, Role, SegmentKind};
use crate::record::{Record, SeriesRole};
use crate::spec::value_words;
use crate::value::Labels;

/// Bytes of records that are read at one go. The longest record is shorter.
const PIECE: u64 = 2 * MAX_PAYLOAD as u64;

/// The largest gap between values of a retained file, in bytes. Values follow each other; only the end of a segment can
/// have less room than a value takes.
const RETAINED_GAP: usize = 64 * 1024;

impl Source {
    pub(super) fn read_records(&mut self, limits: &Limits, room: Room<'_>) -> Result<(), ReadError> {
        let before = self.parsed;
        self.parsed = self.walk(before, |source, record, at| source.take(record, at, limits, room))?;
        if self.parsed != before {
            (self.looked_to, self.ended) = (self.parsed, 0);
        }
        self.is_short = self.parsed < self.changing.descriptors;
        if self.is_short {
            // The place of a series that ends there may be another's by now.
            let from = self.looked_to.max(self.parsed);
            self.looked_to = self.walk(from, |source, record, _| {
                source.end_early(&record);
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Shows the records from an offset on until one is not taken. Gives where that is, or the end.
    fn walk(
        &mut self,
        from: u64,
        mut each: impl FnMut(&mut Self, Record, u64) -> Result<bool, Reject>,
    ) -> Result<u64, ReadError> {
        let (mut at, end) = (from, self.changing.descriptors);
        while at < end {
            let bytes = self.stream(at, end.min(at + PIECE))?;
            let (start, mut rest) = (at, bytes.as_slice());
            while let Some((record, len)) = record::take(rest) {
                if !each(self, record, at)? {
                    return Ok(at);
                }
                rest = rest.get(len..).unwrap_or_default();
                at += len as u64;
            }
            // A piece begins with a record, which is not longer.
            if at == start {
                return Err(Reject::BadRecord(at).into());
            }
        }
        Ok(at)
    }

    /// Notes the end of a known series, although earlier records have no room.
    fn end_early(&mut self, record: &Record) {
        if let Record::End { slot } = record
            && self.forget(*slot)
        {
            self.ended += 1;
        }
    }

    /// Forgets a series. False: it is not known.
    fn forget(&mut self, slot: u64) -> bool {
        let Some(series) = self.series.remove(&slot) else {
            return false;
        };
        self.weight -= weight::series(&series);
        self.shown -= weight::shown(&series, series.words);
        true
    }

    /// Whether the file may take `bytes` more, and has room for them.
    fn has_room(&mut self, bytes: usize, limits: &Limits, room: Room<'_>) -> bool {
        let values = 2 * self.values.len().max(self.values_end());
        let kept = weight::FILE + self.weight + self.shown + values;
        // The retained file is read as a whole or not at all.
        let is_limited = self.header.role == Role::Process;
        self.is_large = is_limited && kept.saturating_add(bytes) > limits.max_kept_bytes;
        !self.is_large && room(bytes)
    }

    /// Bytes of the stream of records.
    fn stream(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        let file = self.file()?;
        let mut bytes = Vec::new();
        let mut segment_start = 0;
        let of_records = self
            .changing
            .segments
            .iter()
            .filter(|(kind, ..)| *kind == SegmentKind::Descriptors);
        for (_, offset, len) in of_records {
            let (from, to) = (start.max(segment_start), end.min(segment_start + len));
            if from < to {
                let at = bytes.len();
                bytes.resize(at + (to - from) as usize, 0); // at most the limit of a file
                file.read_exact_at(&mut bytes[at..], offset + (from - segment_start))?;
            }
            segment_start += len;
        }
        Ok(bytes)
    }

    /// Takes in a record. False: it has no room.
    fn take(&mut self, record: Record, at: u64, limits: &Limits, room: Room<'_>) -> Result<bool, Reject> {
        let bad = Reject::BadRecord(at);
        // The retained file has those of all processes before.
        let is_limited = self.header.role == Role::Process;
        match record {
            Record::Resource(resource) => {
                let bytes = weight::resource(&resource);
                if !self.has_room(bytes, limits, room) {
                    return Ok(false);
                }
                self.weight += bytes;
                self.weight -= weight::resource(&self.resource);
                self.resource = resource;
            }
            Record::Family(_) if is_limited && self.families.len() >= limits.max_families => {
                return Err(Reject::Limit("families"));
            }
            Record::Family(spec) => {
                let bytes = weight::family(&spec);
                if !self.has_room(bytes, limits, room) {
                    return Ok(false);
                }
                self.weight += bytes;
                let names = spec.labels.iter().map(|name| Arc::from(name.as_str()));
                self.label_names.push(names.collect());
                self.families.push(Arc::new(spec));
            }
            Record::Series { .. } if is_limited && self.series.len() >= limits.max_series => {
                return Err(Reject::Limit("series"));
            }
            Record::Series {
                family,
                slot,
                role,
                values,
            } => {
                let series = self.series_at(family, slot, role, values).ok_or(bad)?;
                let bytes = weight::series(&series);
                let shown = weight::shown(&series, series.words);
                if !self.has_room(bytes + shown + self.growth(&series), limits, room) {
                    return Ok(false);
                }
                self.weight += bytes;
                self.shown += shown;
                self.series.insert(slot, series);
            }
            Record::End { slot } => {
                let is_noted = at < self.looked_to;
                if !self.forget(slot) && !is_noted {
                    return Err(bad);
                }
            }
            Record::Folded { .. } if is_limited => return Err(bad),
            Record::Folded { identity, at_ns } => {
                if !self.has_room(weight::FOLDED, limits, room) {
                    return Ok(false);
                }
                self.weight += weight::FOLDED;
                self.folded.push((identity, at_ns));
            }
        }
        Ok(true)
    }

    /// The bytes by which this series enlarges the values, current and compared ones together.
    fn growth(&self, series: &SourceSeries) -> usize {
        let before = self.values.len().max(self.values_end());
        2 * series.end().saturating_sub(before)
    }

    /// A series, if its value is in a segment of values and overlaps no other value.
    fn series_at(
        &self,
        family: u32,
        slot: u64,
        role: SeriesRole,
        values: Vec<Box<str>>,
    ) -> Option<SourceSeries> {
        let spec = self.families.get(family as usize)?;
        let of_retained = matches!(role, SeriesRole::Of(_));
        let overflow = role == SeriesRole::Overflow;
        let expected = if overflow { 0 } else { spec.labels.len() };
        if values.len() != expected || of_retained && self.header.role != Role::Retained {
            return None;
        }
        let words = value_words(&spec.kind) + usize::from(overflow);
        let (start, end) = (
            slot.checked_mul(8)?,
            slot.checked_add(words as u64)?.checked_mul(8)?,
        );
        let before = self.series.range(..=slot).next_back();
        let after = self.series.range(slot..).next();
        let overlaps = before.is_some_and(|(at, series)| at + series.words as u64 > slot)
            || after.is_some_and(|(at, _)| at * 8 < end);
        let mut position = 0;
        for (kind, offset, len) in &self.changing.segments {
            if *kind == SegmentKind::Values {
                if (*offset..offset + len).contains(&start) && end <= offset + len && !overlaps {
                    let position = usize::try_from(position + (start - offset)).ok()?;
                    let is_retained = self.header.role == Role::Retained;
                    if is_retained && position > self.values_end() + RETAINED_GAP {
                        return None;
                    }
                    return Some(SourceSeries {
                        family,
                        role,
                        labels: self.labels(family, role, values)?,
                        words,
                        position,
                    });
                }
                position += len;
            }
        }
        None
    }

    fn labels(&self, family: u32, role: SeriesRole, values: Vec<Box<str>>) -> Option<Labels> {
        if role == SeriesRole::Overflow {
            return Some(overflow_labels());
        }
        let names = self.label_names.get(family as usize)?;
        let mut labels: Vec<_> = names.iter().cloned().zip(values).collect();
        labels.sort_unstable();
        Some(labels.into())
    }
}
