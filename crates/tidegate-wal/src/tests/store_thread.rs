// SPDX-License-Identifier: Apache-2.0

//! A store, and the answers of its thread.

use super::*;
use crate::store::ReserveError;

fn store(directory: &TempDir, fsync: Fsync, quota: u64) -> (Store, Recovered, Arc<Notify>) {
    let notify = Arc::new(Notify::new());
    let rules = Rules {
        fsync,
        segment_bytes: 1000,
    };
    let quota = Quota::new(quota);
    let opened = Store::open(
        "exporters::x".into(),
        directory.path(),
        &rules,
        quota,
        notify.clone(),
        None,
    );
    let (store, recovered) = opened.unwrap();
    (store, recovered, notify)
}

fn data(text: &str, claimed: bool) -> (Append, oneshot::Receiver<Result<(), NotKept>>) {
    let (done, kept) = oneshot::channel();
    let append = Append {
        tag: 0,
        items: text.len(),
        payload: smallvec![Bytes::copy_from_slice(text.as_bytes())],
        purpose: purpose(claimed),
        done: Some(Done(Box::new(|result| done.send(result).unwrap()))),
        share: None,
    };
    (append, kept)
}

#[tokio::test]
async fn an_append_answers_after_the_write_and_a_new_run_reads_open_records() {
    let directory = tempfile::tempdir().unwrap();
    let (store, recovered, _) = store(&directory, Fsync::Always, u64::MAX);
    assert_eq!(recovered, Recovered::default());
    let mut waiting = Vec::new();
    for n in 0..100 {
        let (append, kept) = data(&format!("data {n}"), true);
        assert_eq!(store.append(append), n + 1);
        waiting.push(kept);
    }
    for kept in waiting {
        kept.await.unwrap().unwrap();
    }
    assert_eq!(store.backlog(), 0, "all of it is in memory");
    (1..=99).for_each(|seq| store.release(seq));
    drop(store);

    let (store, recovered, notify) = self::store(&directory, Fsync::Never, u64::MAX);
    assert_eq!((recovered.records, recovered.items), (1, [7, 0, 0]));
    assert_eq!(store.backlog(), 7);
    store.ask(None);
    notify.notified().await;
    let completions = store.collect();
    let texts: Vec<_> = completions
        .read
        .stored
        .iter()
        .map(|stored| &*stored.payload)
        .collect();
    assert_eq!(texts, [b"data 99"]);
    assert_eq!(store.backlog(), 7, "it is on its way still");
    store.taken(completions.items);
    assert_eq!(store.backlog(), 0);
}

#[tokio::test]
async fn an_answer_that_nobody_has_collected_yet_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _, notify) = store(&directory, Fsync::Never, u64::MAX);
    let append = async |text: &str| {
        let (append, kept) = data(text, false);
        store.append(append);
        kept.await.unwrap().unwrap();
    };
    append("first").await;
    store.ask(None);
    notify.notified().await;
    append("second").await;
    store.ask(None);
    // By the time the last of these is written, whatever was asked for before it has been done.
    append("third").await;
    append("fourth").await;
    let mut texts = Vec::new();
    let everything = async {
        while texts.len() < 4 {
            let read = store.collect().read.stored;
            texts.extend(
                read.iter()
                    .map(|stored| String::from_utf8_lossy(&stored.payload).into_owned()),
            );
            store.ask(None);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), everything).await;
    assert!(in_time.is_ok(), "only {texts:?}");
    assert_eq!(texts, ["first", "second", "third", "fourth"]);
}

#[tokio::test]
async fn a_long_record_without_room_stays_on_disk_and_is_not_asked_for_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _, notify) = store(&directory, Fsync::Never, u64::MAX);
    let (append, kept) = data(&"x".repeat(READ_BYTES + 1), false);
    store.append(append);
    kept.await.unwrap().unwrap();
    let account = Arc::new(Account::default());
    account.add_limit(Limit::of(1));
    account.note(2);
    let room = |goes_on| Some(ReadRoom::new(Held::ours(account.clone()), goes_on));
    store.ask(room(false));
    notify.notified().await;
    assert!(store.collect().read.stored.is_empty());
    assert!(!store.can_ask());
    while !store.can_ask() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.ask(room(true));
    notify.notified().await;
    let completions = store.collect();
    assert_eq!(completions.read.stored.len(), 1);
    assert!(account.reserved_bytes() > READ_BYTES);
    drop(completions);
    assert_eq!(account.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_full_quota_has_no_room_until_segments_go() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ..) = store(&directory, Fsync::Never, 3000);
    let text = "x".repeat(900);
    let mut seqs = Vec::new();
    while let Some(share) = store.reserve(1000).unwrap() {
        let (append, kept) = data(&text, false);
        seqs.push(store.append(Append {
            share: Some(share),
            ..append
        }));
        kept.await.unwrap().unwrap();
    }
    assert!((2..=3).contains(&seqs.len()), "{seqs:?}");
    assert!(store.reserve(4000).is_err(), "it never fits");
    seqs.into_iter().for_each(|seq| store.release(seq));
    while store.reserve(1000).unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_disk_that_fails_says_so_gives_the_data_back_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _, notify) = store(&directory, Fsync::Always, u64::MAX);
    // Even root can't make a file in a directory that is gone.
    let aside = directory.path().with_extension("aside");
    std::fs::rename(directory.path(), &aside).unwrap();
    let (append, kept) = data("nobody has it", false);
    store.append(append);
    let why = kept.await.unwrap().unwrap_err().to_string();
    assert!(why.contains("No such file"), "{why}");
    notify.notified().await;
    let completions = store.collect();
    assert_eq!(completions.failed.len(), 1);
    assert_eq!(&*completions.failed[0].payload[0], b"nobody has it");
    store.taken(completions.items);
    assert_eq!(store.backlog(), 0);
    assert!(
        store.reserve(10).unwrap().is_none(),
        "not before a while has passed"
    );
    std::fs::rename(&aside, directory.path()).unwrap();
    while store.reserve(10).unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (append, kept) = data("kept", false);
    store.append(append);
    kept.await.unwrap().unwrap();
    assert_eq!(store.backlog(), 4);
}

#[tokio::test]
async fn a_closed_log_refuses_data_and_gives_back_what_no_one_else_has() {
    let directory = tempfile::tempdir().unwrap();
    let (quota, notify) = (Quota::new(1 << 20), Arc::new(Notify::new()));
    let opened = Store::open(
        "exporters::x".into(),
        directory.path(),
        &rules(1000),
        quota.clone(),
        notify.clone(),
        None,
    );
    let (store, _) = opened.unwrap();
    let share = store.reserve(2000).unwrap();
    assert!(share.is_some());
    store.close();
    let reserved = quota.used();
    let (claimed, answer) = data("in memory", true);
    store.append(Append { share, ..claimed });
    assert_eq!(answer.await, Ok(Err(NotKept::Closed)));
    assert_eq!(quota.used(), reserved - 2000, "its space is free again");
    assert!(store.collect().failed.is_empty());

    let (unread, answer) = data("nobody has it", false);
    store.append(unread);
    assert_eq!(answer.await, Ok(Err(NotKept::Closed)));
    notify.notified().await;
    let completions = store.collect();
    assert_eq!(completions.failed.len(), 1);
    store.taken(completions.items);
    assert_eq!(store.backlog(), 0);
    drop(store);
    let (_, recovered, _) = self::store(&directory, Fsync::Never, u64::MAX);
    assert_eq!(recovered.records, 0);
}

/// Data whose callback says that it has begun, waits for `go`, and then ends the thread if `go` says so.
fn held() -> (Append, oneshot::Receiver<()>, std::sync::mpsc::SyncSender<bool>) {
    let (begun, begins) = oneshot::channel();
    let (go, goes) = std::sync::mpsc::sync_channel(1);
    let append = Append {
        done: Some(Done(Box::new(move |_| {
            begun.send(()).unwrap();
            assert!(goes.recv() == Ok(false), "broken by the test");
        }))),
        ..data("held", true).0
    };
    (append, begins, go)
}

#[tokio::test]
async fn a_panic_of_the_thread_is_the_answer_for_all_who_wait_or_come() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _, notify) = store(&directory, Fsync::Never, u64::MAX);
    let (ended, reason) = oneshot::channel();
    store.on_end(move |why| ended.send(why.to_string()).unwrap());
    let (breaking, begins, go) = held();
    store.append(breaking);
    begins.await.unwrap();
    let (claimed, of_claimed) = data("in memory", true);
    store.append(claimed);
    let (unread, of_unread) = data("nobody has it", false);
    store.append(unread);
    go.send(true).unwrap();
    let answers = async { [of_claimed.await, of_unread.await] };
    let in_time = tokio::time::timeout(Duration::from_secs(60), answers).await;
    let why = NotKept::Ended("broken by the test".into());
    assert_eq!(in_time, Ok([Ok(Err(why.clone())), Ok(Err(why.clone()))]));
    assert_eq!(reason.await.unwrap(), why.to_string());
    notify.notified().await;
    let completions = store.collect();
    assert_eq!(completions.failed.len(), 1);
    assert_eq!(&*completions.failed[0].payload[0], b"nobody has it");
    store.taken(completions.items);
    assert_eq!(store.backlog(), 0);

    assert_eq!(store.reserve(10).unwrap_err(), ReserveError::Ended(why.clone()));
    assert!(!store.can_ask(), "nothing would be read");
    let (late, answer) = data("late", true);
    store.append(late);
    assert_eq!(answer.await, Ok(Err(why.clone())));
    let (ended, reason) = oneshot::channel();
    store.on_end(move |why| ended.send(why.clone()).unwrap());
    assert_eq!(reason.await, Ok(why), "a late caller learns it too");
    store.close();
    let (late, answer) = data("late", true);
    store.append(late);
    assert_eq!(answer.await, Ok(Err(NotKept::Closed)));
}

#[tokio::test]
async fn data_that_is_written_before_a_panic_of_the_thread_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ..) = self::store(&directory, Fsync::Never, u64::MAX);
    let (first, begins, go) = held();
    store.append(first);
    begins.await.unwrap();
    // One write takes both of these.
    let (breaking, _begins, breaks) = held();
    store.append(breaking);
    let (unread, answer) = data("on disk", false);
    store.append(unread);
    go.send(false).unwrap();
    breaks.send(true).unwrap();
    assert_eq!(answer.await, Ok(Ok(())));
    assert!(store.collect().failed.is_empty(), "it would be there twice");
    drop(store);
    let (_, recovered, _) = self::store(&directory, Fsync::Never, u64::MAX);
    assert_eq!(recovered.records, 3);
}
