// SPDX-License-Identifier: Apache-2.0

//! The subjects, and the configurations by which they all do the same.

use std::path::Path;
use std::process::Command;

/// A program that is fed series and shows them.
pub(in crate::groups) struct ScrapeSubject {
    pub(in crate::groups) name: &'static str,
    pub(in crate::groups) fed: Fed,
    /// Name and text of its configuration, in which `TARGET`, `OTLP` and `PORT` stand for ports.
    config: (&'static str, &'static str),
    /// Arguments, in which `CONFIG` and `DIR` stand for paths as well.
    arguments: &'static str,
    /// Where it shows what it has.
    pub(in crate::groups) path: &'static str,
}

/// How series come to a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::groups) enum Fed {
    /// It scrapes them.
    Scraping,
    /// OTLP over HTTP is pushed to it.
    Otlp,
}

/// The ports in a program's configuration.
#[derive(Clone, Copy)]
pub(in crate::groups) struct Ports {
    /// Of the target.
    pub(in crate::groups) target: u16,
    /// Where it takes OTLP.
    pub(in crate::groups) otlp: u16,
    /// Where it shows what it has.
    pub(in crate::groups) shown: u16,
}

const SCRAPES: (&str, &str) = (
    "config.yaml",
    "receivers:
  prometheus: {config: {scrape_configs: [{job_name: bench, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:TARGET']}]}]}}
exporters: {prometheus: {endpoint: '127.0.0.1:PORT'}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [prometheus], exporters: [prometheus]}}
",
);

const TAKES_OTLP: (&str, &str) = (
    "config.yaml",
    "receivers: {otlp: {protocols: {http: {endpoint: '127.0.0.1:OTLP'}}}}
exporters: {prometheus: {endpoint: '127.0.0.1:PORT'}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [otlp], exporters: [prometheus]}}
",
);

/// With queries, which keep no past.
const ANSWERS_QUERIES: (&str, &str) = (
    "config.yaml",
    "extensions: {admin: {endpoint: '127.0.0.1:TARGET', history: {enabled: false}}}
receivers: {otlp: {protocols: {http: {endpoint: '127.0.0.1:OTLP'}}}}
exporters: {prometheus: {endpoint: '127.0.0.1:PORT'}}
service:
  extensions: [admin]
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [otlp], exporters: [prometheus]}}
",
);

/// As both servers read it.
const SERVER: (&str, &str) = (
    "prometheus.yml",
    "scrape_configs: [{job_name: bench, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:TARGET']}]}]\n",
);

const FEDERATE: &str = "/federate?match[]=%7B__name__=~%22bench_.*%22%7D";

const TELEGRAF: (&str, &str) = (
    "telegraf.conf",
    "[agent]\n  interval = \"1s\"\n  flush_interval = \"1s\"\n  metric_batch_size = 100000\n  metric_buffer_limit = 200000\n\
     [[inputs.prometheus]]\n  urls = [\"http://127.0.0.1:TARGET/metrics\"]\n  metric_version = 2\n\
     [[outputs.prometheus_client]]\n  listen = \"127.0.0.1:PORT\"\n  metric_version = 2\n",
);

/// A subject with the collector's configuration.
const fn collector(name: &'static str, fed: Fed, arguments: &'static str) -> ScrapeSubject {
    ScrapeSubject {
        name,
        fed,
        config: match fed {
            Fed::Scraping => SCRAPES,
            Fed::Otlp => TAKES_OTLP,
        },
        arguments,
        path: "/metrics",
    }
}

pub(in crate::groups) const OURSELVES: [ScrapeSubject; 2] = [
    collector("tidegate", Fed::Scraping, "run --config CONFIG"),
    collector("tidegate", Fed::Otlp, "run --config CONFIG"),
];

/// Ourselves with the extension that answers queries, at the port of the target.
pub(in crate::groups) const WITH_ADMIN: ScrapeSubject = ScrapeSubject {
    config: ANSWERS_QUERIES,
    ..collector("tidegate with admin", Fed::Otlp, "run --config CONFIG")
};

pub(in crate::groups) const PEERS: [ScrapeSubject; 7] = [
    collector("otelcol", Fed::Scraping, "--config CONFIG"),
    collector("otelcol", Fed::Otlp, "--config CONFIG"),
    collector("otelcol-contrib", Fed::Scraping, "--config CONFIG"),
    collector("otelcol-contrib", Fed::Otlp, "--config CONFIG"),
    ScrapeSubject {
        name: "prometheus",
        fed: Fed::Scraping,
        config: SERVER,
        arguments: "--config.file=CONFIG --storage.tsdb.path=DIR/data --web.listen-address=127.0.0.1:PORT",
        path: FEDERATE,
    },
    ScrapeSubject {
        name: "victoria-metrics",
        fed: Fed::Scraping,
        config: SERVER,
        arguments: "-promscrape.config=CONFIG -storageDataPath=DIR/data -httpListenAddr=127.0.0.1:PORT",
        path: FEDERATE,
    },
    ScrapeSubject {
        name: "telegraf",
        fed: Fed::Scraping,
        config: TELEGRAF,
        arguments: "--config CONFIG",
        path: "/metrics",
    },
];

impl ScrapeSubject {
    /// Whether it is the OpenTelemetry Collector, in whatever distribution.
    pub(in crate::groups) fn is_collector(&self) -> bool {
        self.name.starts_with("otelcol")
    }

    /// How it is started, with its files in this directory.
    pub(in crate::groups) fn command(
        &self,
        binary: &Path,
        directory: &Path,
        ports: Ports,
    ) -> std::io::Result<Command> {
        let with_ports = |text: &str| {
            text.replace("TARGET", &ports.target.to_string())
                .replace("OTLP", &ports.otlp.to_string())
                .replace("PORT", &ports.shown.to_string())
        };
        let (name, text) = self.config;
        let config = directory.join(name);
        std::fs::write(&config, with_ports(text))?;
        let mut command = Command::new(binary);
        for argument in self.arguments.split(' ') {
            let argument = with_ports(argument).replace("CONFIG", &config.to_string_lossy());
            command.arg(argument.replace("DIR", &directory.to_string_lossy()));
        }
        // There is one core for it.
        command.env("GOMAXPROCS", "1");
        Ok(command)
    }
}
