// SPDX-License-Identifier: Apache-2.0

//! The pages that reads have given, by run: a purge has to name each subject.

use std::collections::{BTreeMap, HashMap};

use tidegate_cluster::{RunName, Subject};

/// The bytes of an entry.
const ENTRY_BYTES: usize = 32;

/// The bytes of a run besides its name.
const RUN_BYTES: usize = 128;

/// A page of a run: its partition and its number.
type PagePlace = (u16, u32);

/// The known pages and their sequences.
#[derive(Debug)]
pub(crate) struct PageIndex {
    max_bytes: usize,
    bytes: usize,
    runs: HashMap<RunName, BTreeMap<PagePlace, u64>>,
}

impl PageIndex {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: 0,
            runs: HashMap::new(),
        }
    }

    /// Notes a page. `false`: the index is full. A purge does not remove such a page.
    pub(crate) fn note(&mut self, subject: &Subject, sequence: u64) -> bool {
        let Subject::Page { partition, run, page } = subject else {
            return true;
        };
        let place = (*partition, *page);
        if let Some(pages) = self.runs.get_mut(run)
            && let Some(known) = pages.get_mut(&place)
        {
            *known = sequence;
            return true;
        }
        let run_bytes = if self.runs.contains_key(run) {
            0
        } else {
            run_bytes(run)
        };
        if self.bytes + run_bytes + ENTRY_BYTES > self.max_bytes {
            return false;
        }
        self.bytes += run_bytes + ENTRY_BYTES;
        self.runs.entry(run.clone()).or_default().insert(place, sequence);
        true
    }

    /// Forgets a page that is gone, if it has no higher sequence than this.
    pub(crate) fn forget(&mut self, subject: &Subject, through: u64) {
        let Subject::Page { partition, run, page } = subject else {
            return;
        };
        let Some(pages) = self.runs.get_mut(run) else {
            return;
        };
        let place = (*partition, *page);
        if pages.get(&place).is_some_and(|sequence| *sequence <= through) {
            pages.remove(&place);
            self.bytes -= ENTRY_BYTES;
        }
        if pages.is_empty() {
            self.runs.remove(run);
            self.bytes -= run_bytes(run);
        }
    }

    /// The pages of a run up to a sequence.
    pub(crate) fn pages(&self, run: &RunName, through: u64) -> Vec<Subject> {
        let pages = self.runs.get(run).into_iter().flatten();
        let pages = pages.filter(|(_, sequence)| **sequence <= through);
        pages
            .map(|((partition, page), _)| Subject::Page {
                partition: *partition,
                run: run.clone(),
                page: *page,
            })
            .collect()
    }
}

fn run_bytes(run: &RunName) -> usize {
    RUN_BYTES + run.producer.as_str().len()
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::ProducerName;

    use super::*;

    fn page(page: u32) -> Subject {
        Subject::Page {
            partition: 0,
            run: run(),
            page,
        }
    }

    fn run() -> RunName {
        RunName {
            producer: ProducerName::new("p").unwrap(),
            epoch: 1,
        }
    }

    #[test]
    fn a_purge_names_the_pages_up_to_a_sequence() {
        let mut index = PageIndex::new(1_000);
        for (number, sequence) in [(0, 5), (1, 6), (2, 7), (1, 8)] {
            assert!(index.note(&page(number), sequence));
        }
        assert_eq!(index.pages(&run(), 7), [page(0), page(2)]);
        index.forget(&page(1), 7);
        for number in [0, 2] {
            index.forget(&page(number), 7);
        }
        assert_eq!(index.pages(&run(), u64::MAX), [page(1)]);
        index.forget(&page(1), 8);
        assert_eq!((index.bytes, index.runs.len()), (0, 0));
    }

    #[test]
    fn a_full_index_takes_known_pages_only() {
        let mut index = PageIndex::new(RUN_BYTES + 1 + ENTRY_BYTES);
        assert!(index.note(&page(0), 1));
        assert!(!index.note(&page(1), 2));
        assert!(index.note(&page(0), 3));
        assert_eq!(index.pages(&run(), 3), [page(0)]);
    }
}
