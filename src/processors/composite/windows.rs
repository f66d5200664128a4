// SPDX-License-Identifier: Apache-2.0

//! `storage`: the windows on disk, so that they continue after a restart.
//!
//! Every second, the sub-windows with new values are appended to a log. The log's thread writes all windows as a snapshot
//! when the log has grown, and at the stop. A restart takes up what still lies in the windows.
//!
//! Other composites may drop windows that a snapshot has. A log that a reload opens therefore writes no snapshot until the
//! reload is over, as the log of `aggregate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::smallvec;
use tidegate_engine::{Composite, CompositeSet, SavedWindows, UnixNanos, clock};
use tidegate_wal::{Append, Done, Joins, Purpose, Saving, State};
use tracing::{info, warn};

use super::super::state_log::{OpenedIn, StateLog};
use crate::batch::Signal;
use crate::component::worker::in_background;
use crate::component::{ComponentError, Context, unix_now};

/// A value is added at most this long after its arrival, in nanoseconds (1 s).
const LATENESS_NS: u64 = 1_000_000_000;

/// The log of the windows of one processor.
pub(super) struct WindowLog {
    log: StateLog,
    state: Arc<WindowState>,
    /// Sub-windows that end before this are in the log (by our clock).
    saved_until: AtomicU64,
}

/// The windows that the log restores, replays into and snapshots.
struct WindowState {
    set: Arc<CompositeSet>,
    owner: Arc<str>,
    /// The number of this run: when it began, nanoseconds since 1970.
    run: u64,
    /// What earlier runs saved, until it is restored.
    found: Mutex<Option<SavedWindows>>,
    /// The number of restored groups.
    restored: AtomicUsize,
    /// Why the last record was not written.
    failure: Mutex<Option<String>>,
    opened_in: OpenedIn,
}

impl WindowLog {
    pub(super) fn new(storage: String, owner: Arc<str>, set: Arc<CompositeSet>) -> Self {
        let now = unix_now();
        let state = WindowState {
            found: Mutex::new(Some(SavedWindows::new(set.clone()))),
            restored: AtomicUsize::new(0),
            failure: Mutex::default(),
            opened_in: OpenedIn::default(),
            run: clock::wall(now),
            owner: owner.clone(),
            set,
        };
        Self {
            log: StateLog::new(storage, owner),
            state: Arc::new(state),
            saved_until: AtomicU64::new(now),
        }
    }

    /// Goes on with composites of a replaced instance, which have their windows already.
    pub(super) fn keeping(self, kept: Vec<Arc<Composite>>) -> Self {
        if kept.is_empty() {
            return self;
        }
        // The first record has all their values. 0 would include what is restored.
        self.saved_until.store(1, Relaxed);
        let mut found = self.state.found.lock();
        *found = found.take().map(|found| found.without(kept));
        drop(found);
        self
    }

    /// Restores the windows that previous runs left.
    pub(super) async fn open(&self, context: &Context) -> Result<(), ComponentError> {
        self.state.opened_in.note(context);
        self.log.open(context, self.state.clone()).await?;
        let state = self.state.clone();
        let restoring = tokio::task::spawn_blocking(move || state.restore_found());
        let groups = restoring
            .await
            .map_err(|error| context.error(error.to_string()))?;
        info!(
            component = &**self.log.owner(),
            groups, "the windows are restored"
        );
        Ok(())
    }

    /// Appends the sub-windows with new values. Gives the reason why they are not on disk.
    pub(super) fn save(&self, now: UnixNanos) -> Option<String> {
        let store = self.log.store()?;
        let failure = self.take_failure();
        let since = self.saved_until.load(Relaxed);
        let Some(bytes) = self.state.set.save(self.state.run, since, now) else {
            return failure;
        };
        let share = match self.log.reserve(bytes.len() as u64) {
            Ok(share) => share,
            Err(why) => return Some(why.to_string()),
        };
        let state = self.state.clone();
        store.append(Append {
            tag: Signal::Metrics as u8,
            items: 1,
            payload: smallvec![bytes.into()],
            purpose: Purpose::State,
            done: Some(Done(Box::new(move |kept| {
                if let Err(why) = kept {
                    *state.failure.lock() = Some(why.to_string());
                }
            }))),
            share: Some(share),
        });
        // A value may come a moment after its time.
        self.saved_until.store(now.saturating_sub(LATENESS_NS), Relaxed);
        failure
    }

    /// Gives the reason why the last record is not on disk. The next one then has its values too.
    fn take_failure(&self) -> Option<String> {
        let failure = self.state.failure.lock().take();
        if failure.is_some() {
            // 0 would include what is restored.
            self.saved_until.store(1, Relaxed);
        }
        failure
    }

    /// Writes a snapshot of all windows, or during a reload a last record, and closes the log. It goes on when the caller no
    /// longer waits: nobody else would close the log.
    pub(super) async fn close(self: &Arc<Self>) {
        let log = self.clone();
        // A panic is in the log.
        let _ = tokio::spawn(async move { log.save_and_close().await }).await;
    }

    async fn save_and_close(self: &Arc<Self>) {
        if self.state.opened_in.is_over() {
            return self.log.close().await;
        }
        let log = self.clone();
        let saving = in_background(move || {
            // The last record has the values of one that failed.
            log.take_failure();
            log.save(unix_now())
        });
        // A panic is in the log.
        let unsaved = saving.await.ok().flatten();
        self.log.close().await;
        if let Some(why) = unsaved.or_else(|| self.take_failure()) {
            let component = &**self.log.owner();
            warn!(component, "the last values of the windows are not saved: {why}");
        }
    }
}

impl WindowState {
    /// Restores what was found, once. Gives the number of restored groups. A second caller waits until that is done.
    fn restore_found(&self) -> usize {
        let mut found = self.found.lock();
        if let Some(found) = found.take() {
            self.restored.store(found.restore(unix_now()), Relaxed);
        }
        self.restored.load(Relaxed)
    }

    fn load(&self, saved: &[u8]) {
        let mut found = self.found.lock();
        let loaded = found.as_mut().map(|found| found.load(saved, unix_now()));
        if loaded == Some(None) {
            let component = &*self.owner;
            warn!(component, "saved windows have another version and are ignored");
        }
    }
}

impl State for WindowState {
    fn joins(&self) -> Joins {
        Joins::BeforeAppend
    }

    fn restore(&self, snapshot: &[u8]) {
        // A snapshot of empty windows has no bytes.
        if !snapshot.is_empty() {
            self.load(snapshot);
        }
    }

    fn replay(&self, payload: &[u8]) {
        self.load(payload);
    }

    fn may_save(&self) -> bool {
        self.opened_in.is_over()
    }

    fn save(&self, between: &mut dyn FnMut()) -> Saving {
        // The log may want a snapshot as soon as it is open.
        self.restore_found();
        // A record that is appended meanwhile has sub-windows that the snapshot has too: the later one counts.
        between();
        let bytes = self.set.save(self.run, 0, unix_now()).unwrap_or_default();
        Box::new(move |to| to.write_all(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use tempfile::TempDir;
    use tidegate_engine::{Added, Attributes, Distribution, FeedKind};
    use tokio::time::timeout;

    use super::super::config::CompositeProcessorConfig;
    use super::*;
    use crate::component::testing::{add_storage, context, settings, storage};

    fn set() -> Arc<CompositeSet> {
        set_of("x")
    }

    fn set_of(metric: &str) -> Arc<CompositeSet> {
        let yaml =
            format!("composites: [{{name: c, metric: {metric}, function: sum, window: 1m, by: [model]}}]");
        let config: Arc<CompositeProcessorConfig> = settings::<CompositeProcessorConfig>(&yaml).get();
        let declaration = config.composites[0].declaration(&Arc::default()).unwrap();
        Arc::new(CompositeSet::new(vec![Arc::new(Composite::new(declaration))]))
    }

    fn observe(set: &CompositeSet, value: f64, now: UnixNanos) {
        let composite = &set.list()[0];
        let feed = composite.feed("x", &Attributes::default(), FeedKind::Observations, now);
        let added = Added {
            count: 1.0,
            sum: value,
            min: value,
            max: value,
            last: value,
            distribution: Distribution::Last,
        };
        composite.add(&feed, now, &added);
    }

    /// A context with a storage.
    fn stored() -> (TempDir, Context) {
        let (directory, base) = (tempfile::tempdir().unwrap(), context("processors", "composite"));
        add_storage(&base.shared, storage(directory.path(), 1 << 20));
        (directory, base)
    }

    fn log_of(base: &Context, metric: &str) -> Arc<WindowLog> {
        let log = WindowLog::new("file_storage".to_owned(), base.path.clone(), set_of(metric));
        Arc::new(log)
    }

    /// The log of a composite of this metric, open.
    async fn opened(base: &Context, metric: &str) -> Arc<WindowLog> {
        let log = log_of(base, metric);
        log.open(base).await.unwrap();
        log
    }

    /// A run saves a window of `x` with the sum 7.
    async fn save_window(base: &Context) {
        let log = opened(base, "x").await;
        observe(&log.state.set, 7.0, unix_now());
        log.close().await;
    }

    fn sum(log: &WindowLog) -> f64 {
        log.state.set.list()[0].read(unix_now())[0].sum
    }

    /// A reload that fails starts an instance with other composites, and then one with the old ones.
    #[tokio::test]
    async fn a_reload_keeps_windows_that_changed_composites_drop_until_it_is_over() {
        let (_directory, base) = stored();
        save_window(&base).await;
        let reload = base.shared.reloads.begin();
        let second = opened(&base, "y").await;
        assert_eq!(sum(&second), 0.0, "of another metric");
        observe(&second.state.set, 1.0, unix_now());
        second.close().await;
        let again = opened(&base, "y").await;
        assert_eq!(sum(&again), 1.0, "of the last second before the stop");
        again.close().await;
        drop(reload);
        let third = opened(&base, "x").await;
        assert_eq!(sum(&third), 7.0);
        third.close().await;
    }

    #[tokio::test]
    async fn a_reload_that_succeeds_drops_windows_of_changed_composites() {
        let (_directory, base) = stored();
        save_window(&base).await;
        let reload = base.shared.reloads.begin();
        let second = opened(&base, "y").await;
        drop(reload);
        second.close().await;
        let third = opened(&base, "x").await;
        assert_eq!(sum(&third), 0.0);
        third.close().await;
    }

    #[tokio::test]
    async fn a_close_goes_on_when_nobody_waits_for_it() {
        let (_directory, base) = stored();
        let _reload = base.shared.reloads.begin();
        let first = opened(&base, "x").await;
        observe(&first.state.set, 7.0, unix_now());
        let mut close = Box::pin(first.close());
        let polled = poll_fn(|cx| Poll::Ready(close.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        drop(close);
        let opened = async {
            loop {
                let second = log_of(&base, "x");
                if second.open(&base).await.is_ok() {
                    break second;
                }
            }
        };
        let second = timeout(Duration::from_secs(30), opened).await.unwrap();
        assert_eq!(sum(&second), 7.0);
        second.close().await;
    }

    #[test]
    fn a_snapshot_at_the_start_has_what_earlier_runs_saved() {
        let (earlier, now) = (set(), unix_now());
        observe(&earlier, 7.0, now);
        let record = earlier.save(1, 0, now).unwrap();

        let log = WindowLog::new("file_storage".to_owned(), "composite".into(), set());
        log.state.replay(&record);
        let mut snapshot = Vec::new();
        State::save(&*log.state, &mut || ())(&mut snapshot).unwrap();
        let next = set();
        let mut saved = SavedWindows::new(next.clone());
        saved.load(&snapshot, unix_now()).unwrap();
        assert_eq!(saved.restore(unix_now()), 1);
        assert_eq!(next.list()[0].read(unix_now())[0].sum, 7.0);
    }

    #[test]
    fn bytes_of_another_version_and_empty_snapshots_restore_nothing() {
        let log = WindowLog::new("file_storage".to_owned(), "composite".into(), set());
        log.state.restore(&[]);
        log.state.replay(&[255]);
        assert_eq!(log.state.restore_found(), 0);
    }
}
