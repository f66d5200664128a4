// SPDX-License-Identifier: Apache-2.0

//! Measures the cost of a read while a writer rewrites the page a thousand times a second:
//!
//! `read_latency [DIRECTORY]` (by default /dev/shm)
//!
//! Prints the median and the 99th percentile of a read, in ns. Averages over batches, which go through all entries,
//! leave the cost of the clock out. Single reads include it.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tidegate_page::{Entry, Handle, Page, Reader, State};

const ENTRIES: usize = 64;
const PERIOD: Duration = Duration::from_millis(1);
const BATCHES: usize = 500_000;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let path = format!("{directory}/tidegate-read-latency.{}", std::process::id());
    let names: Vec<String> = (0..ENTRIES).map(|i| format!("composite_{i}")).collect();
    let mut page = Page::create(&path, ENTRIES as u32, 0o600)?;
    publish(&mut page, &names, 0);
    let reader = Reader::open(&path)?;
    let handles: Result<Vec<Handle>, _> = names.iter().map(|name| reader.find(name, "")).collect();
    let handles = handles?;

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| rewrite(&mut page, &names, &done));
        let began = Instant::now();
        measure(&reader, &handles);
        let seconds = began.elapsed().as_secs_f64();
        done.store(true, Ordering::Release);
        let rounds = writer.join().unwrap_or(0);
        println!(
            "{ENTRIES} entries, rewritten {:.0} times a second",
            rounds as f64 / seconds
        );
    });
    page.close()?;
    Ok(())
}

fn rewrite(page: &mut Page, names: &[String], done: &AtomicBool) -> u64 {
    let mut round = 0;
    let mut next = Instant::now();
    while !done.load(Ordering::Acquire) {
        round += 1;
        publish(page, names, round);
        next += PERIOD;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    round
}

fn publish(page: &mut Page, names: &[String], round: u64) {
    let number = Some(round as f64);
    let quantiles = [(0.5, round as f64), (0.99, round as f64)];
    let entries: Vec<Entry<'_>> = names
        .iter()
        .map(|name| Entry {
            name,
            state: State::Fresh,
            value: number,
            min: number,
            avg: number,
            max: number,
            sum: number,
            count: number,
            last: number,
            quantiles: &quantiles,
            seq: round,
            ..Entry::default()
        })
        .collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_ns = now.map_or(0, |now| now.as_nanos() as u64);
    page.publish(now_ns, &entries);
}

fn measure(reader: &Reader, handles: &[Handle]) {
    let mut busy = 0_u64;
    let mut batches = Vec::with_capacity(BATCHES);
    let mut singles = Vec::with_capacity(BATCHES);
    for batch in 0..BATCHES {
        let began = Instant::now();
        for handle in handles {
            busy += u64::from(black_box(reader.read(black_box(handle))).is_err());
        }
        batches.push(began.elapsed().as_nanos() as f64 / handles.len() as f64);
        let began = Instant::now();
        let read = black_box(reader.read(black_box(&handles[batch % handles.len()])));
        singles.push(began.elapsed().as_nanos() as f64);
        busy += u64::from(read.is_err());
    }
    for (what, mut figures) in [("a read", batches), ("a read and the clock", singles)] {
        figures.sort_by(f64::total_cmp);
        let at = |share: usize| figures[figures.len() * share / 100];
        println!("{what}: median {:.1} ns, p99 {:.1} ns", at(50), at(99));
    }
    println!("busy: {busy}");
}
