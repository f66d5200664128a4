// SPDX-License-Identifier: Apache-2.0

//! A log that keeps what a state is made of.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Instant;

use parking_lot::Mutex;

use super::*;

/// A state that is the sum of all data so far.
#[derive(Default)]
struct Sum {
    total: Mutex<u64>,
    /// Whether it may not be saved.
    is_held: AtomicBool,
}

impl Sum {
    fn add(&self, payload: &[u8]) {
        *self.total.lock() += payload.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
}

impl State for Sum {
    fn joins(&self) -> Joins {
        Joins::BeforeAppend
    }

    fn restore(&self, snapshot: &[u8]) {
        *self.total.lock() = u64::from_le_bytes(snapshot.try_into().unwrap());
    }

    fn replay(&self, payload: &[u8]) {
        self.add(payload);
    }

    fn may_save(&self) -> bool {
        !self.is_held.load(SeqCst)
    }

    fn save(&self, between: &mut dyn FnMut()) -> Saving {
        let sum = self.total.lock();
        between();
        let saved = sum.to_le_bytes();
        Box::new(move |to| to.write_all(&saved))
    }
}

fn open_store(directory: &Path, quota: Arc<Quota>, state: Arc<dyn State>) -> (Store, Recovered) {
    let opened = Store::open(
        "test".into(),
        directory,
        &rules(1000),
        quota,
        Arc::default(),
        Some(state),
    );
    opened.unwrap()
}

/// Adds 100 bytes of this value, and waits until the log has them.
async fn add(store: &Store, sum: &Sum, byte: u8) {
    let share = loop {
        match store.reserve(200).unwrap() {
            Some(share) => break share,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let (done, kept) = oneshot::channel();
    {
        // As one step: a snapshot has both or neither.
        let mut total = sum.total.lock();
        *total += 100 * u64::from(byte);
        store.append(Append {
            tag: 0,
            items: 1,
            payload: smallvec![Bytes::from(vec![byte; 100])],
            purpose: Purpose::State,
            done: Some(Done(Box::new(|result| done.send(result).unwrap()))),
            share: Some(share),
        });
    }
    kept.await.unwrap().unwrap();
}

#[test]
fn what_comes_after_a_run_without_data_is_replayed_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = 0;
    for run in 0..4 {
        let sum = Arc::new(Sum::default());
        let opened = Log::open(directory.path(), &rules(1000), Quota::new(u64::MAX), Some(&*sum));
        let (mut log, _) = opened.unwrap();
        assert_eq!(*sum.total.lock(), expected, "run {run}");
        match run {
            0 | 3 => {
                let head = (log.next_seq(), 0, 1);
                log.append(head, Purpose::State, &[Bytes::from_static(&[7])])
                    .unwrap();
                log.flush().unwrap();
                expected += 7;
            }
            // Nothing comes, and all that was there is in the snapshot.
            _ => {}
        }
        if run == 0 {
            let saving: Saving = Box::new(move |to| to.write_all(&expected.to_le_bytes()));
            log.keep_snapshot(log.next_seq() - 1, saving).unwrap();
        }
    }
    let sum = Sum::default();
    Log::open(directory.path(), &rules(1000), Quota::new(u64::MAX), Some(&sum)).unwrap();
    assert_eq!(*sum.total.lock(), 14);
}

#[test]
fn records_of_a_killed_run_get_a_snapshot_before_the_first_append() {
    let directory = tempfile::tempdir().unwrap();
    let sum = Sum::default();
    let open = || {
        Log::open(directory.path(), &rules(1000), Quota::new(8000), Some(&sum))
            .unwrap()
            .0
    };
    let mut log = open();
    assert!(!log.wants_snapshot());
    let piece = Bytes::from_static(&[7; 1500]);
    log.append((1, 0, 1), Purpose::State, &[piece]).unwrap();
    log.flush().unwrap();
    drop(log);
    assert!(open().wants_snapshot());
}

#[tokio::test]
async fn records_of_a_state_replay_once_and_go_when_a_snapshot_covers_them() {
    let mut directory = tempfile::tempdir().unwrap();
    let mut expected = 0;
    for run in 0..5u64 {
        let sum = Arc::new(Sum::default());
        let quota = Quota::new(8000);
        let (store, recovered) = open_store(directory.path(), quota.clone(), sum.clone());
        assert_eq!(*sum.total.lock(), expected, "run {run}");
        assert_eq!(
            (recovered.records, store.backlog()),
            (0, 0),
            "nothing of it is to be read"
        );
        for n in 0..100 + run * 7 {
            add(&store, &sum, n as u8).await;
            expected += 100 * (n % 256);
        }
        // Every other run is killed: the next one finds the present state of the disk.
        let killed = (run % 2 == 0).then(|| copy(directory.path()));
        drop(store);
        if let Some(killed) = killed {
            directory = killed;
        }
        assert!(quota.used() <= 8000);
    }
}

#[tokio::test]
async fn the_log_of_a_state_that_may_not_be_saved_keeps_all_data() {
    let directory = tempfile::tempdir().unwrap();
    let open = |is_held| {
        let sum = Arc::new(Sum {
            is_held: AtomicBool::new(is_held),
            ..Sum::default()
        });
        let (store, _) = open_store(directory.path(), Quota::new(1 << 20), sum.clone());
        (store, sum)
    };
    let snapshot = directory.path().join("state");
    let (first, sum) = open(true);
    // More than a segment.
    for _ in 0..30 {
        add(&first, &sum, 1).await;
    }
    drop(first);
    assert!(!snapshot.exists());
    let (second, sum) = open(true);
    assert_eq!(*sum.total.lock(), 3000);
    add(&second, &sum, 1).await;
    assert!(!snapshot.exists());
    // No data comes, but the log asks again.
    sum.is_held.store(false, SeqCst);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !snapshot.exists() {
        assert!(Instant::now() < deadline, "no snapshot");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(second);
    assert_eq!(*open(true).1.total.lock(), 3100);
}

/// A state whose snapshots are made on demand.
struct Slow {
    begun: mpsc::SyncSender<()>,
    may_end: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl State for Slow {
    fn joins(&self) -> Joins {
        Joins::WhenKept
    }

    fn restore(&self, _: &[u8]) {}

    fn replay(&self, _: &[u8]) {}

    fn save(&self, _: &mut dyn FnMut()) -> Saving {
        let (begun, may_end) = (self.begun.clone(), self.may_end.clone());
        Box::new(move |_| {
            begun.send(()).unwrap();
            // No thread is left: at once.
            let _ = may_end.lock().recv();
            Ok(())
        })
    }
}

#[tokio::test]
async fn an_append_does_not_wait_for_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let ((begun, begins), (end, ends)) = (mpsc::sync_channel(16), mpsc::sync_channel(1));
    let slow = Arc::new(Slow {
        begun,
        may_end: Arc::new(Mutex::new(ends)),
    });
    let (store, _) = open_store(directory.path(), Quota::new(1 << 20), slow);
    let mut since = 0;
    for _ in 0..1000 {
        let (done, kept) = oneshot::channel();
        store.append(Append {
            tag: 0,
            items: 1,
            payload: smallvec![Bytes::from_static(&[7; 100])],
            purpose: Purpose::State,
            done: Some(Done(Box::new(|result| done.send(result).unwrap()))),
            share: store.reserve(200).unwrap(),
        });
        kept.await.unwrap().unwrap();
        since += usize::from(since > 0 || begins.try_recv().is_ok());
        if since == 100 {
            break;
        }
    }
    assert_eq!(
        since, 100,
        "a snapshot was begun, and everything was kept all the same"
    );
    assert!(begins.try_recv().is_err(), "one at a time");
    assert!(!directory.path().join("state").exists(), "it is still being made");
    drop(end);
    drop(store);
    assert!(directory.path().join("state").exists());
}
