//! For tests of components: an end of the graph that keeps what it gets and refuses when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Consumer, Context, Entry, EntryCounts, Flow, ReceiverContext, Refused, Shared};
use crate::batch::{Batch, Payload, Signal};

/// Keeps every batch; refuses the next `refusals` pushes.
#[derive(Default)]
pub(crate) struct Sink {
    batches: Mutex<Vec<Batch>>,
    refusals: AtomicUsize,
}

impl Sink {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn refuse(&self, pushes: usize) {
        self.refusals.store(pushes, SeqCst);
    }

    /// Refusals that were asked for and have not happened yet.
    pub(crate) fn refusals_left(&self) -> usize {
        self.refusals.load(SeqCst)
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().clone()
    }

    pub(crate) fn items(&self) -> usize {
        self.batches().iter().map(Batch::items).sum()
    }

    /// (kind name, value) of every event so far.
    pub(crate) fn events(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for batch in self.batches() {
            let Payload::Events(events) = &batch.payload else {
                continue;
            };
            for (at, kind) in events.kinds.iter().enumerate() {
                let name = events.schema.kinds[usize::from(*kind)].name.to_string();
                all.push((name, events.values.get(at).unwrap()));
            }
        }
        all
    }

    /// An entry that leads here.
    pub(crate) fn entry(self: &Arc<Self>, signal: Signal) -> Entry {
        Entry::new(signal, self.clone(), Arc::<EntryCounts>::default())
    }

    /// A receiver's context whose signals all lead here.
    pub(crate) fn receiver_context(self: &Arc<Self>, id: &str) -> ReceiverContext {
        ReceiverContext {
            base: context("receivers", id),
            entries: Signal::ALL.map(|signal| Some(self.entry(signal))),
        }
    }
}

impl Consumer for Sink {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        let refused = self
            .refusals
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match refused {
            Ok(_) => Err(Refused::busy("told to refuse", Duration::from_millis(1))),
            Err(_) => Ok(()),
        }
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        self.batches.lock().push(batch);
    }
}

/// A component's context outside of any graph.
pub(crate) fn context(section: &str, id: &str) -> Context {
    Context {
        path: format!("{section}::{id}").into(),
        id: id.into(),
        shared: Arc::new(Shared::default()),
    }
}

/// Options of type `C` from YAML, or the problems found.
pub(crate) fn options<C: crate::config::Decode>(yaml: &str) -> Result<C, String> {
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("test.yaml", yaml, &mut problems);
    let options = node.and_then(|node| C::decode(&node, &mut problems));
    options
        .filter(|_| !problems.has_errors())
        .ok_or_else(|| problems.to_string())
}

/// Options of type `C` from YAML; panics with the problems found.
pub(crate) fn settings<C: crate::config::Decode + Send + Sync + 'static>(yaml: &str) -> super::Settings {
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("test.yaml", yaml, &mut problems);
    let settings = node.and_then(|node| (super::ConfigType::of::<C>().decode)(&node, &mut problems));
    settings
        .filter(|_| !problems.has_errors())
        .unwrap_or_else(|| panic!("{problems}"))
}

/// Waits until `done`, for ten seconds at most.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
