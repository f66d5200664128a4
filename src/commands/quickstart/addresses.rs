// SPDX-License-Identifier: Apache-2.0

//! The addresses that listen, and the lines that show them.

use std::net::TcpListener;
use std::path::Path;

use crate::commands::Failure;

/// A listener of the configuration.
struct Listens {
    what: &'static str,
    option: &'static str,
    /// The usual port.
    port: u16,
    path: &'static str,
}

/// The listener of the page, which commands query too.
static ADMIN: Listens = Listens {
    what: "composites as JSON",
    option: "extensions.admin.endpoint",
    port: 8080,
    path: "/api/v1/composites",
};

/// All other listeners.
static OTHERS: [Listens; 5] = [
    Listens {
        what: "Prometheus scrape",
        option: "exporters.prometheus.endpoint",
        port: 9464,
        path: "/metrics",
    },
    Listens {
        what: "own metrics",
        option: "service.telemetry.metrics.address",
        port: 8888,
        path: "/metrics",
    },
    Listens {
        what: "health",
        option: "extensions.health_check.endpoint",
        port: 13133,
        path: "/",
    },
    Listens {
        what: "OTLP over gRPC, in",
        option: "receivers.otlp.protocols.grpc.endpoint",
        port: 4317,
        path: "",
    },
    Listens {
        what: "OTLP over HTTP, in",
        option: "receivers.otlp.protocols.http.endpoint",
        port: 4318,
        path: "",
    },
];

/// Arguments of three commands to try.
const TRY: [&str; 3] = [
    "top",
    "composites watch nixl_xfer_time_avg_10s",
    "query 'sum(rate(agent_tx_bytes_total[5s]))'",
];

/// A listener with the port that it gets.
struct ChosenPort {
    listens: &'static Listens,
    port: u16,
}

/// All listeners with their ports.
pub(super) struct Addresses {
    admin: ChosenPort,
    others: Vec<ChosenPort>,
}

impl Addresses {
    /// The usual ports where they are free, else any.
    ///
    /// # Errors
    /// There is no free port.
    pub(super) fn choose() -> Result<Self, Failure> {
        // All are bound until the last is chosen: no two get the same port.
        let mut bound = Vec::new();
        let mut choose = |listens: &'static Listens| -> Result<ChosenPort, Failure> {
            let usual = TcpListener::bind(("127.0.0.1", listens.port));
            let listener = usual.or_else(|_| TcpListener::bind(("127.0.0.1", 0)));
            let listener = listener.map_err(Failure::io("looking for a free port"))?;
            let address = listener.local_addr();
            let port = address.map_err(Failure::io("looking for a free port"))?.port();
            bound.push(listener);
            Ok(ChosenPort { listens, port })
        };
        Ok(Self {
            admin: choose(&ADMIN)?,
            others: OTHERS.iter().map(choose).collect::<Result<_, _>>()?,
        })
    }

    /// The settings of the configuration, as of `--set`.
    pub(super) fn settings(&self) -> Vec<String> {
        let setting = |one: &ChosenPort| format!("{}={}", one.listens.option, one.address());
        // All addresses are loopback, and the data are simulated: everybody on this machine may tap them.
        let tap = "extensions.admin.tap=true".to_owned();
        self.all().map(setting).chain([tap]).collect()
    }

    /// The lines that stay above the table: where to look, and what to try.
    pub(super) fn lines(&self, rings: &Path) -> Vec<String> {
        let admin = self.admin.address();
        let mut lines = vec![
            format!("http://{admin}/  the page of this gateway{}", self.admin.note()),
            "A simulated NIXL node of 8 ranks, read, aggregated and served. Ctrl-C stops it.".to_owned(),
        ];
        let addresses = self.all().map(|one| {
            // The first line has the note of the admin endpoint.
            let is_noted = one.listens.option == ADMIN.option;
            let note = if is_noted { String::new() } else { one.note() };
            let Listens { what, path, .. } = one.listens;
            format!("  {what:<20} http://{}{path}{note}", one.address())
        });
        lines.extend(addresses);
        lines.push(format!("  {:<20} {}", "rings", rings.display()));
        lines.push(format!(
            "Try in another terminal, after `export TIDEGATE_ADMIN={admin}`:"
        ));
        let program = program();
        lines.extend(TRY.iter().map(|arguments| format!("  {program} {arguments}")));
        lines
    }

    fn all(&self) -> impl Iterator<Item = &ChosenPort> {
        std::iter::once(&self.admin).chain(&self.others)
    }
}

impl ChosenPort {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Says that the usual port is taken, if it is.
    fn note(&self) -> String {
        match self.listens.port {
            usual if usual == self.port => String::new(),
            usual => format!("  ({usual} is taken)"),
        }
    }
}

/// The longest name of a program with which the commands fit.
const LONGEST_PROGRAM: usize = 32;

/// The program as it was called, if that is short and printable.
fn program() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let called = std::env::args().next();
    let called = called.filter(|name| name.len() <= LONGEST_PROGRAM && name.chars().all(is_plain));
    called.unwrap_or_else(|| "tidegate".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_80_columns_and_name_the_ports_that_are_taken() {
        let chosen = |listens: &'static Listens| ChosenPort {
            listens,
            port: 43_210,
        };
        let addresses = Addresses {
            admin: chosen(&ADMIN),
            others: OTHERS.iter().map(chosen).collect(),
        };
        let lines = addresses.lines(Path::new("/dev/shm/tidegate-quickstart-4194304"));
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        // With eight ranks and the names of the columns, they fit 24 rows.
        assert!(lines.len() <= 15, "{lines:#?}");
        assert!(lines[0].starts_with("http://127.0.0.1:43210/ "), "{}", lines[0]);
        let text = lines.join("\n");
        for port in [8080, 9464, 8888, 13133, 4317, 4318] {
            assert_eq!(
                text.matches(&format!("({port} is taken)")).count(),
                1,
                "{port}: {text}"
            );
        }
        assert!(text.contains("export TIDEGATE_ADMIN=127.0.0.1:43210`"), "{text}");
        assert_eq!(addresses.settings().len(), 7);
    }
}
