//! What a former run left in a directory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::segment::{Segment, TAGS};
use super::{record, spare};
use crate::component::files;

/// What a former run left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Items that are not settled, by tag.
    pub items: [u64; TAGS],
    /// Records that are not settled.
    pub records: u64,
    /// Records that stood where files are damaged now.
    pub lost_records: u64,
    /// Bytes of damage between sound records.
    pub damaged_bytes: u64,
    /// Bytes of records that were being written when the process ended: nobody had been told that they were kept.
    pub torn_bytes: u64,
    /// Files that could not be read, or are no files of ours. They stay.
    pub unreadable: u64,
}

impl Recovered {
    /// Counts and tells what is damaged of what the component had stored.
    pub fn tell_damage(&self, component: &str) {
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
                "what was stored is damaged in part"
            );
        }
    }
}

/// One process a directory.
pub(super) fn lock(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = files::open_as(&mut options, &directory.join("lock"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::other("another process uses it")),
        Err(error) => Err(error.into()),
    }
}

/// The segments of a directory, oldest first.
pub(super) fn recover(
    directory: &Path,
    each: &mut dyn FnMut(u64, &[u8]),
) -> io::Result<(VecDeque<Segment>, Recovered)> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => paths.push(path),
            Some(spare::EXTENSION) => spare::delete(&path),
            _ => {}
        }
    }
    // Names are numbers of equal length. From the newest: notes concern the same file or older ones.
    paths.sort_unstable();
    let (mut segments, mut recovered, mut settled) = (VecDeque::new(), Recovered::default(), Vec::new());
    for path in paths.into_iter().rev() {
        let (segment, scan) = match Segment::recover(path.clone(), &mut settled, each) {
            // A copy of another, say: its numbers are taken.
            Ok(Some((segment, _)))
                if segments
                    .front()
                    .is_some_and(|next: &Segment| next.first <= segment.last()) =>
            {
                recovered.damaged_bytes += put_aside(&path);
                continue;
            }
            Ok(Some(found)) => found,
            Ok(None) => {
                recovered.lost_records += lost_in(&path, segments.front(), &settled);
                recovered.damaged_bytes += put_aside(&path);
                continue;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a stored segment can't be read");
                recovered.unreadable += 1;
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

/// How many records a file of which nothing can be read must have had: the numbers from its name to the next file that
/// newer files do not call settled. Of the newest file nobody knows.
fn lost_in(path: &Path, next: Option<&Segment>, settled: &[(u64, u64)]) -> u64 {
    let is_empty = std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
    let (Some(first), Some(next), false) = (Segment::named(path), next, is_empty) else {
        return 0;
    };
    let is_settled = |seq: &u64| settled.iter().any(|(from, to)| (*from..=*to).contains(seq));
    // A name can be anything, and a record takes some bytes.
    let most = std::fs::metadata(path).map_or(0, |file| file.len() / record::RECORD_HEAD as u64);
    let last = next.first.min(first.saturating_add(most));
    (first..last).filter(|seq| !is_settled(seq)).count() as u64
}

/// A file whose head is damaged is kept for people, out of the way of a new one of the same name. Gives its length.
fn put_aside(path: &Path) -> u64 {
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    // An empty file is one that was being made when the process ended.
    let _ = match length {
        0 => std::fs::remove_file(path),
        _ => std::fs::rename(path, path.with_extension("damaged")),
    };
    length
}
