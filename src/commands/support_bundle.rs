// SPDX-License-Identifier: Apache-2.0

//! `support-bundle`: the facts that a report of a problem needs, as files in a new directory, without secrets.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

use super::client::{self, Client, GatewayArgs};
use super::{Failure, load, version};
use crate::config::{Decode, Problems, parse_text, print_redacted};
use crate::print_line;
use crate::telemetry::config::Metrics;

/// Arguments of `support-bundle`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The bundle has what the `admin` extension of a running gateway tells (its configuration, past reloads, the \
pipelines with the counters of all components, notices, its build), the gateway's own metrics, and facts about this machine. \
With `--config`, it also has the configuration of the files and its problems, which need no running gateway.\n\n\
Read the files before you send them: names of metrics, hosts, paths and pipelines are in them. Secrets, and \
values that came out of `${...}`, are not. The exit code is 1 if a part is missing; `missing.txt` says why.\n\n\
Example:\n  tidegate support-bundle --config gateway.yaml"
)]
pub struct SupportBundleArgs {
    /// Directory to create. It must not exist. Unset: `tidegate-support-` and the time, in the current directory
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Page of the gateway's own metrics: HOST:PORT, or a URL without a path. Unset: the page of `--config`, else that of
    /// the configuration that runs, else 127.0.0.1:8888
    #[arg(long, value_name = "ENDPOINT")]
    metrics: Option<String>,
    #[command(flatten)]
    config: load::ConfigArgs,
    #[command(flatten)]
    place: GatewayArgs,
}

/// Files of the bundle that have the answer of a page: the name, and the part as a JSON pointer. Empty: all of it.
type PageFiles = &'static [(&'static str, &'static str)];

/// The pages of the `admin` extension. Each is asked for once, so that its files fit each other.
const PAGES: [(&str, PageFiles); 7] = [
    (
        "/api/v1/status/config",
        &[(RUNNING, "/data/yaml"), ("reloads.json", "/data/reloads")],
    ),
    ("/api/v1/status/graph", &[("graph.json", "")]),
    ("/api/v1/status/buildinfo", &[("running-build.json", "")]),
    ("/api/v1/status/runtimeinfo", &[("runtime.json", "")]),
    ("/api/v1/status/flags", &[("flags.json", "")]),
    ("/api/v1/status/notices", &[("notices.json", "")]),
    ("/api/v1/status/cluster", &[("cluster.json", "")]),
];

/// Files of the system that say what the process has.
const SYSTEM_FILES: [&str; 6] = [
    "/etc/os-release",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/proc/meminfo",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/cpu.max",
];

/// Prefixes of variables whose names, and not values, are in the bundle.
const VARIABLES: [&str; 4] = ["TIDEGATE_", "OTEL_", "KUBERNETES_SERVICE_HOST", "NIXL_"];

/// The page of own metrics, if neither an option nor a configuration has one.
const OWN_METRICS: &str = "127.0.0.1:8888";

/// The help if nothing listens there.
const METRICS_HINT: &str =
    "name the page of the gateway's own metrics with `--metrics`, or its configuration with `--config`";

/// The file with the configuration that runs.
const RUNNING: &str = "running-config.yaml";

/// Writes the files, and prints the directory.
///
/// # Errors
/// The directory can't be made or written, or a part is missing.
pub fn run(args: &SupportBundleArgs) -> Result<(), Failure> {
    let mut bundle = Bundle::create(args.output.clone().unwrap_or_else(default_directory))?;
    bundle.write("version.txt", &version::text())?;
    bundle.write("environment.txt", &environment())?;
    let configured = if args.config.is_given() {
        bundle.add_config(&args.config)?
    } else {
        None
    };
    let pages = &mut bundle;
    let answered = client::run(&args.place, move |client| add_pages(pages, client));
    bundle.note("the pages of `admin`", answered);
    let metrics = args.metrics.clone().or(configured);
    let metrics = metrics.or_else(|| bundle.running.as_deref().and_then(page_of));
    let metrics = GatewayArgs::at(metrics.as_deref().unwrap_or(OWN_METRICS), METRICS_HINT);
    let page = &mut bundle;
    let answered = client::run(&metrics, move |client| add_metrics(page, client));
    bundle.note("own-metrics.txt", answered);
    bundle.finish()
}

fn default_directory() -> PathBuf {
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    PathBuf::from(format!("tidegate-support-{}", time.replace(':', "")))
}

/// The new directory.
struct Bundle {
    directory: PathBuf,
    /// The parts that are missing, with the reasons.
    missing: Vec<String>,
    /// The configuration that runs, with all secrets masked.
    running: Option<String>,
}

impl Bundle {
    /// Only the user may read it.
    fn create(directory: PathBuf) -> Result<Self, Failure> {
        let created = DirBuilder::new().mode(0o700).create(&directory);
        let name = directory.display();
        created.map_err(Failure::io(format!(
            "making the directory {name}; `--output` names a new one"
        )))?;
        Ok(Self {
            directory,
            missing: Vec::new(),
            running: None,
        })
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Failure> {
        let path = self.directory.join(file);
        fs::write(&path, text).map_err(Failure::io(format!("writing {}", path.display())))
    }

    /// Notes that a part is missing, if it is.
    fn note(&mut self, part: &str, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.missing.push(format!("{part}: {failure}"));
        }
    }

    /// Adds the configuration of the files, which the gateway may have refused, and what is wrong with it. Returns
    /// the address of its first page of own metrics.
    fn add_config(&mut self, config: &load::ConfigArgs) -> Result<Option<String>, Failure> {
        let checked = load::check(config);
        match checked.document.as_ref().filter(|_| checked.is_read) {
            Some(document) => {
                self.write("config.yaml", &print_redacted(&document.root, &checked.problems))?;
            }
            None => self
                .missing
                .push("config.yaml: a file can't be read; see `problems.txt`".to_owned()),
        }
        let problems = if checked.problems.is_empty() {
            "no problems\n".to_owned()
        } else {
            checked.problems.to_string()
        };
        self.write("problems.txt", &problems)?;
        Ok(checked.plan.and_then(|plan| first_page(&plan.telemetry.metrics)))
    }

    fn finish(self) -> Result<(), Failure> {
        let name = self.directory.display();
        print_line!("{name}");
        if self.missing.is_empty() {
            return Ok(());
        }
        self.write("missing.txt", &(self.missing.join("\n") + "\n"))?;
        Err(Failure::Message(format!(
            "parts are missing: see {name}/missing.txt"
        )))
    }
}

async fn add_pages(bundle: &mut Bundle, client: Client) -> Result<(), Failure> {
    for (path, files) in PAGES {
        let page = client.get(path, &[]).await;
        for (file, part) in files {
            match page.as_ref().map(|page| page.pointer(part)) {
                Ok(Some(Value::String(text))) => {
                    bundle.write(file, text)?;
                    if *file == RUNNING {
                        bundle.running = Some(text.clone());
                    }
                }
                Ok(Some(part)) => bundle.write(file, &format!("{part:#}"))?,
                Ok(None) => bundle
                    .missing
                    .push(format!("{file}: the answer of {path} has no {part}")),
                Err(failure) => bundle.missing.push(format!("{file}: {failure}")),
            }
        }
    }
    Ok(())
}

/// The address of the first page of own metrics.
fn first_page(metrics: &Metrics) -> Option<String> {
    let pages = metrics.pages().ok()?;
    pages.first().map(|(endpoint, _)| endpoint.to_string())
}

/// The same of a configuration as a text. `None`: its options can't be read, for example because they are masked.
fn page_of(yaml: &str) -> Option<String> {
    let mut problems = Problems::default();
    let root = parse_text(RUNNING, yaml, &mut problems)?;
    let telemetry = root.get("service").and_then(|service| service.get("telemetry"));
    let metrics = match telemetry.and_then(|telemetry| telemetry.get("metrics")) {
        Some(metrics) => Metrics::decode(metrics, &mut problems)?,
        None => Metrics::default(),
    };
    first_page(&metrics).filter(|_| !problems.has_errors())
}

async fn add_metrics(bundle: &mut Bundle, client: Client) -> Result<(), Failure> {
    let page = client.text("/metrics").await?;
    bundle.write("own-metrics.txt", &page)
}

/// The machine and the limits of the process.
fn environment() -> String {
    let system = rustix::system::uname();
    let mut text = format!(
        "system: {} {} {}\nuid: {}\n",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
        rustix::process::geteuid().as_raw(),
    );
    if let Ok(processors) = std::thread::available_parallelism() {
        text.push_str(&format!("processors: {processors}\n"));
    }
    let mut names: Vec<_> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    names.sort();
    text.push_str(&format!("variables that are set: {}\n", names.join(", ")));
    for file in SYSTEM_FILES {
        let content = fs::read_to_string(file).unwrap_or_else(|error| format!("can't be read: {error}"));
        text.push_str(&format!("\n{file}\n{}\n", content.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_that_runs_says_where_own_metrics_are() {
        let of = |metrics: &str| page_of(&format!("service: {{telemetry: {{metrics: {metrics}}}}}"));
        assert_eq!(of("{address: 127.0.0.1:9}").as_deref(), Some("127.0.0.1:9"));
        let pull = "{readers: [{pull: {exporter: {prometheus: {host: a, port: 9}}}}]}";
        assert_eq!(of(pull).as_deref(), Some("a:9"));
        assert_eq!(of("{level: none}"), None);
        assert_eq!(of("{address: \"[REDACTED]\"}"), None);
        assert_eq!(page_of("receivers: {nop: {}}"), first_page(&Metrics::default()));
    }
}
