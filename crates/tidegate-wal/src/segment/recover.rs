// SPDX-License-Identifier: Apache-2.0

//! Finds the records of a file of an earlier run.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_runtime::files;

use super::{MAX_FILE_BYTES, Segment, log_abandoned_search, most_records};
use crate::record::{self, Epoch, Head, MAX_SEQ, RecordKind, SEGMENT_HEAD, TAGS};
use crate::recovery::{Replay, Scan};
use crate::rescue::epoch_without_head;
use crate::window::{FileWindow, Search};

impl Segment {
    /// Scans a file of an earlier run. `settled` has the ranges that newer files call settled; those that remain
    /// concern older files. `replay` takes the data that it wants, settled or not. `next` is the first number of the
    /// next file. `None`: it is not a segment.
    ///
    /// # Errors
    /// The file can't be read, is not a regular file, or is larger than the maximum of a segment.
    pub(crate) fn recover(
        path: PathBuf,
        next: Option<u64>,
        settled: &mut Vec<(u64, u64)>,
        replay: &mut Replay,
    ) -> io::Result<Option<(Self, Scan)>> {
        let file = files::open(&path)?;
        let length = bounded_length(&file, MAX_FILE_BYTES)?;
        let mut window = FileWindow::new(&file, length);
        let head = window.get(0, SEGMENT_HEAD)?.and_then(record::read_segment_head);
        let found = match head {
            Some(found) => Some(found),
            None => Self::rescue(&path, &mut window, length)?,
        };
        let Some((first, epoch)) = found else {
            return Ok(None);
        };
        let (mut segment, mut scan) = (Self::known(path, first, epoch), Scan::default());
        if head.is_none() {
            scan.damaged_bytes += SEGMENT_HEAD as u64;
        }
        let (mut data, mut numbers) = (Vec::new(), first..=first + most_records(length));
        let mut at = SEGMENT_HEAD as u64;
        while at < length {
            if let Some(promise) = window.record(at, epoch)? {
                let head = promise.head;
                match head.kind {
                    RecordKind::Settled => window.payload(at, &promise, |piece| {
                        settled.extend(record::ranges(piece));
                    })?,
                    RecordKind::Data | RecordKind::State => {
                        if replay.wants(head.seq) {
                            replay.take(head.seq, window.whole(at, &promise, epoch)?);
                        }
                        if numbers.contains(&head.seq) {
                            numbers = head.seq + 1..=*numbers.end();
                        }
                        data.push(head);
                    }
                }
                at += promise.bytes() as u64;
                segment.len = at;
                continue;
            }
            match window.find(at + 1..length, epoch, &numbers)? {
                Search::Found(next) => {
                    scan.damaged_bytes += next - at;
                    at = next;
                }
                Search::Missing => {
                    scan.torn_bytes = window.torn(at, epoch)?;
                    break;
                }
                Search::GivenUp => {
                    scan.damaged_bytes += length - at;
                    log_abandoned_search(&segment.path, length - at);
                    break;
                }
            }
        }
        segment.on_disk = length;
        for head in data {
            scan.lost_records += segment.recall(head);
        }
        // A failed write leaves a gap in the numbers too, but cuts the file after a sound record.
        if let (Some(next), true) = (next, at < length) {
            scan.count_lost_end((first, segment.count), next, settled);
        }
        segment.release_all(settled);
        Ok(Some((segment, scan)))
    }

    /// Number and epoch of a file whose head is damaged: by its name and its records.
    fn rescue(path: &Path, window: &mut FileWindow<'_>, length: u64) -> io::Result<Option<(u64, Epoch)>> {
        let Some(first) = Self::named(path).filter(|first| *first <= MAX_SEQ) else {
            return Ok(None);
        };
        let epoch = epoch_without_head(window, &(first..=first + most_records(length)))?;
        Ok(epoch.map(|epoch| (first, epoch)))
    }

    /// Notes a record of an earlier run. Gives the number of lost records before it.
    fn recall(&mut self, head: Head) -> u64 {
        let expected = self.first + self.count;
        // More than fit into the file are not lost but made up.
        let fits = |seq: &u64| seq - self.first <= most_records(self.len);
        let seq = Some(head.seq).filter(|seq| *seq >= expected).filter(fits);
        let Some(lost) = seq.map(|seq| seq - expected) else {
            return 0;
        };
        (expected..head.seq).for_each(|seq| self.settled.add(seq - self.first));
        self.add(head, false);
        self.items.push((head.seq, head.tag, head.items));
        lost
    }

    /// Applies the settled ranges, and drops those that cannot concern an older file.
    fn release_all(&mut self, settled: &mut Vec<(u64, u64)>) {
        let end = self.first + self.count;
        for (first, last) in settled.iter().copied() {
            (first.max(self.first)..last.saturating_add(1).min(end)).for_each(|seq| self.release(seq));
        }
        settled.retain(|(first, _)| *first < self.first);
        self.unread = [0; TAGS];
        for (seq, tag, items) in std::mem::take(&mut self.items) {
            if self.is_wanted(seq) {
                self.count_unread(tag, |unread| *unread += u64::from(items));
            }
        }
    }
}

/// The length of a file, which must not exceed `most` bytes.
fn bounded_length(file: &File, most: u64) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length <= most {
        Ok(length)
    } else {
        let why = format!("{length} bytes are more than a segment ever has");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
    }
}
