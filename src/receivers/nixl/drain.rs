// SPDX-License-Identifier: Apache-2.0

//! The loop over all rings of a receiver.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ring::Batch as Columns;

use super::config::NixlConfig;
use super::kinds::Selection;
use super::left::LeftSources;
use super::metrics::Names;
use super::ring::{self, DrainContext, PollOutcome, Ring};
use crate::component::worker::Pause;
use crate::component::{Context, Entry, Shared};
use crate::receivers::kept::{self, Kept};
use crate::receivers::left::{self, Left};
use crate::receivers::printable::{printable, printable_path};
use crate::receivers::watch::{FileNames, Watch};

/// The pause before another attempt at a file that could not be opened, after its report.
const REJECT_REST: Duration = Duration::from_secs(1);
/// A file that could not be opened is not reported before it has had this long to become a ring.
const REJECT_PATIENCE: Duration = Duration::from_millis(200);

/// All rings of a receiver.
pub(super) struct Drain {
    shared: Arc<Shared>,
    /// The path of the receiver in the configuration.
    path: Arc<str>,
    context: DrainContext,
    consume: bool,
    poll_interval: Duration,
    watch: Watch,
    rings: BTreeMap<PathBuf, Ring>,
    /// Where the sources of the rings stay after the end.
    left: Arc<Left<LeftSources>>,
    refusals: BTreeMap<PathBuf, Refusal>,
    /// Room for both.
    kept: Kept,
    /// The buffers that a drain reads into. Their capacity is kept for the next ring.
    columns: Columns,
}

/// A file that could not be opened as a ring.
struct Refusal {
    since: Instant,
    retry: Instant,
    reported: Option<&'static str>,
}

impl Drain {
    pub(super) fn new(
        config: &NixlConfig,
        base: &Context,
        entry: Entry,
        left: Arc<Left<LeftSources>>,
    ) -> Self {
        let hostname: Arc<str> = match config.hostname.as_str() {
            "" => rustix::system::uname().nodename().to_string_lossy().into(),
            configured => configured.into(),
        };
        let files = FileNames::new(&config.include, &config.exclude);
        Self {
            context: DrainContext {
                receiver: base.id.clone(),
                entry,
                selection: Selection::new(config),
                hostname,
                names: Names::of(base),
                before: left::succeed(base, &left),
            },
            shared: base.shared.clone(),
            path: base.path.clone(),
            consume: config.consume,
            poll_interval: config.poll_interval,
            watch: Watch::new(config.directories.clone(), files, config.scan_interval),
            rings: BTreeMap::new(),
            left,
            refusals: BTreeMap::new(),
            kept: Kept::new(&base.shared.memory),
            columns: Columns::default(),
        }
    }

    /// Until the worker is stopped; every ring is drained a last time then, and leaves its source.
    pub(super) fn run(&mut self, pause: &Pause) {
        loop {
            let now = Instant::now();
            self.scan(now);
            self.poll(now, |ring, now| ring.due <= now);
            let next = self.rings.values().map(|ring| ring.due).min();
            let wait = next.map_or(self.poll_interval, |due| {
                due.saturating_duration_since(Instant::now())
            });
            if !pause.wait(wait.min(self.poll_interval)) {
                break;
            }
        }
        self.poll(Instant::now(), |_, _| true);
        // What it has reported no longer holds.
        self.shared.notices.set(&self.path, Vec::new());
        let rings = std::mem::take(&mut self.rings).into_iter();
        let sources = rings.map(|(path, ring)| (path, ring.into_left()));
        self.left.put(LeftSources::new(sources));
    }

    fn poll(&mut self, now: Instant, due: impl Fn(&Ring, Instant) -> bool) {
        let (columns, context) = (&mut self.columns, &self.context);
        self.rings
            .retain(|_, ring| !due(ring, now) || ring.poll(columns, context, now) == PollOutcome::Stays);
        self.kept.set_used(bytes(&self.rings, &self.refusals));
    }

    fn scan(&mut self, now: Instant) {
        let Some(files) = self.watch.scan(now) else { return };
        self.shared.notices.set(&self.path, self.watch.missing());
        self.refusals.retain(|path, _| files.contains(path));
        for path in files {
            let rests = self
                .refusals
                .get(&path)
                .is_some_and(|refusal| now < refusal.retry);
            if !rests && !self.rings.contains_key(&path) {
                self.open(path, now);
            }
        }
        // The other sources end with their receivers.
        self.context.before = Vec::new();
        let rings = metrics::gauge!("tidegate_nixl_rings", "receiver" => self.context.receiver.clone());
        rings.set(self.rings.len() as f64);
        let unread = self
            .refusals
            .values()
            .filter(|refusal| refusal.reported.is_some());
        metrics::gauge!("tidegate_nixl_unread_files", "receiver" => self.context.receiver.clone())
            .set(unread.count() as f64);
    }

    fn open(&mut self, path: PathBuf, now: Instant) {
        if !self.kept.take(ring::BYTES + kept::note(&path), now) {
            return self.refuse(&path, kept::MEMORY, &kept::no_room(&path), now);
        }
        match Ring::open(&path, self.consume, self.poll_interval, &self.context) {
            Ok(ring) => {
                let receiver = &*self.context.receiver;
                tracing::debug!(receiver, agent = ring.agent(), path = %printable_path(ring.path()), "draining");
                self.refusals.remove(&path);
                self.rings.insert(path, ring);
            }
            Err(error) => self.refuse(&path, error.reason(), &error, now),
        }
    }

    /// Reports a file once a reason, after it has had time to become a ring, and lets it rest.
    fn refuse(&mut self, path: &Path, reason: &'static str, error: &dyn Display, now: Instant) {
        let fresh = Refusal {
            since: now,
            retry: now,
            reported: None,
        };
        let refusal = self.refusals.entry(path.to_owned()).or_insert(fresh);
        if now < refusal.since + REJECT_PATIENCE {
            return;
        }
        refusal.retry = now + REJECT_REST;
        if refusal.reported == Some(reason) {
            return;
        }
        refusal.reported = Some(reason);
        tracing::warn!(receiver = &*self.context.receiver, error = %printable(&error.to_string()), "not drained");
        metrics::counter!(
            "tidegate_nixl_rejected_files_total",
            "receiver" => self.context.receiver.clone(),
            "reason" => reason,
        )
        .increment(1);
    }
}

/// The memory of all files, in bytes.
fn bytes(rings: &BTreeMap<PathBuf, Ring>, refusals: &BTreeMap<PathBuf, Refusal>) -> usize {
    let rings = rings.iter().map(|(path, ring)| kept::note(path) + ring.bytes());
    let refusals = refusals.keys().map(|path| kept::note(path));
    rings.chain(refusals).sum()
}

#[cfg(test)]
mod tests {
    use tidegate_ring::{Event, Layout, Writer};

    use super::*;
    use crate::batch::Signal;
    use crate::component::Limit;
    use crate::component::testing::{Sink, context, settings};
    use crate::telemetry::testing::recorder;

    fn drain(directory: &Path, sink: &Arc<Sink>) -> Drain {
        let yaml = format!("{{directories: [{}]}}", directory.display());
        let config = settings::<NixlConfig>(&yaml).get::<NixlConfig>();
        Drain::new(
            &config,
            &context("receivers", "nixl"),
            sink.entry(Signal::Metrics),
            Arc::default(),
        )
    }

    #[test]
    fn rings_without_room_wait_and_those_that_are_open_are_drained() {
        let (recorder, page) = recorder("[]");
        metrics::with_local_recorder(&recorder, || {
            let directory = tempfile::tempdir().unwrap();
            let sink = Sink::new();
            let mut drain = drain(directory.path(), &sink);
            let memory = drain.shared.memory.clone();
            let mut now = Instant::now();
            let mut look = |drain: &mut Drain| {
                now += Duration::from_secs(2);
                drain.scan(now);
                drain.poll(now, |_, _| true);
            };
            let path = |number: usize| directory.path().join(format!("rank_{number}"));
            let ring = |number| Writer::create(path(number), Layout::V4, 8).unwrap();
            let mut writers: Vec<_> = (0..3).map(ring).collect();
            look(&mut drain);
            let of_three = memory.reserved_bytes();
            assert!(of_three > 3 * ring::BYTES);
            // A fourth one has room, a fifth one has none: a quarter is added for what the allocator takes.
            memory.add_limit(Limit::of(2 * of_three));
            writers.extend((3..6).map(ring));
            look(&mut drain);
            assert_eq!(drain.rings.len(), 4);
            assert!(memory.reserved_bytes() > of_three);
            look(&mut drain);
            let refused = page.series("tidegate_nixl_rejected_files_total");
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].0.contains("reason=\"memory\"") && refused[0].1 == 2.0);
            let unread = || page.series("tidegate_nixl_unread_files")[0].1;
            assert!(unread() == 2.0);
            let event = Event {
                kind: 0,
                value: 1,
                timestamp_us: 1,
            };
            writers[0].push_all(&[event]);
            look(&mut drain);
            assert_eq!(sink.items(), 1);
            memory.remove_limit(Limit::of(2 * of_three));
            look(&mut drain);
            assert_eq!((drain.rings.len(), drain.refusals.len()), (6, 0));
            assert!(unread() == 0.0);
            drop(writers);
            (0..6).for_each(|number| std::fs::remove_file(path(number)).unwrap());
            (0..10).for_each(|_| look(&mut drain));
            assert_eq!((drain.rings.len(), memory.reserved_bytes()), (0, 0));
        });
    }
}
