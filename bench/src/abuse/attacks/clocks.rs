// SPDX-License-Identifier: Apache-2.0

//! Times that are not those of the gateway's clock.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::elements::grpc;
use super::now;
use super::queries::COMPOSITE;
use super::scrapes::serve;
use super::sockets::{GAUGE, at_last, event};
use crate::BenchError;
use crate::abuse::beside::{SHOWN, honest};
use crate::abuse::field::{AttackedGateway, SMALL_DEADLINE, Setup, Size};
use crate::abuse::proto::{field as part, fixed, gauge, number as varint_field, point, request, written};
use crate::abuse::result::{CheckLine, counted_by, settled};
use crate::abuse::wire::{Harm, Tally, WRITE, protobuf};
use crate::otlp::Compression;

const DAY: u64 = 24 * 3600 * 1_000_000_000;
/// The honest sender pushes ten times a second; less is what a second that was missed leaves of it.
const RATE: std::ops::RangeInclusive<f64> = 5.0..=15.0;
/// The small form ends while the window fills, and the rate is that of the whole window.
const WHILE_IT_FILLS: f64 = 1.0;

pub(super) fn future(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let tally = Tally::default();
    // The time is all that is wrong: the total is what the honest sender has come to.
    let tomorrow = honest(now() + DAY, total(field)?);
    field.push(&protobuf(""), &tomorrow, 1, &tally);
    std::thread::sleep(field.pick(Duration::from_secs(18), Duration::from_secs(2)));
    Ok(with_rate(field, tally.finish()))
}

pub(super) fn alternating(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let tally = Tally::default();
    field.crowd(1, |_, turn| {
        let time = match turn % 3 {
            0 => now() + DAY,
            1 => now() - DAY,
            _ => now(),
        };
        let own = request("abuse.clocks", &gauge(&point(time, "host", "a")));
        field.push(&protobuf(""), &own, 1, &tally);
        if turn % 3 < 2 {
            // Without a page there is no total, and the next turn may have one.
            if let Ok(total) = total(field) {
                field.push(&protobuf(""), &honest(time, total), 1, &tally);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    });
    Ok(with_rate(field, tally.finish()))
}

/// Every way in: OTLP, remote writes, a target, the sockets of events and of StatsD.
pub(super) const EVERYWHERE: Setup = Setup {
    receivers: (
        "  uds: {stream: {path: 'DIR/events.sock'}, datagram: {path: 'DIR/statsd.sock'}}
  prometheusremotewrite: {endpoint: '127.0.0.1:WRITE'}
  prometheus:
    config:
      scrape_configs:
        - {job_name: future, scrape_interval: 250ms, scrape_timeout: 250ms, static_configs: [{targets: ['127.0.0.1:GOOD']}]}",
        ", uds, prometheusremotewrite, prometheus",
    ),
    ..COMPOSITE
};

/// Values of a gauge before the point from tomorrow, of that point, and after it.
const VALUES: [u64; 3] = [1, 99, 2];

/// A point from tomorrow by every way in. The honest stream has two of them; the others have gauges of their own, which go
/// on in time.
pub(super) fn everywhere(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const GAUGES: [&str; 4] = ["future_write", "future_scrape", "future_events", "future_statsd"];
    let tally = Tally::default();
    let over = AtomicBool::new(false);
    let scrapes = AtomicUsize::new(0);
    let page = |stream: &mut TcpStream| {
        let scrape = scrapes.fetch_add(1, Relaxed).min(VALUES.len() - 1);
        let (value, time) = (VALUES[scrape], time_of(scrape) / 1_000_000);
        let page = match scrape {
            1 => format!("# TYPE future_scrape gauge\nfuture_scrape {value} {time}\n"),
            _ => format!("# TYPE future_scrape gauge\nfuture_scrape {value}\n"),
        };
        let length = page.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n{page}"
        )
    };
    let shown = std::thread::scope(|scope| {
        let (over, page) = (&over, &page);
        let target = scope.spawn(move || serve(field.ports.good, over, page));
        let sent = honest_by_otlp(field, &tally)
            .and_then(|()| by_writes(field, &tally))
            .and_then(|()| by_sockets(field));
        let begun = Instant::now();
        let values = || GAUGES.map(|gauge| field.shown(gauge).unwrap_or(f64::NAN));
        let is_last = |values: &[f64]| values.iter().all(|value| *value == VALUES[2] as f64);
        let mut shown = values();
        while sent.is_ok() && !is_last(&shown) && begun.elapsed() < field.deadline() {
            std::thread::sleep(LOOK);
            shown = values();
        }
        // The rate is that of the whole window.
        std::thread::sleep(field.time());
        over.store(true, Relaxed);
        target.join().map_err(|_| "the target panicked")??;
        sent?;
        Ok::<_, BenchError>(CheckLine::new(
            "gauges go on after a point from tomorrow",
            format!("{GAUGES:?}: {shown:?}"),
            is_last(&shown),
        ))
    })?;
    let mut harm = with_rate(field, tally.finish());
    harm.lines.push(shown);
    harm.lines.extend(settled(|| {
        let dropped = counted_by(field, |name, labels| {
            name == "tidegate_dropped_items_total" && labels.contains("reason=\"future\"")
        })?;
        let omitted = counted_by(field, |name, _| name == "tidegate_composite_future_points_total")?;
        Ok(vec![CheckLine::new(
            "honest points from tomorrow are counted as future",
            format!("{dropped} by the page, {omitted} by the composite, of 2"),
            dropped >= 2.0 && omitted >= 2.0,
        )])
    }));
    Ok(harm)
}

/// Between two looks at the page.
const LOOK: Duration = Duration::from_millis(50);

/// The time of a value of [`VALUES`].
fn time_of(number: usize) -> u64 {
    match number {
        1 => now() + DAY,
        _ => now(),
    }
}

/// A point of the honest stream from tomorrow over gRPC, and one as JSON.
fn honest_by_otlp(field: &AttackedGateway, tally: &Tally) -> Result<(), BenchError> {
    let (tomorrow, total) = (now() + DAY, total(field)?);
    tally.note(grpc(field, Compression::None, honest(tomorrow, total).into()), 0);
    let attribute = |key: &str| serde_json::json!({"key": key, "value": {"stringValue": "honest"}});
    let resource = [attribute("service.name"), attribute("host")];
    let point = serde_json::json!({"timeUnixNano": tomorrow.to_string(), "asInt": total.to_string()});
    let sum = serde_json::json!({"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [point]});
    let metrics = serde_json::json!([{"name": "honest.pushes", "sum": sum}]);
    let body = serde_json::json!({
        "resourceMetrics": [{"resource": {"attributes": resource}, "scopeMetrics": [{"metrics": metrics}]}]
    });
    field.push(
        "content-type: application/json\r\n",
        body.to_string().as_bytes(),
        0,
        tally,
    );
    // The attack does not read from these answers whether the point was taken.
    tally.doubt(2);
    Ok(())
}

fn by_writes(field: &AttackedGateway, tally: &Tally) -> Result<(), BenchError> {
    for (number, value) in VALUES.into_iter().enumerate() {
        let value = fixed(1, (value as f64).to_bits());
        let sample = part(2, [value, varint_field(2, time_of(number) / 1_000_000)].concat());
        let series = written(&[("__name__", "future_write")], &sample);
        let packed = snap::raw::Encoder::new().compress_vec(&series)?;
        let answer = field.write_once(WRITE, &packed, field.deadline())?;
        match number {
            // Some refuse it, and some take it and have it dropped.
            1 => tally.doubt(1),
            _ if answer.status / 100 == 2 => tally.note(Ok(answer), 1),
            _ => return Err(format!("a write was answered with {}", answer.status).into()),
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn by_sockets(field: &AttackedGateway) -> Result<(), BenchError> {
    let path = field.directory.join("events.sock");
    let mut stream = at_last(|| UnixStream::connect(&path))?;
    let path = field.directory.join("statsd.sock");
    let datagrams = UnixDatagram::unbound()?;
    at_last(|| datagrams.connect(&path))?;
    for (number, value) in VALUES.into_iter().enumerate() {
        let time = time_of(number);
        stream.write_all(&event("future.events", GAUGE, value, Some(time)))?;
        let line = format!("future_statsd:{value}|g|T{}", time / 1_000_000_000);
        datagrams.send(line.as_bytes())?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The current value of the honest counter.
fn total(field: &AttackedGateway) -> Result<u64, BenchError> {
    Ok(field.shown(SHOWN)? as u64)
}

/// The composite of the honest sender must say what it pushes.
pub(super) fn with_rate(field: &AttackedGateway, harm: Harm) -> Harm {
    let right = field.pick(*RATE.start(), WHILE_IT_FILLS)..=*RATE.end();
    let begun = Instant::now();
    let mut rate = asked_rate(field);
    // A small attack may end before the window of the rate has enough.
    while field.size == Size::Small
        && !rate.as_ref().is_ok_and(|rate| right.contains(rate))
        && begun.elapsed() < SMALL_DEADLINE
    {
        std::thread::sleep(LOOK);
        rate = asked_rate(field);
    }
    let line = match rate {
        Ok(rate) => CheckLine::new(
            "the rate of honest pushes is right",
            format!("{rate:.1} of 10 a second"),
            right.contains(&rate),
        ),
        Err(error) => CheckLine::new("the rate of honest pushes is known", error.to_string(), false),
    };
    Harm {
        lines: vec![line],
        ..harm
    }
}

fn asked_rate(field: &AttackedGateway) -> Result<f64, BenchError> {
    let answer = field.ask("/api/v1/query?query=honest_rate", field.deadline())?;
    let said: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let value = said["data"]["result"][0]["value"][1].as_str();
    let value = value.ok_or_else(|| format!("no value: {said}"))?;
    Ok(value.parse()?)
}
