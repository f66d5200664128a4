//! The sources of points: the resources that streams come from, and how many streams each has.

use std::sync::Arc;

use crate::key::{Key, KeyMap};
use crate::{Cadence, Resource, UnixNanos};

/// A source's place in the book.
pub(super) type SourceNumber = u32;

/// The sources of points of a table.
#[derive(Debug, Default)]
pub(super) struct Book {
    index: KeyMap<SourceNumber>,
    list: Vec<Option<Entry>>,
    free: Vec<SourceNumber>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    resource: Arc<Resource>,
    streams: usize,
    /// The earliest start of a stream; 0: none was said.
    began: UnixNanos,
    /// How often it reports to this table.
    cadence: Cadence,
}

impl Book {
    /// One more stream of a resource, which counts since `start` (0: not known). Gives its source, and how many streams that has now.
    pub(super) fn join(&mut self, resource: &Arc<Resource>, start: UnixNanos) -> (SourceNumber, usize) {
        let key = Key::of_value(resource);
        let (list, free) = (&mut self.list, &mut self.free);
        let number = *self.index.entry(key).or_insert_with(|| {
            let entry = Some(Entry {
                key,
                resource: resource.clone(),
                streams: 0,
                began: 0,
                cadence: Cadence::default(),
            });
            match free.pop() {
                Some(number) => {
                    list[number as usize] = entry;
                    number
                }
                None => {
                    list.push(entry);
                    list.len() as SourceNumber - 1
                }
            }
        });
        let streams = match self.list.get_mut(number as usize).and_then(Option::as_mut) {
            Some(entry) => {
                entry.streams += 1;
                if start > 0 && (entry.began == 0 || start < entry.began) {
                    entry.began = start;
                }
                entry.streams
            }
            None => 0,
        };
        (number, streams)
    }

    /// One stream less.
    pub(super) fn leave(&mut self, number: SourceNumber) {
        let Some(slot) = self.list.get_mut(number as usize) else {
            return;
        };
        let Some(entry) = slot else { return };
        entry.streams -= 1;
        if entry.streams == 0 {
            self.index.remove(&entry.key);
            self.free.push(number);
            *slot = None;
        }
    }

    /// How many streams a resource has.
    pub(super) fn streams(&self, resource: &Resource) -> usize {
        let number = self.index.get(&Key::of_value(resource));
        let entry = number.and_then(|number| self.list.get(*number as usize)?.as_ref());
        entry.map_or(0, |entry| entry.streams)
    }

    /// The earliest start of the streams of a resource; 0: none is known.
    pub(super) fn began(&self, resource: &Resource) -> UnixNanos {
        let number = self.index.get(&Key::of_value(resource));
        let entry = number.and_then(|number| self.list.get(*number as usize)?.as_ref());
        entry.map_or(0, |entry| entry.began)
    }

    /// A source was heard of.
    pub(super) fn hear(&mut self, number: SourceNumber, now: UnixNanos) {
        if let Some(entry) = self.list.get_mut(number as usize).and_then(Option::as_mut) {
            entry.cadence.note(now);
        }
    }

    /// The resource of a source, and how often it reports.
    pub(super) fn source(&self, number: SourceNumber) -> Option<(Arc<Resource>, Cadence)> {
        let entry = self.list.get(number as usize)?.as_ref()?;
        Some((entry.resource.clone(), entry.cadence))
    }
}
