// SPDX-License-Identifier: Apache-2.0

//! The groups of measurements, one a file.

mod age;
pub(crate) mod agents;
mod aggregate;
pub(crate) mod engine;
mod growth;
mod instant;
mod loss;
mod memory;
mod otlp;
mod outage;
mod overload;
mod pauses;
pub(crate) mod prometheus;
mod queue;
mod ring;
mod rounds;
mod scrape;
mod start;
mod unwatched;

use std::path::Path;

use parking_lot::Mutex;

use crate::BenchError;
use crate::cluster::simulated;
use crate::process::Process;
use crate::report::Row;

/// Measurements that belong together.
pub(crate) struct BenchGroup {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Path) -> Result<Vec<Row>, BenchError>,
}

/// In the order in which they run.
pub(crate) const GROUPS: &[BenchGroup] = &[
    BenchGroup {
        name: "start",
        about: "from the start of the process to its first answered scrape, and its memory when idle",
        run: start::run,
    },
    BenchGroup {
        name: "ring",
        about: "events out of rings into counters, gauges and histograms, as fast as they go",
        run: ring::run,
    },
    BenchGroup {
        name: "age",
        about: "age of an event when a scrape first shows it",
        run: age::run,
    },
    BenchGroup {
        name: "engine",
        about: "the aggregation engine by itself, and queries, at 1k, 100k and 1M series",
        run: engine::run,
    },
    BenchGroup {
        name: "prometheus",
        about: "scrapes of 1k, 100k and 1M series in every format, and what an exposed series takes",
        run: prometheus::run,
    },
    BenchGroup {
        name: "scrape",
        about: "gateways that scrape a target, or take OTLP, and are scraped; beside peers where they are on PATH",
        run: scrape::run,
    },
    BenchGroup {
        name: "instant",
        about: "how soon queries, readers of composites and watchers know of an event",
        run: instant::run,
    },
    BenchGroup {
        name: "loss",
        about: "events lost when agents flush whole rings at once",
        run: loss::run,
    },
    BenchGroup {
        name: "otlp",
        about: "OTLP in, OTLP out, as fast as it goes and at half of that; beside floors, and peers where they are on PATH",
        run: otlp::run,
    },
    BenchGroup {
        name: "aggregate",
        about: "OTLP in, attributes grouped away, Prometheus out, scraped once a second; beside the Collector's closest chain",
        run: aggregate::run,
    },
    BenchGroup {
        name: "outage",
        about: "a healthy destination beside a dead one, against alone",
        run: outage::run,
    },
    BenchGroup {
        name: "overload",
        about: "more than passes, then a destination that takes a tenth: memory, refusals, and whether anything is lost",
        run: overload::run,
    },
    BenchGroup {
        name: "queue",
        about: "a queue on disk against one in memory: points a second, and how fast a backlog is read back",
        run: queue::run,
    },
    BenchGroup {
        name: "memory",
        about: "what a counter series takes that is held and exposed, at 10k, 100k and 1M",
        run: memory::run,
    },
    BenchGroup {
        name: "growth",
        about: "cost of a point and of an event from 1k to 1M series, on one core and on all",
        run: growth::run,
    },
    BenchGroup {
        name: "unwatched",
        about: "what `admin` and own metrics cost while no client asks for them, against a gateway without them; what an open tap costs",
        run: unwatched::run,
    },
    BenchGroup {
        name: "replica",
        about: "pages of 100, 1,000 and 10,000 simulated producers into one replica, without a store and a network",
        run: simulated::run,
    },
    BenchGroup {
        name: "pauses",
        about: "the longest a small request waits while 1M series are scraped, emitted, expired, snapshotted",
        run: pauses::run,
    },
];

/// The job that runs, for lines of progress.
static JOB: Mutex<String> = Mutex::new(String::new());

/// Notes that this job begins, one of so many of its group. The first has index 0.
fn note_job(name: &str, index: usize, jobs: usize) {
    *JOB.lock() = format!("{name} ({} of {jobs}), ", index + 1);
}

/// Gives a function that describes the progress of the group that begins: its job, and the number of processes that it
/// started.
pub(crate) fn measured_so_far() -> impl Fn() -> String + Send + 'static {
    JOB.lock().clear();
    let before = Process::started();
    move || format!("{}{} processes started", JOB.lock(), Process::started() - before)
}

/// One thread, on the core that the gateway is not on.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_group_names_its_job() {
        note_job("of another group", 0, 1);
        let so_far = measured_so_far();
        assert!(so_far().ends_with(" processes started") && !so_far().contains("another"));
        note_job("grpc-1000", 2, 14);
        assert!(so_far().starts_with("grpc-1000 (3 of 14), "), "{}", so_far());
    }
}
