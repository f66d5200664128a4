// SPDX-License-Identifier: Apache-2.0

//! Keeps the past: samples every series at an interval, on its own low-priority thread. Once a second the thread
//! also records the reports of resources, whether or not a past is kept.
//!
//! A pass over some hundred thousand series takes a good part of a second of one core. Ingest and queries must not
//! wait for it. So the thread is nice, and its pass is spread over half the interval.

use std::time::{Duration, Instant};

use crate::component::unix_now;
use crate::component::worker::Pause;
use crate::prom::catalog::View;

/// Added to the niceness of the process: others get nine tenths of a core that both want.
const NICENESS: i32 = 10;

/// The most that a sample may be later than its time.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// The interval at which the catalogue checks resources.
const ATTEND: Duration = Duration::from_secs(1);

/// The time over which a pass is spread: a value is read that much later than its time.
pub(super) fn spread(interval: Duration) -> Duration {
    (interval / 2).min(MAX_SPREAD)
}

/// Works until `pause` says that it is over. `interval`: between two samples; `None`: no past is kept.
pub(super) fn run(view: &View, interval: Option<Duration>, pause: &Pause) {
    // Without the permission to be nice, it works at normal priority.
    let _ = rustix::process::nice(NICENESS);
    let mut due = Instant::now();
    loop {
        match interval {
            Some(interval) if due <= Instant::now() => {
                view.record(unix_now(), spread(interval), &mut |time| pause.wait(time));
                // Ticks missed by a slow pass are skipped.
                let passed = due.elapsed().as_nanos() / interval.as_nanos().max(1);
                due += interval * u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
            }
            _ => view.attend(unix_now()),
        }
        let rest = interval.map_or(ATTEND, |_| due.saturating_duration_since(Instant::now()));
        if !pause.wait(rest.min(ATTEND)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use rustix::process::getpriority_process;

    use super::*;
    use crate::component::testing::context;
    use crate::component::worker::Worker;

    #[tokio::test]
    async fn it_gives_way_to_others_and_stops_at_once() {
        let shared = context("extensions", "admin").shared;
        let view = View::of(&shared);
        let worker = Worker::new("sampler");
        let (report, reported) = sync_channel(1);
        let work = move |pause: &Pause| {
            run(&view, Some(Duration::from_secs(3600)), pause);
            report.send(getpriority_process(None)).unwrap();
        };
        worker.start(work).unwrap();
        worker.stop(Instant::now() + Duration::from_secs(60)).await;
        let niceness = reported.recv().unwrap().unwrap();
        let own = getpriority_process(None).unwrap();
        assert_eq!(niceness, (own + NICENESS).min(19));
    }
}
