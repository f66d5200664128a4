//! Options under `service::telemetry`.

use crate::config::Ordered;

crate::options! {
    /// tidegate's own telemetry.
    pub struct Config {
        /// What tidegate logs.
        pub logs: Logs = Logs::default(),
        /// What it counts.
        pub metrics: Metrics = Metrics::default(),
        /// Attributes added to its own telemetry.
        pub resource: Ordered<String> = Ordered::default(),
    }
}

crate::options! {
    /// Logs of tidegate itself, to standard error.
    pub struct Logs {
        /// The least severe level that is logged.
        pub level: Level = Level::Info,
        /// Lines for people, or JSON objects.
        pub encoding: Encoding = Encoding::Console,
    }
}

crate::options! {
    /// Metrics of tidegate itself, for Prometheus to scrape.
    pub struct Metrics {
        /// `none` serves nothing; the other levels are one today.
        pub level: Detail = Detail::Normal,
        /// Where they are served, at `/metrics`.
        pub address: String = "localhost:8888".to_owned(),
        /// The Collector's newer spelling; the first `pull` reader with a Prometheus exporter wins over `address`.
        pub readers: Vec<Reader> = Vec::new(),
    }
}

crate::options! {
    /// A reader of tidegate's own metrics.
    pub struct Reader {
        /// Served for a scraper.
        pub pull: Option<Pull> = None,
    }
}

crate::options! {
    /// A pull reader.
    pub struct Pull {
        /// How it is served.
        pub exporter: PullExporter = PullExporter::default(),
    }
}

crate::options! {
    /// Exporters of a pull reader.
    pub struct PullExporter {
        /// The Prometheus format.
        pub prometheus: Option<Listen> = None,
    }
}

crate::options! {
    /// Where to listen.
    pub struct Listen {
        /// Host name or address.
        pub host: String = "localhost".to_owned(),
        /// TCP port.
        pub port: u16 = 8888,
    }
}

crate::choices! {
    /// Log levels.
    pub enum Level {
        /// Everything.
        Debug = "debug" | "DEBUG",
        /// What an operator wants to know.
        Info = "info" | "INFO",
        /// What needs attention soon.
        Warn = "warn" | "WARN",
        /// What is broken.
        Error = "error" | "ERROR",
    }
}

crate::choices! {
    /// Log formats.
    pub enum Encoding {
        /// Lines for people.
        Console = "console",
        /// A JSON object a line.
        Json = "json",
    }
}

crate::choices! {
    /// How much is measured.
    pub enum Detail {
        /// Nothing is served.
        None = "none",
        /// The essentials.
        Basic = "basic",
        /// The default.
        Normal = "normal",
        /// Everything.
        Detailed = "detailed",
    }
}

impl Metrics {
    /// `host:port` to serve on; `None` when nothing is to be served.
    pub fn endpoint(&self) -> Option<String> {
        if self.level == Detail::None {
            return None;
        }
        let pull = self
            .readers
            .iter()
            .find_map(|reader| reader.pull.as_ref()?.exporter.prometheus.as_ref());
        Some(pull.map_or_else(
            || self.address.clone(),
            |listen| format!("{}:{}", listen.host, listen.port),
        ))
    }
}
