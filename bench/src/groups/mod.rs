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

use std::path::Path;

use crate::BenchError;
use crate::cluster::simulated;
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

/// One thread, on the core that the gateway is not on.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
