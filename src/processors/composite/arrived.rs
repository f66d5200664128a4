// SPDX-License-Identifier: Apache-2.0

//! The names of the metrics that arrive while a composite has matched nothing: one of them was probably meant.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tidegate_engine::{Composite, Pattern};
use tidegate_exposition::unit;

use crate::batch::Payload;
use crate::config::nearest;

/// Most names. Further ones are never suggested.
const MAX_NAMES: usize = 1_000;

/// Slots for the hashes of names. There are always free ones, so each search ends soon.
const SLOTS: usize = 2 * MAX_NAMES;

/// Longer names are never suggested.
const MAX_NAME_BYTES: usize = 128;

/// Most composites without a match that get suggestions.
const MAX_UNMATCHED: usize = 10;

/// The names of metrics that have arrived. It keeps none once all composites have matched.
pub(super) struct ArrivedNames {
    /// Whether a composite may have matched nothing, and there is room for further names.
    is_wanted: AtomicBool,
    names: Mutex<BTreeSet<Arc<str>>>,
    /// The hashes of the names, so that a name which comes again takes no lock. A hash is in the first slot that was free,
    /// from its own slot on. 0: the slot is free.
    hashes: Box<[AtomicU64]>,
    hasher: RandomState,
    /// The last comparison: the number of names, and the positions of the composites.
    compared: Mutex<(usize, Vec<usize>)>,
}

impl ArrivedNames {
    pub(super) fn new() -> Self {
        Self {
            is_wanted: AtomicBool::new(true),
            names: Mutex::default(),
            hashes: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::default(),
            compared: Mutex::default(),
        }
    }

    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name).max(1)
    }

    /// The slot that has this hash, or else the slot for it.
    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        let (before, from) = self.hashes.split_at(hash as usize % SLOTS);
        let mut slots = from.iter().chain(before);
        slots.find(|slot| {
            let taken = slot.load(Relaxed);
            taken == 0 || taken == hash
        })
    }

    fn has(&self, hash: u64) -> bool {
        self.slot(hash).is_some_and(|slot| slot.load(Relaxed) == hash)
    }

    /// Notes the name of a metric.
    pub(super) fn note(&self, name: &str) {
        if !self.is_wanted.load(Relaxed) || name.len() > MAX_NAME_BYTES {
            return;
        }
        let hash = self.hash(name);
        if self.has(hash) {
            return;
        }
        let mut names = self.names.lock();
        if names.len() < MAX_NAMES && names.insert(name.into()) {
            // Under the lock: no two names take one slot.
            self.slot(hash)
                .into_iter()
                .for_each(|slot| slot.store(hash, Relaxed));
        }
        if names.len() >= MAX_NAMES {
            self.is_wanted.store(false, Relaxed);
        }
    }

    /// Notes the metrics of a batch. The visitor of encoded ones notes them one by one.
    pub(super) fn note_payload(&self, payload: &Payload) {
        match payload {
            Payload::Events(events) => self.note_all(events.schema.kinds.iter().map(|kind| &*kind.name)),
            Payload::Points(points) => {
                self.note_all(points.points.iter().map(|point| &*point.series.metric.name));
            }
            Payload::Encoded(_) => {}
        }
    }

    /// Notes the names of metrics. Equal ones often follow each other.
    fn note_all<'a>(&self, names: impl Iterator<Item = &'a str>) {
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        let mut last = None;
        for name in names {
            if last != Some(name) {
                self.note(name);
            }
            last = Some(name);
        }
    }

    /// Tells each composite that has matched nothing which name was probably meant. Call it about once a second.
    pub(super) fn suggest(&self, composites: &[Arc<Composite>]) {
        let is_unmatched = |(_, one): &(usize, &Arc<Composite>)| {
            one.declaration().expression.is_none() && !one.match_tracker().has_matched()
        };
        let unmatched = composites.iter().enumerate().filter(is_unmatched);
        let (unmatched, list): (Vec<usize>, Vec<_>) = unmatched.take(MAX_UNMATCHED).unzip();
        if list.is_empty() {
            self.is_wanted.store(false, Relaxed);
            *self.names.lock() = BTreeSet::new();
            return;
        }
        let names: Vec<Arc<str>> = self.names.lock().iter().cloned().collect();
        // After one has matched, another one may be among the first.
        let compared = (names.len(), unmatched);
        if std::mem::replace(&mut *self.compared.lock(), compared.clone()) == compared {
            return;
        }
        for composite in list {
            if let Pattern::Exact(metric) = &composite.declaration().metric {
                composite.match_tracker().suggest(meant(metric, &names));
            }
        }
    }
}

/// The name that was probably meant. `None`: none is near, or the metric is there and lacks the attributes.
///
/// The name on a page has the unit and the type behind the name in the program.
fn meant<'a>(metric: &str, names: &'a [Arc<str>]) -> Option<&'a str> {
    let all = || names.iter().map(|name| &**name);
    if all().any(|name| name == metric) {
        return None;
    }
    let is_stem =
        |name: &&str, stem: &str| unit::name_with_suffixes(name, "", None).is_some_and(|name| name == stem);
    let in_program = unit::stems(metric)
        .into_iter()
        .find_map(|stem| all().find(|name| is_stem(name, stem)));
    in_program.or_else(|| nearest(metric, all()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_of_the_page_means_the_name_in_the_program() {
        let names = [
            "http.server.request.duration",
            "infer_latency",
            "infer_requests",
            "infer_requests_tokens",
        ]
        .map(Arc::<str>::from);
        for (metric, expected) in [
            ("infer_latency_seconds", Some("infer_latency")),
            ("infer_latency_seconds_bucket", Some("infer_latency")),
            ("infer_requests_total", Some("infer_requests")),
            (
                "http_server_request_duration_seconds",
                Some("http.server.request.duration"),
            ),
            ("infer_latencies", Some("infer_latency")),
            ("infer_latency", None),
            ("queue", None),
        ] {
            assert_eq!(meant(metric, &names), expected, "{metric}");
        }
    }

    #[test]
    fn a_name_that_comes_again_is_found_without_the_lock() {
        let names = Arc::new(ArrivedNames::new());
        let all: Vec<String> = (0..2 * MAX_NAMES).map(|number| format!("m{number}")).collect();
        // One less than the limit: there is room for further names.
        let (noted, others) = all.split_at(MAX_NAMES - 1);
        names.note_all(noted.iter().map(String::as_str));
        let has = |name: &String| names.has(names.hash(name));
        assert!(noted.iter().all(has) && !others.iter().any(has));
        assert!(names.is_wanted.load(Relaxed));
        let held = names.names.lock();
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let (again, known) = (names.clone(), noted.to_vec());
        let thread = std::thread::spawn(move || {
            again.note_all(known.iter().map(String::as_str));
            done.send(()).unwrap();
        });
        let in_time = is_done.recv_timeout(Duration::from_secs(30));
        drop(held);
        thread.join().unwrap();
        assert!(in_time.is_ok(), "it waited for the lock");
    }

    #[test]
    fn names_are_kept_up_to_a_limit_and_while_a_composite_needs_them() {
        let names = ArrivedNames::new();
        names.note(&"x".repeat(MAX_NAME_BYTES + 1));
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| format!("m{number}")).collect();
        names.note_all(many.iter().map(String::as_str));
        assert_eq!(names.names.lock().len(), MAX_NAMES);
        assert!(
            !names.is_wanted.load(Relaxed),
            "no lock is taken for further ones"
        );
        names.suggest(&[]);
        names.note("late");
        assert!(names.names.lock().is_empty());
    }
}
