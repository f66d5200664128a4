// SPDX-License-Identifier: Apache-2.0

//! How long after a crossing its callback runs, while two threads record as fast as they can.
//!
//! `cargo bench -p tidegate-metrics --bench reaction`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use tidegate_metrics::{Description, Function, Histogram, MetricsRegistry, Prometheus, Trigger};

const ROUNDS: usize = 300;

fn main() {
    let registry = Arc::new(Prometheus::new());
    let stop = AtomicBool::new(false);
    let latency = Description::new("latency", "").unit("s");
    let family = registry
        .histogram_family(&latency, &[], &["model"])
        .expect("a valid family");
    let handles: Vec<Histogram> = (0..100).map(|at| family.with(&[&format!("m{at}")])).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    handles.iter().for_each(|handle| handle.observe(0.01));
                }
            });
        }
        println!("callbacks, {ROUNDS} crossings each, 2 threads record in 100 watched series");
        gauge(&registry);
        composite(&registry, &family, &handles);
        stop.store(true, Relaxed);
    });
}

fn gauge(registry: &Prometheus) {
    let gauge = registry
        .gauge(&Description::new("depth", ""), &[])
        .expect("a valid gauge");
    let (sender, receiver) = sync_channel(16);
    let trigger = Trigger::above(10.0);
    let _subscription = gauge
        .on_change(trigger, move |change| {
            let _ = sender.send((change.is_crossed, Instant::now()));
        })
        .expect("a valid trigger");
    measure("plain gauge", || {
        let start = Instant::now();
        gauge.set(11.0);
        let took = wait(&receiver, true) - start;
        gauge.set(0.0);
        wait(&receiver, false);
        took
    });
}

fn composite(registry: &Prometheus, family: &tidegate_metrics::HistogramFamily, handles: &[Histogram]) {
    let composite = registry
        .composite("max latency")
        .of(family)
        .by(["model"])
        .window(Duration::from_millis(100))
        .function(Function::Max)
        .build()
        .expect("a valid composite");
    let (sender, receiver) = sync_channel(16);
    let _subscription = composite
        .on_change(Trigger::above(1.0), move |change| {
            let _ = sender.send((change.is_crossed, Instant::now()));
        })
        .expect("a valid trigger");
    measure("composite of 100 histograms in 100 groups", || {
        let start = Instant::now();
        if let Some(handle) = handles.get(42) {
            handle.observe(5.0);
        }
        let took = wait(&receiver, true) - start;
        // The value leaves the window.
        wait(&receiver, false);
        took
    });
}

/// When the callback said so.
fn wait(receiver: &Receiver<(bool, Instant)>, is_crossed: bool) -> Instant {
    let said = receiver.iter().find(|(said, _)| *said == is_crossed);
    said.map_or_else(Instant::now, |(_, at)| at)
}

fn measure(name: &str, mut round: impl FnMut() -> Duration) {
    let mut pause = 1u64;
    let mut round = || {
        // Not always at the same distance from a look.
        pause = pause * 7919 % 10_007;
        std::thread::sleep(Duration::from_micros(pause));
        round()
    };
    let mut took: Vec<Duration> = (0..ROUNDS).map(|_| round()).collect();
    took.sort();
    let rank = |share: f64| {
        took.get(((ROUNDS - 1) as f64 * share) as usize)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{name}: p50 {:?}, p99 {:?}, max {:?}",
        rank(0.5),
        rank(0.99),
        rank(1.0)
    );
}
