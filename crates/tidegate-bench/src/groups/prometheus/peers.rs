//! Who scrapes a target and shows what it has found to somebody else: tidegate, and its peers as far as they are on
//! PATH. Processor time a series for both, each once a second.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Error;
use crate::gateway::free_port;
use crate::http::Scraper;
use crate::process::Process;
use crate::report::Row;
use crate::stats::Samples;

/// Series of the target.
const SERIES: usize = 50_000;
const WINDOW: Duration = Duration::from_secs(5);
const WINDOWS: usize = 3;
/// How long a peer may take until it shows everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that scrapes and shows.
struct Subject {
    name: &'static str,
    /// Name and text of its configuration, in which `TARGET` and `PORT` stand for ports.
    config: (&'static str, &'static str),
    /// Arguments, in which `CONFIG`, `PORT` and `DIR` stand for what they say.
    arguments: &'static str,
    /// Where it shows what it has found.
    path: &'static str,
}

const COLLECTOR: (&str, &str) = (
    "config.yaml",
    "receivers:
  prometheus: {config: {scrape_configs: [{job_name: bench, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:TARGET']}]}]}}
exporters: {prometheus: {endpoint: '127.0.0.1:PORT'}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [prometheus], exporters: [prometheus]}}
",
);

const OURSELVES: Subject = Subject {
    name: "tidegate",
    config: COLLECTOR,
    arguments: "run --config CONFIG",
    path: "/metrics",
};

const PEERS: [Subject; 5] = [
    Subject {
        name: "otelcol",
        config: COLLECTOR,
        arguments: "--config CONFIG",
        path: "/metrics",
    },
    Subject {
        name: "otelcol-contrib",
        config: COLLECTOR,
        arguments: "--config CONFIG",
        path: "/metrics",
    },
    Subject {
        name: "prometheus",
        config: (
            "prometheus.yml",
            "scrape_configs: [{job_name: bench, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:TARGET']}]}]\n",
        ),
        arguments: "--config.file=CONFIG --storage.tsdb.path=DIR/data --web.listen-address=127.0.0.1:PORT",
        path: "/federate?match[]=%7B__name__=~%22bench_.*%22%7D",
    },
    Subject {
        name: "telegraf",
        config: (
            "telegraf.conf",
            "[agent]\n  interval = \"1s\"\n  flush_interval = \"1s\"\n  metric_batch_size = 100000\n  metric_buffer_limit = 200000\n\
             [[inputs.prometheus]]\n  urls = [\"http://127.0.0.1:TARGET/metrics\"]\n\
             [[outputs.prometheus_client]]\n  listen = \"127.0.0.1:PORT\"\n",
        ),
        arguments: "--config CONFIG",
        path: "/metrics",
    },
    Subject {
        name: "vector",
        config: (
            "vector.yaml",
            "sources: {in: {type: prometheus_scrape, endpoints: ['http://127.0.0.1:TARGET/metrics'], scrape_interval_secs: 1}}\n\
             sinks: {out: {type: prometheus_exporter, inputs: [in], address: '127.0.0.1:PORT'}}\n",
        ),
        arguments: "--config CONFIG",
        path: "/metrics",
    },
];

/// Known by name only: it shows nothing of what it scrapes.
const ONLY_SENDS: &str = "vmagent";

pub(super) fn rows(tidegate: &Path) -> Result<Vec<Row>, Error> {
    let target = serve_a_target()?;
    let mut rows = measure(&OURSELVES, tidegate, target)?;
    let found = PEERS.iter().filter_map(|peer| Some((peer, on_path(peer.name)?)));
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        let names = PEERS.map(|peer| peer.name).join(", ");
        println!("  no peer on PATH: none of {names}");
    }
    for (peer, binary) in found {
        match measure(peer, &binary, target) {
            Ok(measured) => rows.extend(measured),
            Err(error) => println!("  left out, {}: {error}", peer.name),
        }
    }
    if on_path(ONLY_SENDS).is_some() {
        println!("  {ONLY_SENDS} is on PATH, and is not measured: it does not show what it scrapes");
    }
    Ok(rows)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|binary| binary.is_file())
}

fn measure(subject: &Subject, binary: &Path, target: u16) -> Result<Vec<Row>, Error> {
    let directory = TempDir::new()?;
    let port = free_port()?;
    let (name, text) = subject.config;
    let config = directory.path().join(name);
    let with_ports = |text: &str| {
        text.replace("TARGET", &target.to_string())
            .replace("PORT", &port.to_string())
    };
    std::fs::write(&config, with_ports(text))?;
    let mut command = Command::new(binary);
    for argument in subject.arguments.split(' ') {
        let argument = argument.replace("CONFIG", &config.to_string_lossy());
        let argument = argument.replace("DIR", &directory.path().to_string_lossy());
        command.arg(with_ports(&argument));
    }
    command.env("GOMAXPROCS", "1");
    let process = Process::start(command, directory)?;
    let mut scraper = wait_for_all(port, subject.path)?;
    let mut costs = Vec::new();
    for _ in 0..WINDOWS {
        let (cpu, begun) = (process.cpu()?, Instant::now());
        let mut scrapes = 0;
        while begun.elapsed() < WINDOW {
            scraper.get()?;
            scrapes += 1;
            std::thread::sleep(
                Duration::from_secs(1).saturating_sub(begun.elapsed() - Duration::from_secs(scrapes - 1)),
            );
        }
        let cpu = process.cpu()? - cpu;
        costs.push(cpu.as_secs_f64() * 1e9 / (scrapes as f64 * SERIES as f64));
    }
    let named = |what: &str| format!("{}, scrapes {SERIES} series and shows them: {what}", subject.name);
    Ok(vec![
        Row::median(named("processor time a series"), Samples::new(costs), "ns"),
        Row::value(named("memory"), process.memory_mib()?.0, "MiB"),
    ])
}

/// Waits until all series are shown.
fn wait_for_all(port: u16, path: &str) -> Result<Scraper, Error> {
    let begun = Instant::now();
    loop {
        if let Ok(mut scraper) = Scraper::connect(port, path)
            && let Ok(page) = scraper.get()
            && page.lines().filter(|line| line.starts_with("bench_")).count() >= SERIES
        {
            return Ok(scraper);
        }
        if begun.elapsed() > PATIENCE {
            return Err("it does not show what it was to scrape".into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Answers every request with one page. The thread ends with the process.
fn serve_a_target() -> Result<u16, Error> {
    let mut page = String::new();
    for metric in 0..SERIES / 500 {
        let _ = writeln!(page, "# TYPE bench_things_{metric}_total counter");
        for agent in 0..500 {
            let node = agent / 8;
            let _ = writeln!(
                page,
                "bench_things_{metric}_total{{agent_name=\"agent_{agent}\",hostname=\"node-{node}\"}} {}",
                metric * agent
            );
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let page: Arc<str> = page.into();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let page = page.clone();
            std::thread::spawn(move || answer(&stream, &page));
        }
    });
    Ok(port)
}

/// Answers until the other side has enough.
fn answer(stream: &TcpStream, page: &str) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        loop {
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
        }
        let length = page.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n{page}"
        )?;
    }
}
