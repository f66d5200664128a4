//! Keeps the past: notes the present of every series at an interval, on a thread of its own that gives way to all others.
//! Once a second the thread also notes how the resources report, whether or not a past is kept.
//!
//! A pass over many series takes a good part of a core's second at some hundred thousand of them. Anyone who delivers
//! events or answers queries must not wait for it: the thread is nice, and its pass is spread over half the interval.

use std::time::{Duration, Instant};

use crate::component::unix_now;
use crate::component::worker::Pause;
use crate::prom::catalog::View;

/// Added to the niceness of the process: others get nine tenths of a core that both want.
const NICENESS: i32 = 10;

/// What a sample may be later than its time says, at most.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// How often the catalogue of series looks at resources.
const ATTEND: Duration = Duration::from_secs(1);

/// Works until `pause` says that it is over. `interval`: between two samples; `None`: no past is kept.
pub(super) fn run(view: &View, interval: Option<Duration>, pause: &Pause) {
    // Without leave to be nice it is as quick as the others, and no less right.
    let _ = rustix::process::nice(NICENESS);
    let mut due = Instant::now();
    loop {
        match interval {
            Some(interval) if due <= Instant::now() => {
                let spread = (interval / 2).min(MAX_SPREAD);
                view.record(unix_now(), spread, &mut |time| pause.wait(time));
                // What a pass that took too long has missed is not made up for.
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
        let (tell, told) = sync_channel(1);
        let work = move |pause: &Pause| {
            run(&view, Some(Duration::from_secs(3600)), pause);
            tell.send(getpriority_process(None)).unwrap();
        };
        worker.start(work).unwrap();
        worker.stop(Instant::now() + Duration::from_secs(60)).await;
        let niceness = told.recv().unwrap().unwrap();
        let own = getpriority_process(None).unwrap();
        assert_eq!(niceness, (own + NICENESS).min(19));
    }
}
