// SPDX-License-Identifier: Apache-2.0

//! A destination on tokio, with an attempt that answers as the test says.

mod leader;
mod retries;
mod storage;
mod temporality;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::machine::Load;
use super::testing::{balance_when, exporter_context, ledgers, opaque};
use super::*;
use crate::batch::{Batch, Encoded, Signal};
use crate::component::{Consumer, ExporterContext, FanOut, Flow, Lifecycle, Reason};

type Answer = fn(usize) -> Outcome;

/// Answers the n-th attempt by `answer(n)`, each after a permit.
struct Script {
    answer: Answer,
    asked: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

#[async_trait]
impl Attempt for Script {
    fn endpoint(&self) -> String {
        "http://peer:4318".to_owned()
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        assert!(export.items() > 0);
        let n = self.asked.fetch_add(1, SeqCst);
        self.permits.acquire().await.expect("never closed").forget();
        (self.answer)(n)
    }
}

struct Setup {
    destination: Destination<Script>,
    cx: ExporterContext,
    asked: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

fn delivery() -> Delivery {
    let retry = RetryConfig {
        initial_interval: Duration::from_millis(5),
        ..RetryConfig::default()
    };
    Delivery::plain(QueueConfig::default(), retry)
}

fn setup(delivery: &Delivery, answer: Answer) -> Setup {
    let cx = exporter_context("exporters::script");
    let (asked, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let script = Script {
        answer,
        asked: asked.clone(),
        permits: permits.clone(),
    };
    let again = ExporterContext {
        replaced: Vec::new(),
        base: cx.base.clone(),
        ledgers: cx.ledgers.clone(),
    };
    Setup {
        destination: Destination::new(again, delivery, script),
        cx,
        asked,
        permits,
    }
}

impl Setup {
    fn push(&self, items: usize) -> Result<(), crate::component::Refused> {
        let batch = opaque(Signal::Metrics, b"0123456789", items);
        let answer = self.destination.push(batch);
        if answer.is_ok() {
            ledgers(&self.cx)[0].enter(items);
        }
        answer.map(|_| ())
    }

    async fn stop(&self, within: Duration) {
        self.destination.stop(Instant::now() + within).await;
    }

    fn held_bytes(&self) -> usize {
        self.cx.base.shared.memory.reserved_bytes()
    }
}

#[tokio::test]
async fn what_is_pushed_is_delivered_and_its_room_and_memory_come_back() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    setup.push(3).unwrap();
    assert_eq!(setup.held_bytes(), 10);
    setup.permits.add_permits(1);
    let balance = balance_when(&ledgers(&setup.cx)[0], |b| b.left == 3).await;
    assert_eq!(balance.held(), 0);
    assert_eq!(setup.held_bytes(), 0);
    setup.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_full_queue_refuses_or_drops_as_configured() {
    let mut config = delivery();
    config.queue.queue_size = 2.try_into().unwrap();
    let refusing = setup(&config, |_| Outcome::Done);
    assert!(refusing.push(1).is_ok() && refusing.push(1).is_ok());
    let refused = refusing.push(1).unwrap_err();
    assert!(refused.retry_after.is_some(), "{refused}");

    config.queue.on_full = OnFull::Drop;
    let dropping = setup(&config, |_| Outcome::Done);
    (0..3).for_each(|_| dropping.push(1).unwrap());
    let balance = ledgers(&dropping.cx)[0].balance();
    assert_eq!(balance.dropped[Reason::QueueFull as usize], 1);
    assert_eq!(balance.held(), 2);
}

#[tokio::test]
async fn a_full_queue_counts_the_items_that_it_refuses() {
    for (block_on_overflow, is_waited_for, expected) in [(false, true, 7), (true, false, 7), (true, true, 0)]
    {
        let mut config = delivery();
        config.queue.queue_size = 1.try_into().unwrap();
        config.queue.block_on_overflow = block_on_overflow;
        let setup = setup(&config, |_| Outcome::Done);
        setup.destination.start().await.unwrap();
        setup.push(1).unwrap();
        for items in [3, 4] {
            let batch = opaque(Signal::Metrics, b"x", items);
            let mut flow = if is_waited_for {
                Flow::waited_for()
            } else {
                Flow::default()
            };
            assert!(setup.destination.admit(&batch, &mut flow).is_err());
        }
        let queues = setup.cx.base.shared.queues.list();
        let refused: u64 = queues.iter().map(|queue| queue.refused.load(SeqCst)).sum();
        assert_eq!(refused, expected, "{block_on_overflow} {is_waited_for}");
        setup.stop(Duration::from_millis(30)).await;
    }
}

#[tokio::test]
async fn a_batch_that_never_fits_is_refused_for_good() {
    let mut config = delivery();
    config.queue.max_bytes = tidegate_config::ByteSize(9);
    let setup = setup(&config, |_| Outcome::Done);
    let refused = setup.push(1).unwrap_err();
    assert_eq!((refused.retry_after, refused.is_too_large), (None, true));
    assert_eq!(setup.held_bytes(), 0);
}

#[tokio::test]
async fn an_admission_that_is_not_used_gives_its_room_back() {
    let mut config = delivery();
    config.queue.queue_size = 1.try_into().unwrap();
    let setup = setup(&config, |_| Outcome::Done);
    let batch = opaque(Signal::Metrics, b"x", 1);
    let mut flow = Flow::default();
    setup.destination.admit(&batch, &mut flow).unwrap();
    assert!(setup.push(1).is_err());
    drop(flow);
    assert!(setup.push(1).is_ok());
}

#[tokio::test]
async fn a_queue_switched_off_holds_no_more_than_its_consumers() {
    let mut config = delivery();
    config.queue.enabled = false;
    config.queue.num_consumers = 1.try_into().unwrap();
    let setup = setup(&config, |_| Outcome::Done);
    assert!(setup.push(1).is_ok());
    assert!(setup.push(1).is_err());
}

#[tokio::test]
async fn a_stop_waits_for_what_can_be_delivered() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    (0..50).for_each(|_| setup.push(2).unwrap());
    setup.permits.add_permits(50);
    setup.stop(Duration::from_secs(60)).await;
    assert_eq!(ledgers(&setup.cx)[0].balance().left, 100);
}

#[tokio::test]
async fn a_stop_ends_at_its_deadline_and_books_the_rest() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    (0..50).for_each(|_| setup.push(2).unwrap());
    let begin = Instant::now();
    setup.stop(Duration::from_millis(30)).await;
    assert!(begin.elapsed() < Duration::from_secs(30));
    let balance = ledgers(&setup.cx)[0].balance();
    assert_eq!(balance.dropped[Reason::Shutdown as usize], 100);
    assert_eq!(setup.held_bytes(), 0);
}

#[tokio::test]
async fn what_comes_after_the_stop_is_refused_or_booked() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    let batch = opaque(Signal::Metrics, b"x", 4);
    let mut flow = Flow::default();
    setup.destination.admit(&batch, &mut flow).unwrap();
    setup.stop(Duration::from_millis(1)).await;
    assert!(setup.push(1).is_err());
    setup.destination.consume(batch, &mut flow);
    let balance = ledgers(&setup.cx)[0].balance();
    assert_eq!(balance.dropped[Reason::Shutdown as usize], 4);
}

#[tokio::test]
async fn nothing_is_sent_of_an_empty_batch() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    let empty: Batch = opaque(Signal::Traces, b"", 0);
    setup.destination.push(empty).unwrap();
    setup.stop(Duration::from_secs(60)).await;
    assert_eq!(setup.asked.load(SeqCst), 0);
}

/// Keeps the bytes it is sent; with `hangs` it never answers.
struct Keep {
    got: Arc<Mutex<Vec<bytes::Bytes>>>,
    hangs: bool,
}

#[async_trait]
impl Attempt for Keep {
    async fn send(&self, export: ExportRequest) -> Outcome {
        let parts = export.encoded().parts;
        self.got.lock().extend(parts.into_iter().map(|part| part.bytes));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Outcome::Done
    }
}

#[tokio::test]
async fn each_destination_has_its_own_queue_and_the_payload_is_shared() {
    let got: [Arc<Mutex<Vec<bytes::Bytes>>>; 2] = Default::default();
    let mut delivery = delivery();
    delivery.queue.num_consumers = 1.try_into().unwrap();
    let destinations = [("exporters::hangs", true), ("exporters::serves", false)].map(|(name, hangs)| {
        let got = got[usize::from(!hangs)].clone();
        Arc::new(Destination::new(
            exporter_context(name),
            &delivery,
            Keep { got, hangs },
        ))
    });
    let targets = destinations.iter().map(|one| one.clone() as Arc<dyn Consumer>);
    let both = FanOut::to(None, targets.collect());
    for destination in &destinations {
        destination.start().await.unwrap();
    }
    for n in 0..100u8 {
        let payload = Encoded::one(Signal::Metrics, vec![n; 10].into(), 1);
        both.push(Batch::new(payload)).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while got[1].lock().len() < 100 || got[0].lock().is_empty() {
        assert!(Instant::now() < deadline, "one waits for the other");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (first, same) = (got[0].lock()[0].clone(), got[1].lock()[0].clone());
    assert_eq!(first.as_ptr(), same.as_ptr());
    assert_eq!(got[0].lock().len(), 1, "the others wait in its queue");
    for destination in &destinations {
        destination.stop(Instant::now()).await;
    }
}

/// The answer that a sender waits for after a push of a batch of 200 KiB.
fn send_much(setup: &Setup) -> impl Future<Output = ()> + use<> {
    let batch = opaque(Signal::Metrics, &[7; 200 << 10], 1);
    let mut flow = Flow::waited_for();
    setup.destination.admit(&batch, &mut flow).unwrap();
    ledgers(&setup.cx)[0].enter(1);
    setup.destination.consume(batch, &mut flow);
    async { assert!(flow.settled().await.is_ok()) }
}

#[tokio::test(start_paused = true)]
async fn a_large_sender_waits_briefly_behind_a_destination_that_keeps_up() {
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    let begun = tokio::time::Instant::now();
    send_much(&setup).await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "a single sender does not wait");
    let second = send_much(&setup);
    setup.permits.add_permits(2);
    second.await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "it was delivered");
    assert_eq!(ledgers(&setup.cx)[0].balance().left, 2, "before it was answered");

    tokio::join!(send_much(&setup), send_much(&setup), send_much(&setup));
    let waited = begun.elapsed();
    assert!(
        waited > Duration::ZERO && waited < Duration::from_millis(50),
        "briefly: {waited:?}"
    );
    send_much(&setup).await;
    assert_eq!(begun.elapsed(), waited, "the next one not at all");
    setup.permits.add_permits(4);
    setup.stop(Duration::from_secs(60)).await;
}
