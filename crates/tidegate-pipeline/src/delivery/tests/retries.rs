// SPDX-License-Identifier: Apache-2.0

//! Attempts that fail, panic or time out, and what the log says of them.

use tracing::subscriber::DefaultGuard;

use super::super::testing::Log;
use super::*;

/// A started destination that holds three items, and what this thread logs until the guard is dropped.
async fn logged_with_three_items() -> (Setup, Log, DefaultGuard) {
    let (log, guard) = Log::capture();
    let setup = setup(&delivery(), |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    setup.push(3).unwrap();
    (setup, log, guard)
}

#[tokio::test]
async fn a_failed_attempt_is_repeated_and_a_panicking_one_is_booked() {
    let setup = setup(&delivery(), |n| match n {
        0 => Outcome::retry("not yet"),
        1 => Outcome::Done,
        _ => panic!("an exporter with a bug"),
    });
    setup.destination.start().await.unwrap();
    setup.permits.add_permits(3);
    setup.push(2).unwrap();
    balance_when(&ledgers(&setup.cx)[0], |b| b.left == 2).await;
    setup.push(5).unwrap();
    let balance = balance_when(&ledgers(&setup.cx)[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 5);
    setup.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_outage_is_told_when_it_is_long_and_ends_with_the_first_delivery() {
    // The driver runs on this thread.
    let (log, _guard) = Log::capture();
    let (down, back) = ("the destination is down", "the destination is back");
    let setup = setup(&delivery(), |n| match n {
        0..2 => Outcome::retry("refused"),
        _ => Outcome::Done,
    });
    setup.destination.start().await.unwrap();
    setup.push(2).unwrap();
    setup.permits.add_permits(2);
    let inner = setup.destination.inner();
    // No attempt ends meanwhile: the third has no permit. On a busy machine, the outage may be long before it begins.
    while !inner.standing.is_logged() || setup.asked.load(SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(setup.asked.load(SeqCst), 3);
    let troubles = setup.cx.base.shared.health.troubles();
    assert!(troubles["exporters::script"].contains("refused"), "{troubles:?}");
    let told = log.lines(down);
    let [(level, fields)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(level, "WARN");
    let said = ["component", "endpoint", "error"].map(|name| fields[name].as_str().unwrap_or_default());
    assert_eq!(said, ["exporters::script", "http://peer:4318", "refused"]);
    assert_eq!(fields["held"], 2, "{fields}");
    // More comes meanwhile: it is held when the destination is back.
    setup.push(3).unwrap();
    setup.permits.add_permits(1);
    balance_when(&ledgers(&setup.cx)[0], |b| b.left == 2).await;
    while inner.standing.is_logged() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let told = log.lines(back);
    let [(level, fields)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (&**level, &fields["endpoint"]),
        ("INFO", &"http://peer:4318".into())
    );
    assert_eq!(fields["held"], 3, "{fields}");
    setup.permits.add_permits(1);
    balance_when(&ledgers(&setup.cx)[0], |b| b.left == 5).await;
    let lines = [down, back].map(|message| log.lines(message).len());
    assert_eq!(lines, [1, 1]);
    assert!(setup.cx.base.shared.health.troubles().is_empty());
    setup.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_retry_says_what_is_held_and_not_what_all_attempts_come_to() {
    let (setup, log, _guard) = logged_with_three_items().await;
    setup.push(4).unwrap();
    let (inner, start) = (setup.destination.inner(), Instant::now());
    for second in [0, 1, 2, 11] {
        let now = start + Duration::from_secs(second);
        inner.log_retry(now, 3, Duration::from_secs(5), "refused");
    }
    let lines = log.lines("sending failed, will retry");
    let said: Vec<_> = lines
        .iter()
        .map(|(level, fields)| (&**level, fields["items"].as_u64(), fields["held"].as_u64()))
        .collect();
    assert_eq!(said, [("INFO", Some(3), Some(7)); 2]);
    setup.permits.add_permits(2);
    setup.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_repeated() {
    let mut config = delivery();
    config.timeout = Some(Duration::from_millis(20));
    let setup = setup(&config, |_| Outcome::Done);
    setup.destination.start().await.unwrap();
    setup.push(1).unwrap();
    while setup.asked.load(SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    setup.permits.add_permits(10);
    balance_when(&ledgers(&setup.cx)[0], |b| b.left == 1).await;
    setup.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn the_line_of_a_stop_says_how_much_a_successor_took() {
    let (setup, log, _guard) = logged_with_three_items().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let sum = taken.clone();
    setup.destination.retire(Box::new(move |batch| {
        sum.fetch_add(batch.items(), SeqCst);
    }));
    setup.stop(Duration::from_millis(30)).await;
    assert_eq!(taken.load(SeqCst), 3);
    let lines = log.lines("stopped");
    let [(level, fields)] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(level, "INFO");
    assert_eq!(fields["handed_over"], 3, "{fields}");
}

/// Notes how many items each attempt has; the first is never answered.
struct Stuck(Arc<Mutex<Vec<usize>>>);

#[async_trait]
impl Attempt for Stuck {
    async fn send(&self, export: ExportRequest) -> Outcome {
        let attempts = {
            let mut seen = self.0.lock();
            seen.push(export.items());
            seen.len()
        };
        match attempts {
            1 => std::future::pending().await,
            _ => Outcome::Done,
        }
    }
}

#[tokio::test]
async fn requests_behind_an_attempt_that_times_out_do_not_all_go_together() {
    let mut config = delivery();
    config.timeout = Some(Duration::from_millis(20));
    config.queue.num_consumers = std::num::NonZeroUsize::MIN;
    config.together = Some(Together {
        items: 1_000,
        bytes: 1 << 20,
    });
    let (cx, seen) = (
        exporter_context("exporters::stuck"),
        Arc::<Mutex<Vec<usize>>>::default(),
    );
    let ledger = ledgers(&cx)[0].clone();
    let destination = Destination::new(cx, &config, Stuck(seen.clone()));
    destination.start().await.unwrap();
    for _ in 0..10 {
        destination
            .push(opaque(Signal::Metrics, b"0123456789", 10))
            .unwrap();
        ledger.enter(10);
    }
    balance_when(&ledger, |b| b.left == 100).await;
    assert_eq!(
        seen.lock()[..2],
        [10, 10],
        "half of what was late is less than one"
    );
    destination.stop(Instant::now() + Duration::from_secs(5)).await;
}
