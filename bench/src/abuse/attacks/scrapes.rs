// SPDX-License-Identifier: Apache-2.0

//! Targets that answer with too much, beside a good one.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flate2::{Compress, Compression, FlushCompress};

use crate::BenchError;
use crate::abuse::field::{AttackedGateway, Setup, Size};
use crate::abuse::proto::{field as part, fixed, number, varint};
use crate::abuse::result::CheckLine;
use crate::abuse::wire::Harm;

/// Between two scrapes of the good target, as the configuration has it.
const INTERVAL: Duration = Duration::from_millis(250);
/// Of the scrapes that are due must be shown.
const SCRAPED: f64 = 0.8;
const LOOK: Duration = Duration::from_millis(2);

/// A good target beside evil ones, which are found in this way.
macro_rules! beside_a_good_target {
    ($evil:literal) => {
        Setup {
            receivers: (
                concat!(
                    "  prometheus:
    config:
      scrape_configs:
        - {job_name: good, scrape_interval: 250ms, scrape_timeout: 250ms, static_configs: [{targets: ['127.0.0.1:GOOD']}]}
        - {job_name: evil, scrape_interval: 1s, scrape_timeout: 1s, ",
                    $evil,
                    "}"
                ),
                ", prometheus",
            ),
            ..Setup::PLAIN
        }
    };
}

pub(super) const SETUP: Setup = beside_a_good_target!("static_configs: [{targets: ['127.0.0.1:EVIL']}]");

/// A service lists the evil targets.
pub(super) const LISTED: Setup =
    beside_a_good_target!("http_sd_configs: [{url: 'http://127.0.0.1:EVIL/', refresh_interval: 1s}]");

/// Answers a request with a page of its own making. An error is the gateway's way to say that it has had enough.
pub(super) type PageWriter<'a> = &'a (dyn Fn(&mut TcpStream) -> std::io::Result<()> + Sync);

/// Serves pages until it is over, a thread for each connection.
pub(super) fn serve(port: u16, over: &AtomicBool, page: PageWriter<'_>) -> Result<(), BenchError> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    listener.set_nonblocking(true)?;
    std::thread::scope(|scope| {
        while !over.load(Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(LOOK);
                continue;
            };
            scope.spawn(move || answer(stream, over, page));
        }
    });
    Ok(())
}

fn answer(stream: TcpStream, over: &AtomicBool, page: PageWriter<'_>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut stream = BufReader::new(stream);
    while !over.load(Relaxed) {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        page(stream.get_mut())?;
    }
    Ok(())
}

/// Serves a good page and an evil one, and demands that the good one is scraped all the time.
fn beside_a_good_one(
    field: &AttackedGateway,
    evil: impl Fn(&mut TcpStream, &AtomicBool) -> std::io::Result<()> + Sync,
) -> Result<Harm, BenchError> {
    let over = AtomicBool::new(false);
    let (good, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    let good_page = |stream: &mut TcpStream| {
        let count = good.fetch_add(1, Relaxed) + 1;
        let page = format!("# TYPE good_scrapes_total counter\ngood_scrapes_total {count}\n");
        let length = page.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n{page}"
        )
    };
    let evil_page = |stream: &mut TcpStream| {
        asked.fetch_add(1, Relaxed);
        evil(stream, &over)
    };
    std::thread::scope(|scope| {
        let over = &over;
        let (good_page, evil_page) = (&good_page, &evil_page);
        let served = [
            scope.spawn(move || serve(field.ports.good, over, good_page)),
            scope.spawn(move || serve(field.ports.evil, over, evil_page)),
        ];
        let begun = Instant::now();
        let least = field.pick(3, 1);
        let scrapes = || field.shown("good_scrapes_total").unwrap_or(0.0);
        // Also a small attack is one.
        while begun.elapsed() < field.time()
            || (asked.load(Relaxed) < least || scrapes() < 1.0) && begun.elapsed() < field.deadline()
        {
            std::thread::sleep(LOOK);
        }
        let due = begun.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
        let mut shown = scrapes();
        // After a scrape that was late on a busy machine, nothing is shown until the next one.
        while field.size == Size::Small && shown < 1.0 && begun.elapsed() < field.deadline() {
            std::thread::sleep(LOOK);
            shown = scrapes();
        }
        over.store(true, Relaxed);
        for served in served {
            served.join().map_err(|_| "a target panicked")??;
        }
        let asked = asked.load(Relaxed);
        Ok(Harm {
            lines: vec![
                CheckLine::new(
                    "the good target is scraped",
                    format!("{shown} scrapes shown, {due:.0} due"),
                    // The first one comes within an interval.
                    shown >= field.pick((due * SCRAPED - 2.0).max(1.0), 1.0),
                ),
                CheckLine::new("the evil target is scraped", asked.to_string(), asked >= least),
            ],
            ..Harm::default()
        })
    })
}

pub(super) fn gzip(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let (chunk, chunks) = (packed_mebibyte()?, field.pick(2048, 256));
    beside_a_good_one(field, |stream, over| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        stream.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
        for _ in 0..chunks {
            if over.load(Relaxed) {
                break;
            }
            stream.write_all(&chunk)?;
        }
        stream.shutdown(std::net::Shutdown::Both)
    })
}

/// A mebibyte of samples in deflate, which can be repeated as often as one likes.
fn packed_mebibyte() -> Result<Vec<u8>, BenchError> {
    let line = "evil_total{a=\"b\"} 1\n";
    let plain = line.repeat((1 << 20) / line.len());
    let mut packed = Vec::with_capacity(1 << 20);
    let mut packer = Compress::new(Compression::fast(), false);
    packer.compress_vec(plain.as_bytes(), &mut packed, FlushCompress::Full)?;
    Ok(packed)
}

pub(super) fn line(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let piece = [b'a'; 1 << 16];
    beside_a_good_one(field, |stream, over| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        while !over.load(Relaxed) {
            stream.write_all(&piece)?;
        }
        Err(std::io::ErrorKind::Interrupted.into())
    })
}

/// A page of `series` gauges in delimited protobuf, distinguished by a label of a few bytes.
fn tiny(series: u64) -> Vec<u8> {
    const METRIC: u64 = 4;
    const GAUGE: u64 = 2;
    const LABEL: u64 = 1;
    let metrics = (0..series).flat_map(|number| {
        let label = [part(1, "l"), part(2, format!("{number:x}"))].concat();
        part(METRIC, [part(LABEL, label), part(GAUGE, fixed(1, 0))].concat())
    });
    let family: Vec<u8> = [part(1, "evil"), number(3, 1)]
        .concat()
        .into_iter()
        .chain(metrics)
        .collect();
    [varint(family.len() as u64), family].concat()
}

pub(super) fn proto(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let scrape = AtomicU64::new(0);
    let labels = "a=\"b\",".repeat(field.pick(3_700_000, 400_000));
    let pages = [
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            tiny(field.pick(1_000_000, 20_000)),
        ),
        (
            "text/plain; version=0.0.4",
            format!("evil{{{labels}}} 1\n").into_bytes(),
        ),
    ];
    beside_a_good_one(field, |stream, _| {
        let scrape = scrape.fetch_add(1, Relaxed) as usize;
        let (content_type, page) = &pages[scrape % pages.len()];
        let length = page.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(page)
    })
}

/// Each target of a list has all labels of its group: a short list becomes large.
pub(super) fn listed(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let most = field.pick(6_000, 2_000);
    let targets: Vec<_> = (0..most)
        .map(|number| format!("\"127.0.0.1:1/{number}\""))
        .collect();
    let labels: Vec<_> = (0..most)
        .map(|number| format!("\"evil{number}\":\"x\""))
        .collect();
    let (targets, labels) = (targets.join(","), labels.join(","));
    let list = format!("[{{\"targets\":[{targets}],\"labels\":{{{labels}}}}}]");
    beside_a_good_one(field, |stream, _| {
        let length = list.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{list}"
        )
    })
}

pub(super) fn churn(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let series = field.pick(20_000_u64, 1_000);
    let scrape = AtomicU64::new(0);
    beside_a_good_one(field, |stream, _| {
        let scrape = scrape.fetch_add(1, Relaxed);
        let lines =
            (0..series).map(|number| format!("evil_total{{scrape=\"{scrape}\",number=\"{number}\"}} 1\n"));
        let page = "# TYPE evil_total counter\n".to_owned() + &lines.collect::<String>();
        let length = page.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n{page}"
        )
    })
}
