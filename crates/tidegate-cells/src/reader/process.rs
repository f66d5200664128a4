// SPDX-License-Identifier: Apache-2.0

//! Reads one file: its records once, its values repeatedly. All of it is untrusted input.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_shm::{FileId, OpenError, is_locked};

use super::{Limits, Room, weight};
use crate::family::overflow_labels;
use crate::layout::{Changing, HEADER_SIZE, Header, Identity, MAX_PAYLOAD, Reject, Role, SegmentKind};
use crate::record::{self, Record, SeriesRole};
use crate::spec::{FamilySpec, Kind};
use crate::store::Refused;
use crate::value::{Labels, Value};

/// The most reads of a header that changes during the read.
const ATTEMPTS: usize = 3;

/// Bytes of records that are read at one go. The longest record is shorter.
const PIECE: u64 = 2 * MAX_PAYLOAD as u64;

/// The largest gap between values of a retained file, in bytes. Values follow each other; only the end of a segment can
/// have less room than a value takes.
const RETAINED_GAP: usize = 64 * 1024;

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Rejected(#[from] Reject),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is none for the file of this process.
    #[error("memory is short; the gateway reads the file later")]
    NoRoom(Identity),
}

/// A file and the part that was read so far.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) inode: u64,
    pub(crate) header: Header,
    changing: Changing,
    /// Bytes of records that are parsed.
    parsed: u64,
    /// The records after them have no room.
    is_short: bool,
    /// They would exceed the limit of one file.
    is_large: bool,
    /// The offset up to which those records were searched for ends of known series.
    looked_to: u64,
    /// The number of ends found there.
    ended: usize,
    /// The bytes kept of the records.
    weight: usize,
    /// The bytes that callers keep to show its series.
    shown: usize,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) families: Vec<Arc<FamilySpec>>,
    /// Names of their labels, which all their series share.
    label_names: Vec<Box<[Arc<str>]>>,
    /// By the word at which their value is; none overlaps another.
    pub(crate) series: BTreeMap<u64, SourceSeries>,
    pub(crate) folded: Vec<(Identity, u64)>,
    values: Vec<u8>,
    /// The values at the last call of [`Source::changed`].
    compared: Vec<u8>,
    pub(crate) alive: bool,
    /// Read after its process died: nothing changes any more.
    finished: bool,
}

#[derive(Debug)]
pub(crate) struct SourceSeries {
    pub(crate) family: u32,
    pub(crate) role: SeriesRole,
    /// Sorted by name: processes may have them in different orders.
    pub(crate) labels: Labels,
    words: usize,
    /// The index of its value in `values`.
    position: usize,
}

impl Source {
    /// Opens a file and checks its type and header. It reads no records yet.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let (file, stat) = tidegate_shm::open(OpenOptions::new().read(true), path)?;
        let header = Header::parse(&page(&file)?)?;
        Ok(Source {
            path: path.to_owned(),
            file,
            inode: FileId::of_stat(&stat).inode,
            header,
            changing: Changing::default(),
            parsed: 0,
            is_short: false,
            is_large: false,
            looked_to: 0,
            ended: 0,
            weight: 0,
            shown: 0,
            resource: Vec::new(),
            families: Vec::new(),
            label_names: Vec::new(),
            series: BTreeMap::new(),
            folded: Vec::new(),
            values: Vec::new(),
            compared: Vec::new(),
            alive: true,
            finished: false,
        })
    }

    /// The uses that the process refused.
    pub(crate) fn refused(&self) -> Refused {
        Refused {
            series: self.changing.refused_series,
            room: self.changing.refused_room,
            invalid: self.changing.invalid,
        }
    }

    /// Reads the parts that may have changed. Records without room wait for a later call.
    pub(crate) fn update(&mut self, limits: &Limits, room: Room<'_>) -> Result<(), ReadError> {
        if self.finished {
            return Ok(());
        }
        // Before the values: those of a process that is dead now are its last.
        self.alive = self.header.role == Role::Process && is_locked(&self.file)?;
        self.changing = self.read_header(limits)?;
        self.read_records(limits, room)?;
        self.read_values()?;
        self.finished = !self.alive && !self.is_short;
        Ok(())
    }

    /// Whether some of its records had no room.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether the rest of them would take more than one file may.
    pub(crate) fn is_large(&self) -> bool {
        self.is_short && self.is_large
    }

    /// Whether none of its records has been taken in.
    pub(crate) fn is_unread(&self) -> bool {
        self.parsed == 0
    }

    /// The bytes kept of it: an estimate.
    pub(crate) fn bytes(&self) -> usize {
        let segments = size_of::<(SegmentKind, u64, u64)>() * self.changing.segments.len();
        weight::FILE + segments + self.weight + self.values.capacity() + self.compared.capacity()
    }

    fn read_header(&self, limits: &Limits) -> Result<Changing, ReadError> {
        let mut result = Err(Reject::BadSegments);
        for _ in 0..ATTEMPTS {
            let page = page(&self.file)?;
            if Header::parse(&page)? != self.header {
                return Err(Reject::BadHeader.into());
            }
            let size = self.file.metadata()?.size();
            if size > limits.max_file_bytes {
                return Err(Reject::Limit("bytes").into());
            }
            // Its words may be of different moments.
            result = Changing::parse(&page, size);
            if result.is_ok() {
                break;
            }
        }
        let changing = result?;
        let same = self
            .changing
            .segments
            .iter()
            .zip(&changing.segments)
            .all(|(a, b)| a == b);
        if changing.descriptors < self.parsed
            || changing.segments.len() < self.changing.segments.len()
            || !same
        {
            return Err(Reject::Shrunk.into());
        }
        Ok(changing)
    }

    fn read_records(&mut self, limits: &Limits, room: Room<'_>) -> Result<(), ReadError> {
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
                self.file
                    .read_exact_at(&mut bytes[at..], offset + (from - segment_start))?;
            }
            segment_start += len;
        }
        Ok(bytes)
    }

    /// Takes in a record. False: it has no room.
    fn take(&mut self, record: Record, at: u64, limits: &Limits, room: Room<'_>) -> Result<bool, Reject> {
        let bad = Reject::BadRecord(at);
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
            Record::Family(_) if self.families.len() >= limits.max_families => {
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
            Record::Series { .. } if self.series.len() >= limits.max_series => {
                return Err(Reject::Limit("series"));
            }
            Record::Series {
                family,
                slot,
                role,
                values,
            } => {
                let series = self.place(family, slot, role, values).ok_or(bad)?;
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
            Record::Folded { .. } if self.header.role != Role::Retained => return Err(bad),
            Record::Folded { .. } if self.folded.len() >= limits.max_files => {
                return Err(Reject::Limit("dead processes"));
            }
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
    fn place(&self, family: u32, slot: u64, role: SeriesRole, values: Vec<Box<str>>) -> Option<SourceSeries> {
        let spec = self.families.get(family as usize)?;
        let of_retained = matches!(role, SeriesRole::Of(_));
        let overflow = role == SeriesRole::Overflow;
        let expected = if overflow { 0 } else { spec.labels.len() };
        if values.len() != expected || of_retained && self.header.role != Role::Retained {
            return None;
        }
        let words = spec.kind.words() + usize::from(overflow);
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

    /// Bytes of values, up to that of the last series.
    fn values_end(&self) -> usize {
        let last = self.series.last_key_value();
        last.map_or(0, |(_, series)| series.end())
    }

    fn read_values(&mut self) -> io::Result<()> {
        let end = self.values_end();
        self.values.reserve_exact(end.saturating_sub(self.values.len()));
        self.values.resize(end, 0);
        let mut rest = self.values.as_mut_slice();
        let of_values = self
            .changing
            .segments
            .iter()
            .filter(|(kind, ..)| *kind == SegmentKind::Values);
        for (_, offset, len) in of_values {
            let len = usize::try_from(*len).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(len);
            self.file.read_exact_at(part, *offset)?;
            rest = after;
        }
        self.read_exponentials()
    }

    /// Repeats the read of values whose buffers were switched meanwhile.
    fn read_exponentials(&mut self) -> io::Result<()> {
        for (slot, series) in &self.series {
            let spec = self.families.get(series.family as usize);
            if !spec.is_some_and(|spec| matches!(spec.kind, Kind::ExponentialHistogram { .. })) {
                continue;
            }
            for _ in 0..ATTEMPTS {
                let mut control = [0; 8];
                self.file.read_exact_at(&mut control, slot * 8)?;
                let Some(value) = self.values.get_mut(series.position..series.end()) else {
                    break;
                };
                if value.starts_with(&control) {
                    break;
                }
                self.file.read_exact_at(value, slot * 8)?;
            }
        }
        Ok(())
    }

    /// A word of a series' value.
    fn word(&self, series: &SourceSeries, word: usize) -> u64 {
        let bytes = self.values.get(series.position + word * 8..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    }

    /// Bytes of records that were read, and the number of later records that end series. Two looks with the same
    /// numbers saw the same series.
    pub(crate) fn seen(&self) -> (u64, usize) {
        (self.parsed, self.ended)
    }

    /// Shows the slots of the series that have another value than at the last call.
    pub(crate) fn changed(&mut self, mut each: impl FnMut(u64)) {
        if self.compared == self.values {
            return;
        }
        for (slot, series) in &self.series {
            let place = series.position..series.end();
            if self.values.get(place.clone()) != self.compared.get(place) {
                each(*slot);
            }
        }
        self.compared.clone_from(&self.values);
    }

    /// The value of a series, and how many look-ups it took if it is the overflow series. `None` of an overflow
    /// series that was never used.
    pub(crate) fn value(&self, series: &SourceSeries, kind: &Kind) -> Option<(Value, u64)> {
        let uses = match series.role {
            SeriesRole::Overflow => self.word(series, series.words - 1),
            _ => 0,
        };
        let unused = series.role == SeriesRole::Overflow && uses == 0;
        (!unused).then(|| (Value::decode(kind, |word| self.word(series, word)), uses))
    }
}

impl SourceSeries {
    /// The end of its value in `values`.
    fn end(&self) -> usize {
        self.position + self.words * 8
    }

    /// Values of its labels in the order of its family's record.
    pub(crate) fn label_values(&self, spec: &FamilySpec) -> Vec<Box<str>> {
        if self.role == SeriesRole::Overflow {
            return Vec::new();
        }
        let value = |name: &String| {
            let found = self
                .labels
                .binary_search_by(|(other, _)| (**other).cmp(name.as_str()));
            let (_, value) = self.labels.get(found.ok()?)?;
            Some(value.clone())
        };
        spec.labels.iter().filter_map(value).collect() // each is there
    }
}

impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotRegular => Reject::NotRegular.into(),
            OpenError::Io { source, .. } => source.into(),
        }
    }
}

fn page(file: &File) -> Result<[u8; HEADER_SIZE], ReadError> {
    let mut page = [0; HEADER_SIZE];
    match tidegate_shm::read_at(file, &mut page, 0)? {
        HEADER_SIZE => Ok(page),
        _ => Err(Reject::TooSmall.into()),
    }
}
