// SPDX-License-Identifier: Apache-2.0

//! The jobs of gateways over OTLP, and the limits for tidegate.

use crate::otlp::request::{PointKind, name};
use crate::otlp::{Compression, Plan, Protocol};

/// A task, the load for it, and its budgets.
pub(in crate::groups) struct Job {
    pub(in crate::groups) name: &'static str,
    /// The name of the subjects' configuration.
    pub(in crate::groups) task: &'static str,
    pub(in crate::groups) plan: Plan,
    pub(in crate::groups) edit: Option<Edit>,
    pub(in crate::groups) limits: &'static [Limit],
}

/// The edit that a job makes on the way: dropped metrics, changed text.
pub(in crate::groups) struct Edit {
    /// Metrics of these components are dropped.
    dropped: &'static [&'static str],
    /// Text that every request has afterwards, and text that none has.
    pub(super) put_in: &'static str,
    pub(super) taken_out: &'static str,
}

/// A limit for tidegate.
pub(in crate::groups) enum Limit {
    /// Processor time a point, ns.
    Cpu(f64),
    /// Memory at its peak, MiB.
    Peak(f64),
    /// Processor time against another's.
    Against(&'static str, f64),
    /// Processor time against that of the peer in Rust that takes the least.
    AgainstBestRust(f64),
}

/// Few points a request are many requests: more of them are under way at once.
const SMALL: Plan = Plan {
    in_flight: 16,
    ..grpc(10)
};

const fn grpc(points: usize) -> Plan {
    Plan {
        protocol: Protocol::Grpc,
        compression: Compression::None,
        kind: PointKind::Mixed,
        points,
        connections: 4,
        in_flight: 4,
        distinct: 32,
        counts_on: false,
    }
}

const fn small(points: usize) -> Plan {
    Plan { points, ..SMALL }
}

const fn large(points: usize) -> Plan {
    Plan {
        in_flight: 2,
        distinct: 8,
        ..grpc(points)
    }
}

const fn http(plan: Plan) -> Plan {
    Plan {
        protocol: Protocol::Http,
        ..plan
    }
}

const fn pass(name: &'static str, plan: Plan, limits: &'static [Limit]) -> Job {
    let task = match (plan.protocol, plan.compression) {
        (Protocol::Http, _) => "http",
        (Protocol::Grpc, Compression::None) => "grpc",
        (Protocol::Grpc, Compression::Gzip) => "grpc-gzip",
        (Protocol::Grpc, Compression::Zstd) => "grpc-zstd",
    };
    Job {
        name,
        task,
        plan,
        edit: None,
        limits,
    }
}

/// In the order in which they are done.
pub(super) const JOBS: &[Job] = &[
    pass("grpc-1", small(1), &[]),
    pass(
        "grpc-10",
        small(10),
        &[Limit::AgainstBestRust(1.0), Limit::Against("otelcol", 1.0 / 3.0)],
    ),
    pass(
        "grpc-100",
        small(100),
        &[Limit::AgainstBestRust(1.0), Limit::Against("otelcol", 1.0 / 3.0)],
    ),
    pass(
        "grpc-1000",
        grpc(1_000),
        &[
            Limit::Cpu(250.0),
            Limit::Peak(20.0),
            Limit::Against("forward-grpc-1MiB", 1.25),
            Limit::Against("df_engine", 0.7),
            Limit::Against("otelcol", 0.2),
        ],
    ),
    pass("grpc-8000", large(8_000), &[]),
    pass("http-1", http(small(1)), &[]),
    pass(
        "http-10",
        http(small(10)),
        &[Limit::AgainstBestRust(1.0), Limit::Against("otelcol", 1.0 / 3.0)],
    ),
    pass(
        "http-100",
        http(small(100)),
        &[Limit::AgainstBestRust(1.0), Limit::Against("otelcol", 1.0 / 3.0)],
    ),
    pass("http-1000", http(grpc(1_000)), &[Limit::Cpu(150.0)]),
    pass("http-8000", http(large(8_000)), &[]),
    // Absolute, of the 3,450 and 907 ns that were measured of df_engine on such a machine.
    pass(
        "grpc-1000-gzip",
        Plan {
            compression: Compression::Gzip,
            ..grpc(1_000)
        },
        &[Limit::Cpu(1_150.0), Limit::Against("df_engine", 1.0 / 3.0)],
    ),
    pass(
        "grpc-1000-zstd",
        Plan {
            compression: Compression::Zstd,
            ..grpc(1_000)
        },
        &[Limit::Cpu(726.0), Limit::Against("df_engine", 0.8)],
    ),
    Job {
        name: "edit-1000",
        task: "edit",
        plan: grpc(1_000),
        edit: Some(Edit {
            dropped: &["bench.component3.", "bench.component7."],
            put_in: "put-in-by-the-gateway",
            taken_out: "server.port",
        }),
        limits: &[Limit::Cpu(700.0)],
    },
];

impl Job {
    /// How many points of a request are to arrive.
    pub(super) fn kept(&self) -> u64 {
        let dropped = self.edit.as_ref().map_or(&[][..], |edit| edit.dropped);
        let is_kept = |point: &usize| !dropped.iter().any(|prefix| name(point / 10).starts_with(prefix));
        (0..self.plan.points).filter(is_kept).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_drops_whole_metrics() {
        let kept: Vec<(&str, u64)> = JOBS.iter().map(|job| (job.name, job.kept())).collect();
        // Numbers 3 and 7, and every 17th after them, of a hundred metrics.
        assert!(kept.contains(&("edit-1000", 1_000 - 120)), "{kept:?}");
        assert!(kept.contains(&("grpc-1", 1)));
        assert!(kept.contains(&("http-8000", 8_000)));
    }
}
