// SPDX-License-Identifier: Apache-2.0

//! Queries without end, and clients that do not wait for, or do not read, what they asked for.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::many::seed;
use crate::BenchError;
use crate::abuse::field::{AttackedGateway, Setup};
use crate::abuse::refusals::{QUERIES, counted_of};
use crate::abuse::result::{CheckLine, settled};
use crate::abuse::wire::{ATTACKER, Harm, HttpAnswer, connected, get, head, once, receive};

/// With a composite of the honest sender.
pub(super) const COMPOSITE: Setup = Setup {
    processors: (
        "  composite: {composites: [{name: honest_rate, metric: honest.pushes, function: rate, window: 5s}]}",
        ", composite",
    ),
    ..Setup::PLAIN
};

/// Queries that would take longer than a lifetime, written for a URL.
const ENDLESS: [&str; 3] = [
    "/api/v1/query?query=max_over_time(max_over_time(max_over_time(count(abuse)%5B10m:1s%5D)%5B10m:1s%5D)%5B10m:1s%5D)",
    "/api/v1/query?query=sum(max_over_time(abuse%5B10m:100ms%5D))",
    "/api/v1/query_range?query=sum(rate(abuse%5B10m%5D))&start=0&end=1000&step=0.1",
];

/// The wait of a client before it hangs up.
const SHORT: Duration = Duration::from_millis(100);

/// The endless query of this number.
pub(super) fn endless(number: usize) -> &'static str {
    ENDLESS[number % ENDLESS.len()]
}

/// How many queries were refused.
#[derive(Default)]
struct RefusedQueries(AtomicU64);

impl RefusedQueries {
    fn note(&self, answer: Result<HttpAnswer, BenchError>) {
        if answer.is_ok_and(|answer| matches!(answer.status, 429 | 503)) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Demands that they are counted.
    fn judged(self, field: &AttackedGateway, harm: Harm) -> Harm {
        let refused = self.0.into_inner();
        let mut lines = settled(|| {
            let counted = counted_of(field, QUERIES)?;
            Ok(vec![CheckLine::new(
                "refused queries are counted",
                format!("{counted} counted, {refused} refused"),
                counted >= refused as f64,
            )])
        });
        lines.extend(harm.lines);
        Harm { lines, ..harm }
    }
}

/// Series that queries look at.
fn seeded(field: &AttackedGateway) -> Result<Harm, BenchError> {
    seed(field, "abuse", field.pick(20_000, 1_000))
}

pub(super) fn nested(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let harm = seeded(field)?;
    let asked = RefusedQueries::default();
    field.crowd(field.pick(20, 6), |thread, turn| {
        // The answers do not matter here.
        asked.note(field.ask(endless(thread + turn), field.patience()));
    });
    Ok(asked.judged(field, harm))
}

pub(super) fn hang_ups(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let harm = seeded(field)?;
    field.crowd(8, |thread, turn| {
        let _ = field.ask(endless(thread + turn), SHORT);
        std::thread::sleep(SHORT / 2);
    });
    Ok(harm)
}

pub(super) fn unread(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let harm = seeded(field)?;
    // Names of everything, and a range of it: megabytes.
    let all = get("/api/v1/query?query=%7B__name__=~%22.%2B%22%7D");
    let mut held = Vec::new();
    for _ in 0..field.pick(150, 40) {
        held.extend(asking(field, &all));
    }
    std::thread::sleep(field.time());
    Ok(harm)
}

/// A connection that has asked and reads nothing, where there was room for it.
fn asking(field: &AttackedGateway, request: &[u8]) -> Option<TcpStream> {
    let mut stream = connected(ATTACKER, field.ports.admin, Duration::from_millis(500)).ok()?;
    stream.write_all(request).ok()?;
    Some(stream)
}

pub(super) fn watchers(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let watch = get("/api/v1/composites/honest_rate/watch");
    // A watch needs the rate of the honest sender.
    let mut first = BufReader::new(connected(ATTACKER, field.ports.admin, field.deadline())?);
    first.get_mut().write_all(&watch)?;
    let status = receive(&mut first)?.status;
    let mut held = Vec::new();
    for _ in 0..field.pick(300, 60) {
        held.extend(asking(field, &watch));
    }
    std::thread::sleep(field.time());
    Ok(Harm {
        lines: vec![CheckLine::new(
            "watchers are served",
            status.to_string(),
            status == 200,
        )],
        ..Harm::default()
    })
}

/// Forms of a hundred thousand parameters without a value.
pub(super) fn parameters(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const FORM: usize = 255 << 10;
    let body = "a&".repeat(FORM / 2);
    let headers = "content-type: application/x-www-form-urlencoded\r\n";
    let mut form = head("/api/v1/query", headers, body.len());
    form.extend(body.as_bytes());
    field.crowd(field.pick(40, 6), |_, _| {
        let _ = once(ATTACKER, field.ports.admin, field.patience(), &form);
    });
    Ok(Harm::default())
}

/// Requests of 200 selectors, each of which accepts every series.
pub(super) fn match_all(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let harm = seed(field, "abuse", field.pick(100_000, 1_000))?;
    let selectors: String = (0..200)
        .map(|number| format!("match%5B%5D=%7B__name__=~%22.%2B%22,x!=%22{number}%22%7D&"))
        .collect();
    const PAGES: [&str; 5] = [
        "/api/v1/series",
        "/api/v1/labels",
        "/federate",
        "/api/v1/explain",
        "/api/v1/metadata",
    ];
    let asked = RefusedQueries::default();
    field.crowd(field.pick(20, 6), |thread, turn| {
        let page = PAGES[(thread + turn) % PAGES.len()];
        asked.note(field.ask(&format!("{page}?{selectors}"), field.patience()));
    });
    Ok(asked.judged(field, harm))
}
