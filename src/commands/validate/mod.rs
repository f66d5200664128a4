// SPDX-License-Identifier: Apache-2.0

//! `validate`: everything that can be known about a configuration without opening anything, and with `--env` what this
//! machine lacks for it.

mod env;
mod findings;

use std::sync::Arc;

use self::env::CheckCounts;
pub(super) use self::env::{Listening, check_listeners, listening};
use self::findings::Findings;
use super::Failure;
use super::load::{self, Checked};
use super::run::runtime;
use crate::component::Shared;
use crate::config::{Class, Problems};
use crate::print_line;
use crate::service::reload::parts_that_need_a_restart;
use crate::service::{Graph, Plan};

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 when the configuration can run, 1 otherwise. As text, problems are on standard \
error, and one line about a valid configuration is on standard output. The other forms are on standard \
output.\n\nExamples:\n  tidegate validate --config gateway.yaml\n  \
tidegate validate --config gateway.yaml --env\n  \
tidegate validate --config gateway.yaml --output github"
)]
pub struct ValidateArgs {
    #[command(flatten)]
    config: load::ConfigArgs,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = ValidateOutput::Text)]
    output: ValidateOutput,
    /// Also check this machine for the components that run: ports, sockets, directories, disks, certificates,
    /// secrets, limits and names. Starts nothing and changes nothing. Run it as the user of the gateway
    #[arg(long)]
    env: bool,
    /// With `--env`, also connect to the peers, with TLS where it is configured
    #[arg(long, requires = "env")]
    connect: bool,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ValidateOutput {
    /// For people, with the lines of the file
    Text,
    /// One object with `ok`, `problems` and `warnings`
    Json,
    /// Workflow commands of GitHub Actions, which annotate the file
    Github,
}

/// Loads, checks and builds the graph, and checks the machine if asked to; prints every problem found.
///
/// # Errors
/// The configuration has errors, a component can't be built, the machine lacks something, or the runtime can't start.
pub fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let mut checked = check_and_build(&args.config)?;
    let environment = if args.env {
        check_machine(&mut checked, args.connect)?
    } else {
        check_clashes(&mut checked);
        Environment::Unasked
    };
    let Checked { plan, problems, .. } = checked;
    let valid = plan.filter(|_| !problems.has_errors());
    match args.output {
        ValidateOutput::Text => {
            eprint!("{problems}");
            if let Some(plan) = &valid {
                print_line!("{}: valid: {}{}", names(&problems), counts(plan), restarts(plan));
            }
            if let Some(summary) = environment.summary() {
                print_line!("{summary}");
            }
        }
        ValidateOutput::Json => {
            let mut json = Findings::of(&problems).json();
            if let Environment::Checked(counts) = environment {
                json["environment"] = counts.json();
            }
            print_line!("{json:#}");
        }
        ValidateOutput::Github => {
            for command in Findings::of(&problems).workflow_commands() {
                print_line!("{command}");
            }
            if let Some(summary) = environment.summary() {
                print_line!("::notice::{summary}");
            }
        }
    }
    valid.map(drop).ok_or(Failure::Reported)
}

/// What is known about the machine.
enum Environment {
    Unasked,
    /// The configuration has errors: it is not known what it needs.
    Unchecked,
    Checked(CheckCounts),
}

impl Environment {
    /// The line for people.
    fn summary(&self) -> Option<String> {
        match self {
            Self::Unasked => None,
            Self::Unchecked => Some("environment: not checked, correct the configuration first".to_owned()),
            Self::Checked(counts) => Some(format!("environment: {counts}")),
        }
    }
}

/// Notes listeners that want the same address. A check of the machine does this with the addresses of host names.
fn check_clashes(checked: &mut Checked) {
    if let (Some(document), Some(plan)) = (&checked.document, &checked.plan) {
        env::check_clashes(document, plan, &mut checked.problems);
    }
}

/// Notes listeners that want the same address, apart from those of a configuration that runs. If this `is_whole`, it also
/// notes addresses and sockets that this machine can't give.
pub(super) fn check_new_listeners(checked: &mut Checked, running: &Listening, is_whole: bool) {
    if let (Some(document), Some(plan)) = (&checked.document, &checked.plan) {
        env::check_new_listeners(document, plan, running, is_whole, &mut checked.problems);
    }
}

/// Checks the machine, and notes what it lacks.
fn check_machine(checked: &mut Checked, connects: bool) -> Result<Environment, Failure> {
    let (Some(document), Some(plan)) = (&checked.document, &checked.plan) else {
        return Ok(Environment::Unchecked);
    };
    env::check(document, plan, connects, &mut checked.problems).map(Environment::Checked)
}

/// Loads, checks and builds the graph: the plan if it can run, and all problems. Prints nothing.
pub(super) fn check(config: &load::ConfigArgs) -> Result<(Option<Plan>, Problems), Failure> {
    let Checked { plan, problems, .. } = check_and_build(config)?;
    let valid = plan.filter(|_| !problems.has_errors());
    Ok((valid, problems))
}

fn check_and_build(config: &load::ConfigArgs) -> Result<Checked, Failure> {
    let mut checked = load::check(config);
    if let Some(plan) = &checked.plan {
        build(plan, &mut checked.problems)?;
    }
    Ok(checked)
}

/// Builds the graph, and notes what components report.
fn build(plan: &Plan, problems: &mut Problems) -> Result<(), Failure> {
    let shared = Arc::new(Shared::default());
    // Some clients ask for a runtime when they are made, although they open nothing before they are started.
    let runtime = runtime()?;
    let _entered = runtime.enter();
    match Graph::build(plan, &shared) {
        Ok(graph) => load::note_warnings(plan, graph.warnings, problems),
        Err(errors) => load::note_errors(plan, errors, problems),
    }
    Ok(())
}

/// The names of the files: `base.yaml, node.yaml`.
fn names(problems: &Problems) -> String {
    let names = problems.sources().names();
    let mut files: Vec<_> = names.filter(|name| *name != "--set").collect();
    files.dedup();
    files.join(", ")
}

/// `; changes of extensions::admin need a restart`.
fn restarts(plan: &Plan) -> String {
    match parts_that_need_a_restart(plan).as_slice() {
        [] => String::new(),
        parts => format!("; changes of {} need a restart", parts.join(", ")),
    }
}

/// `2 pipelines, 3 receivers, 1 exporter`.
fn counts(plan: &Plan) -> String {
    let counts = [
        (plan.pipelines.len(), "pipeline"),
        (plan.receivers.len(), Class::Receiver.as_str()),
        (plan.processors.len(), Class::Processor.as_str()),
        (plan.exporters.len(), Class::Exporter.as_str()),
        (plan.connectors.len(), Class::Connector.as_str()),
        (plan.extensions.len(), Class::Extension.as_str()),
    ];
    counted(counts)
}

/// `2 pipelines, 1 exporter` for counts of nouns. Nouns without a count are omitted.
pub(super) fn counted(counts: impl IntoIterator<Item = (usize, &'static str)>) -> String {
    let texts = counts.into_iter().filter_map(|(count, noun)| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::load::Kinds;
    use crate::config::Loader;

    #[test]
    fn a_summary_names_the_files_and_counts_the_parts() {
        let text = "{receivers: {nop: , nop/b: }, exporters: {nop: }, service: {pipelines: {
            logs: {receivers: [nop], exporters: [nop]}, traces: {receivers: [nop/b], exporters: [nop]}}}}";
        let loader = Loader::default().text("a.yaml", text).text("b.yaml", "# empty");
        let mut loaded = loader.set("service.drain_timeout=1s").load(&Kinds);
        let plan = Plan::resolve(&loaded.document.unwrap(), &mut loaded.problems).unwrap();
        assert_eq!(names(&loaded.problems), "a.yaml, b.yaml");
        assert_eq!(counts(&plan), "2 pipelines, 2 receivers, 1 exporter");
    }
}
