// SPDX-License-Identifier: Apache-2.0

//! `config convert`: a configuration of a Collector, of Prometheus or of vmagent as one of tidegate.
//!
//! `collector` and `prometheus` write a draft. `prune` checks the draft as the gateway does, and removes what is not valid.
//! All that changes or gets lost goes into the `report`.

mod admin;
mod alerting;
mod collector;
mod prometheus;
mod prune;
mod references;
mod remote_write;
mod report;
mod vendors;

#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tidegate_runtime::files::is_inherited;

use self::report::Report;
use crate::commands::Failure;
use crate::commands::validate::counted;
use crate::config::{Class, Loader, Node, Problems, Span, print_yaml};
use crate::print_line;

/// Arguments of `config convert`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The configuration is on standard output. Standard error has one line for each thing that it \
changes or can't carry over, with the replacement, and a last line with counts. `${env:NAME}` stays a reference. \
Secrets in the file are in the output too. Comments are lost.\n\nExit code 0 when at least one pipeline was converted, \
1 otherwise. With `--strict`, 1 also when anything was changed or left out.\n\nExamples:\n  \
tidegate config convert otelcol.yaml --with-admin > gateway.yaml\n  tidegate config convert prometheus.yml --output gateway.yaml\n  \
tidegate config convert scrape.yml --from vmagent --remote-write-url http://vm:8428/api/v1/write"
)]
pub(super) struct ConvertArgs {
    /// The configuration of the other program
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The program that reads the file. Without it, the sections of the file decide
    #[arg(long, value_enum)]
    from: Option<SourceFormat>,
    /// The file to write, instead of standard output. It must not exist. It gets mode 0600: it may have secrets
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A value of vmagent's `-remoteWrite.url`. Repeat it for several
    #[arg(long = "remote-write-url", value_name = "URL")]
    remote_write_urls: Vec<String>,
    /// Add the extension `admin` on 127.0.0.1:8080, which `top`, `tap` and `query` ask
    #[arg(long)]
    with_admin: bool,
    /// Exit with code 1 if anything was changed or left out
    #[arg(long)]
    strict: bool,
}

/// The program that a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SourceFormat {
    /// An OpenTelemetry Collector
    Collector,
    /// Prometheus: prometheus.yml
    Prometheus,
    /// vmagent: the file of `-promscrape.config`
    Vmagent,
}

/// The sections that only files of a Collector have.
const COLLECTOR_SECTIONS: [&str; 3] = ["receivers", "exporters", "service"];

/// The sections that only files of Prometheus and vmagent have.
const PROMETHEUS_SECTIONS: [&str; 6] = [
    "global",
    "scrape_configs",
    "scrape_config_files",
    "remote_write",
    "rule_files",
    "alerting",
];

/// Converts the file, and reports all that changes or can't be carried over.
pub(super) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let mut problems = Problems::default();
    let root = Loader::default().file(&args.file).unresolved(&mut problems);
    let Some(root) = root.filter(|_| !problems.has_errors()) else {
        eprint!("{problems}");
        return Err(Failure::Reported);
    };
    check_output(args)?;
    let format = format(args, &root)?;
    let mut report = Report::default();
    let mut converted = convert(root, format, &args.remote_write_urls, &problems, &mut report);
    let note = converted
        .as_mut()
        .and_then(|root| admin::complete(root, args.with_admin));
    eprint!("{}", report.text(problems.sources()));
    let Some(root) = converted else {
        eprintln!("nothing could be converted: no pipeline has both a receiver and an exporter");
        return Err(Failure::Reported);
    };
    write(&print_yaml(&root), args.output.as_deref())?;
    if let Some(note) = note {
        eprintln!("{note}");
    }
    let (changed, left_out) = (report.changed(), report.left_out());
    let counts = counts(&root);
    eprintln!("converted: {counts}; with a change: {changed}; left out: {left_out}");
    if args.strict && changed + left_out > 0 {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// The configuration of tidegate, or `None` if no pipeline is left.
fn convert(
    root: Node,
    format: SourceFormat,
    urls: &[String],
    problems: &Problems,
    report: &mut Report,
) -> Option<Node> {
    let draft = match format {
        SourceFormat::Collector => collector::draft(root, report),
        SourceFormat::Prometheus => prometheus::draft(root, urls, false, report),
        SourceFormat::Vmagent => prometheus::draft(root, urls, true, report),
    };
    prune::valid(draft, problems, report)
}

/// The format that was asked for, or that the sections of the file show.
fn format(args: &ConvertArgs, root: &Node) -> Result<SourceFormat, Failure> {
    let has = |sections: &[&str]| sections.iter().any(|section| root.get(section).is_some());
    let urls = &args.remote_write_urls;
    let guess = match (has(&COLLECTOR_SECTIONS), has(&PROMETHEUS_SECTIONS)) {
        (true, false) => Some(SourceFormat::Collector),
        (false, true) if urls.is_empty() => Some(SourceFormat::Prometheus),
        (false, true) => Some(SourceFormat::Vmagent),
        _ => None,
    };
    if let Some(why) = args.from.and_then(|from| contradiction(from, guess)) {
        return Err(Failure::Message(why));
    }
    let format = args.from.or(guess).ok_or_else(|| {
        let message = "can't tell which program the file is for: add `--from collector`, `--from prometheus` or \
                       `--from vmagent`";
        Failure::Message(message.to_owned())
    })?;
    if format == SourceFormat::Collector && !urls.is_empty() {
        let message = "`--remote-write-url` is for files of vmagent and Prometheus";
        return Err(Failure::Message(message.to_owned()));
    }
    Ok(format)
}

/// Why a file can't be for the program of `--from`: it has sections of the other one, and none of this one.
fn contradiction(from: SourceFormat, guess: Option<SourceFormat>) -> Option<String> {
    let is_collector = |format: SourceFormat| format == SourceFormat::Collector;
    let guess = guess.filter(|guess| is_collector(*guess) != is_collector(from))?;
    let named = |sections: &[&str]| sections.join("`, `");
    let (collector, prometheus) = (named(&COLLECTOR_SECTIONS), named(&PROMETHEUS_SECTIONS));
    Some(if is_collector(guess) {
        format!(
            "the file is for a Collector: files of Prometheus and vmagent have `{prometheus}`, and this one has some of \
             `{collector}`: add `--from collector`"
        )
    } else {
        format!(
            "the file is for Prometheus or vmagent: files of a Collector have `{collector}`, and this one has some of \
             `{prometheus}`: add `--from prometheus` or `--from vmagent`"
        )
    })
}

/// Refuses to write over a file. It may be the one that is read, of which not all is carried over.
fn check_output(args: &ConvertArgs) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some(output) = args.output.as_deref() else {
        return Ok(());
    };
    let exists = real(output);
    if exists.is_some() && exists == real(&args.file) {
        let message = "`--output` is the file to convert: choose another name";
        return Err(Failure::Message(message.to_owned()));
    }
    if output.exists() && !is_stream(output) {
        let name = output.display();
        return Err(Failure::Message(format!(
            "`--output`: {name} exists: remove it, or choose another name"
        )));
    }
    Ok(())
}

fn write(text: &str, output: Option<&Path>) -> Result<(), Failure> {
    match output {
        Some(path) => write_file(path, text).map_err(Failure::io(format!("can't write {}", path.display()))),
        None => {
            print_line!("{}", text.trim_end());
            Ok(())
        }
    }
}

/// Writes a stream, or a new file that only the user may read, because it may have secrets.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(!is_stream(path)).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Whether a path is that of a pipe, a device or an open file, which are there before they are written.
fn is_stream(path: &Path) -> bool {
    is_inherited(path) || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// `2 pipelines, 3 receivers, 1 exporter`.
fn counts(root: &Node) -> String {
    let entries = |node: Option<&Node>| node.and_then(Node::as_map).map_or(0, <[_]>::len);
    let pipelines = root.get("service").and_then(|service| service.get("pipelines"));
    let sections = Class::ALL.map(|class| (entries(root.get(class.section())), class.as_str()));
    counted([(entries(pipelines), "pipeline")].into_iter().chain(sections))
}

/// A map of these entries.
fn map_of<const N: usize>(span: Span, entries: [(&str, Node); N]) -> Node {
    let mut map = Node::empty_map(span);
    for (key, value) in entries {
        map.set(key, value);
    }
    map
}
