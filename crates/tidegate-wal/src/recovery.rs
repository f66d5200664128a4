// SPDX-License-Identifier: Apache-2.0

//! Recovers the files that an earlier run left in a directory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use tidegate_runtime::files;
use tidegate_shm::{LockHolder, try_lock};

use super::record::{RECORD_HEAD, TAGS};
use super::segment::{MAX_FILE_BYTES, Segment, most_records};
use super::{State, segment_pool};

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Items that are not settled, by tag.
    pub items: [u64; TAGS],
    /// Records that are not settled.
    pub records: u64,
    /// Records that stood where files are damaged now.
    pub lost_records: u64,
    /// Bytes of damage between sound records, and of damage after them if its records are known to be lost.
    pub damaged_bytes: u64,
    /// Bytes of records whose write the end of the process cut short: they had not been acknowledged.
    pub torn_bytes: u64,
    /// Files that could not be read, or are not files of ours. They stay.
    pub unreadable: u64,
}

impl Recovered {
    /// Counts and logs the damage to the stored data of a component.
    pub fn report_damage(&self, component: &str) {
        let Self {
            lost_records,
            damaged_bytes,
            torn_bytes,
            unreadable,
            ..
        } = *self;
        metrics::counter!("tidegate_storage_lost_records_total", "component" => component.to_owned())
            .increment(lost_records);
        if lost_records + damaged_bytes + torn_bytes + unreadable > 0 {
            tracing::warn!(
                component,
                lost_records,
                damaged_bytes,
                torn_bytes,
                unreadable,
                "part of the stored data is damaged"
            );
        }
    }
}

/// The damage that a scan of a file found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Data that must have stood where damage is.
    pub(super) lost_records: u64,
    /// Bytes of damage between sound records, and of damage after them if its records are known to be lost.
    pub(super) damaged_bytes: u64,
    /// Bytes after the last sound record.
    pub(super) torn_bytes: u64,
}

impl Scan {
    /// Counts records lost after the last sound one. The file has this first number and this count of records; the
    /// `next` file goes on where it ended.
    pub(super) fn count_lost_end(&mut self, (first, count): (u64, u64), next: u64, settled: &[(u64, u64)]) {
        let from = first + count;
        // A run that ends before the first record of a file is written takes its number along.
        let is_just_begun = count == 0 && next == first + 1 && self.damaged_bytes == 0;
        let end = if is_just_begun {
            from
        } else {
            // The file may have been longer than it is.
            next.min(from + most_records(MAX_FILE_BYTES))
        };
        let lost = unsettled(from, end, settled);
        if lost > 0 {
            // The records had been written as a whole.
            self.damaged_bytes += std::mem::take(&mut self.torn_bytes);
        }
        self.lost_records += lost;
    }
}

/// Data of an earlier run's state that no snapshot covers.
#[derive(Debug)]
pub(super) struct Replay {
    /// The last number that the snapshot covers. `None`: there is no state.
    covered: Option<u64>,
    /// Numbers, and whole records.
    records: Vec<(u64, Bytes)>,
}

impl Replay {
    /// An empty replay.
    pub(super) fn after(covered: Option<u64>) -> Self {
        Self {
            covered,
            records: Vec::new(),
        }
    }

    /// Whether data of this number is part of it.
    pub(super) fn wants(&self, seq: u64) -> bool {
        self.covered.is_some_and(|covered| seq > covered)
    }

    /// Takes a whole record.
    pub(super) fn take(&mut self, seq: u64, record: Vec<u8>) {
        self.records.push((seq, record.into()));
    }

    /// Hands the data to the state, in its order.
    pub(super) fn give_to(mut self, state: &dyn State) {
        self.records.sort_unstable_by_key(|(seq, _)| *seq);
        for (_, record) in self.records {
            state.replay(record.get(RECORD_HEAD..).unwrap_or_default());
        }
    }
}

/// Locks a directory: one process may use it.
pub(super) fn lock(directory: &Path) -> io::Result<LockHolder> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = LockHolder::new(files::open_as(&mut options, &directory.join("lock"))?);
    if try_lock(&file)? {
        Ok(file)
    } else {
        Err(io::Error::other("another process uses it"))
    }
}

/// The segments of a directory, oldest first.
pub(super) fn recover(directory: &Path, replay: &mut Replay) -> io::Result<(VecDeque<Segment>, Recovered)> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => paths.push(path),
            Some(segment_pool::EXTENSION) => segment_pool::delete(&path),
            _ => {}
        }
    }
    // Names are numbers of equal length. From the newest: notes concern the same file or older ones.
    paths.sort_unstable();
    let (mut segments, mut recovered, mut settled) = (VecDeque::new(), Recovered::default(), Vec::new());
    // The first number, by its name, of the last file that can't be read: an older file ends before it.
    let mut unreadable = None::<u64>;
    for path in paths.into_iter().rev() {
        let next = segments.front().map(|next: &Segment| next.first);
        let end = next.into_iter().chain(unreadable).min();
        let (segment, scan) = match Segment::recover(path.clone(), end, &mut settled, replay) {
            // A copy of another, say: its numbers are taken.
            Ok(Some((segment, _))) if next.is_some_and(|next| next <= segment.last()) => {
                recovered.damaged_bytes += put_aside(&path);
                continue;
            }
            Ok(Some(found)) => found,
            Ok(None) => {
                recovered.lost_records += lost_in(&path, end, &settled);
                recovered.damaged_bytes += put_aside(&path);
                unreadable = Segment::named(&path).or(unreadable);
                continue;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a stored segment can't be read");
                recovered.unreadable += 1;
                unreadable = Segment::named(&path).or(unreadable);
                continue;
            }
        };
        recovered.records += segment.open;
        (recovered.items.iter_mut().zip(segment.unread)).for_each(|(sum, items)| *sum += items);
        recovered.lost_records += scan.lost_records;
        recovered.damaged_bytes += scan.damaged_bytes;
        recovered.torn_bytes += scan.torn_bytes;
        segments.push_front(segment);
    }
    Ok((segments, recovered))
}

/// The number of records that an unreadable file must have had. They are the numbers from its name to the next file,
/// less those that newer files call settled. For the newest file it is unknown, and 0.
fn lost_in(path: &Path, next: Option<u64>, settled: &[(u64, u64)]) -> u64 {
    let (Some(first), Some(next)) = (Segment::named(path), next) else {
        return 0;
    };
    // A name can be anything, and a record takes some bytes.
    let most = std::fs::metadata(path).map_or(0, |file| most_records(file.len()));
    unsettled(first, next.min(first.saturating_add(most)), settled)
}

/// The number of values from `from` up to, but not including, `to` that are in none of these ranges.
fn unsettled(from: u64, to: u64, settled: &[(u64, u64)]) -> u64 {
    let within = |(first, last): &(u64, u64)| (*first.max(&from), last.saturating_add(1).min(to));
    let mut ranges: Vec<_> = settled
        .iter()
        .map(within)
        .filter(|(first, end)| first < end)
        .collect();
    ranges.sort_unstable();
    let (mut at, mut count) = (from, 0);
    for (first, end) in ranges {
        count += first.saturating_sub(at);
        at = at.max(end);
    }
    count + to.saturating_sub(at)
}

/// A file whose head is damaged is kept for people, out of the way of a new one of the same name. Gives its length.
fn put_aside(path: &Path) -> u64 {
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    // An empty file was being made when the process ended.
    let _ = match length {
        0 => std::fs::remove_file(path),
        _ => std::fs::rename(path, path.with_extension("damaged")),
    };
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_while_a_copy_of_the_descriptor_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        // As in a child that has not executed its program yet.
        let _copy = first.try_clone().unwrap();
        assert!(lock(directory.path()).is_err());
        drop(first);
        lock(directory.path()).unwrap();
    }

    #[test]
    fn numbers_in_no_range_are_counted_once() {
        let ranges = [(7, 8), (1, 2), (2, 4), (8, 8), (30, u64::MAX)];
        // 5, 6, 9 to 29.
        assert_eq!(unsettled(2, 100, &ranges), 23);
        assert_eq!(unsettled(10, 12, &ranges), 2);
        assert_eq!(unsettled(12, 10, &ranges), 0);
        assert_eq!(unsettled(3, 5, &ranges), 0);
    }
}
