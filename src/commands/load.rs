// SPDX-License-Identifier: Apache-2.0

//! The loading that `run`, `validate` and `config` share: from `--config` and `--set` to a plan, with every problem on
//! standard error.

use std::io;
use std::path::Path;

use super::validate::{self, Listening};
use super::{Failure, components, fetch};
use crate::component::files;
use crate::config::{At, Class, Document, Loader, MAX_FILE_BYTES, Problems, Registry, print_redacted};
use crate::service::Plan;
use crate::service::graph::BuildError;
use crate::telemetry::config::Level;

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// A YAML file. Several files are merged (maps deeply, lists as a whole); later ones override earlier ones. Also
    /// `env:VARIABLE`, `yaml:TEXT`, `http://...` and `https://...`
    #[arg(long = "config", short = 'c', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    configs: Vec<String>,
    /// Override one value of all files, for example `--set exporters.prometheus.endpoint=0.0.0.0:9464`
    #[arg(long = "set", value_name = "A.B.C=VALUE")]
    sets: Vec<String>,
    /// The Collector's switches for unfinished features. tidegate has none, and accepts them with a warning
    #[arg(long = "feature-gates", value_name = "GATES", allow_hyphen_values = true)]
    feature_gates: Vec<String>,
}

impl ConfigArgs {
    /// Whether the command line has a configuration.
    pub fn is_given(&self) -> bool {
        !self.configs.is_empty() || !self.sets.is_empty()
    }

    /// The loader for what was given.
    pub fn loader(&self) -> Loader<'static> {
        let loader = self.configs.iter().fold(Loader::default(), |loader, config| {
            if is_url(config) {
                fetched(loader, config)
            } else {
                loader.config(config)
            }
        });
        self.sets
            .iter()
            .fold(loader, |loader, set| loader.set(set.as_str()))
    }
}

impl ConfigArgs {
    /// The files that the configuration is read from.
    pub fn files(&self) -> Vec<std::path::PathBuf> {
        let is_file =
            |config: &&String| !is_url(config) && !config.starts_with("env:") && !config.starts_with("yaml:");
        let path = |config: &String| config.strip_prefix("file:").unwrap_or(config).into();
        self.configs.iter().filter(is_file).map(path).collect()
    }
}

fn is_url(config: &str) -> bool {
    config.starts_with("http://") || config.starts_with("https://")
}

fn fetched(loader: Loader<'static>, url: &str) -> Loader<'static> {
    match fetch::text(url) {
        Ok(text) => loader.text(fetch::without_credentials(url), text),
        Err(why) => loader.failed(format!("--config {}: {why}", fetch::without_credentials(url))),
    }
}

/// A configuration, with all that is wrong with it.
pub struct Checked {
    /// The configuration as far as it could be read.
    pub document: Option<Document>,
    /// Whether all files and arguments could be read.
    pub is_read: bool,
    /// The plan of the pipelines to build; `None` if there are errors.
    pub plan: Option<Plan>,
    /// Everything found.
    pub problems: Problems,
}

/// A configuration without errors.
pub struct Loaded {
    /// The plan of the pipelines to build.
    pub plan: Plan,
    /// The configuration as YAML, with all secrets masked.
    pub shown: String,
    /// The log level of the command line.
    level: Option<Level>,
    document: Document,
    problems: Problems,
}

/// Loads and checks; prints nothing. It reads pipes to their ends, such as `/dev/stdin` and that of `<(...)`, and waits for the
/// programs that write them.
pub fn check(args: &ConfigArgs) -> Checked {
    check_with(args.loader(), &args.feature_gates)
}

/// The same for a gateway that runs. It reads regular files only: nobody may write to a pipe again.
pub fn check_again(args: &ConfigArgs) -> Checked {
    check_with(args.loader().reader(read_again), &args.feature_gates)
}

/// The text of a regular file.
fn read_again(path: &Path) -> io::Result<String> {
    let bytes = files::read(path, MAX_FILE_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            let why = "not a regular file: a reload can't read it again. Restart the gateway, or use a file";
            io::Error::new(error.kind(), why)
        }
        _ => error,
    })?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// Loads; prints all problems when there are errors.
///
/// # Errors
/// `Reported`: the configuration has errors.
pub fn load(args: &ConfigArgs) -> Result<Loaded, Failure> {
    check(args).loaded()
}

/// The same, from a loader.
///
/// # Errors
/// `Reported`: the configuration has errors.
pub fn load_from(loader: Loader<'_>) -> Result<Loaded, Failure> {
    check_loader(loader).loaded()
}

/// Loads and checks what a loader has; prints nothing.
pub fn check_loader(loader: Loader<'_>) -> Checked {
    check_with(loader, &[])
}

fn check_with(loader: Loader<'_>, feature_gates: &[String]) -> Checked {
    let loaded = loader.load(&Kinds);
    let mut problems = loaded.problems;
    if !feature_gates.is_empty() {
        let message = "accepted without effect: tidegate has no feature gates";
        problems.at_span(None, "--feature-gates").warning(message);
    }
    let document = loaded.document;
    let plan = document
        .as_ref()
        .and_then(|document| Plan::resolve(document, &mut problems));
    Checked {
        document,
        is_read: loaded.is_read,
        plan: plan.filter(|_| !problems.has_errors()),
        problems,
    }
}

impl Checked {
    /// The configuration, or all problems as a text.
    ///
    /// # Errors
    /// The configuration has errors.
    pub fn into_loaded(self) -> Result<Loaded, String> {
        let problems = self.problems.to_string();
        self.loaded_quietly().ok_or(problems)
    }

    fn loaded(self) -> Result<Loaded, Failure> {
        self.into_loaded().map_err(|problems| {
            eprint!("{problems}");
            Failure::Reported
        })
    }

    fn loaded_quietly(self) -> Option<Loaded> {
        let is_valid = !self.problems.has_errors();
        let (plan, document) = self.plan.filter(|_| is_valid).zip(self.document)?;
        Some(Loaded {
            plan,
            // The options are decoded: it is known which of them are secrets.
            shown: print_redacted(&document.root, &self.problems),
            level: None,
            document,
            problems: self.problems,
        })
    }

    /// Prints all problems.
    ///
    /// # Errors
    /// `Reported`: the configuration has errors.
    pub fn print_problems(&self) -> Result<(), Failure> {
        eprint!("{}", self.problems);
        match self.plan {
            Some(_) => Ok(()),
            None => Err(Failure::Reported),
        }
    }
}

impl Loaded {
    /// Overrides the log level of the configuration by that of the command line, if this has one.
    pub(super) fn override_level(&mut self, level: Option<Level>) {
        self.level = level;
        if let Some(level) = level {
            self.plan.telemetry.logs.level = level;
        }
    }

    /// The log level of the command line.
    pub(super) fn level(&self) -> Option<Level> {
        self.level
    }

    /// What its components listen on.
    pub(super) fn listening(&self) -> Listening {
        validate::listening(&self.document, &self.plan)
    }

    /// The addresses and sockets that this machine can't give it now. Those that the gateway itself holds are among them.
    pub(super) fn unavailable_listeners(&self) -> Problems {
        let mut problems = self.problems.without_findings();
        validate::check_listeners(&self.document, &self.plan, &mut problems);
        problems
    }

    /// Logs the warnings, for a gateway that runs.
    pub fn log_warnings(&self) {
        for problem in self.problems.sorted() {
            tracing::warn!(path = problem.path, help = problem.help, "{}", problem.message);
        }
    }

    /// Prints what components said when they could not be built, each at its place in the file.
    pub fn build_failed(&mut self, errors: Vec<BuildError>) -> Failure {
        eprint!("{}", self.build_failed_text(errors));
        Failure::Reported
    }

    /// The same as a text.
    pub fn build_failed_text(&mut self, errors: Vec<BuildError>) -> String {
        note_errors(&self.plan, errors, &mut self.problems);
        self.problems.to_string()
    }

    /// Notes what is worth saying of components that could be built.
    pub fn build_warned(&mut self, warnings: Vec<BuildError>) {
        note_warnings(&self.plan, warnings, &mut self.problems);
    }
}

/// Notes the errors of components that could not be built, each at its place in the file.
pub fn note_errors(plan: &Plan, errors: Vec<BuildError>, problems: &mut Problems) {
    for error in errors {
        let (at, message) = locate(plan, error, problems);
        at.error(message);
    }
}

/// Notes the warnings of components that could be built, each at its place in the file.
pub fn note_warnings(plan: &Plan, warnings: Vec<BuildError>, problems: &mut Problems) {
    for warning in warnings {
        let (at, message) = locate(plan, warning, problems);
        at.warning(message);
    }
}

fn locate<'a>(plan: &Plan, error: BuildError, problems: &'a mut Problems) -> (At<'a>, String) {
    let BuildError { class, id, error } = error;
    let span = plan.span_of(class, &id);
    let path = format!("{}::{id}", class.section());
    (problems.at_span(span, path), error.message)
}

/// The component types of this binary.
pub struct Kinds;

impl Registry for Kinds {
    fn kinds(&self, class: Class) -> Vec<&str> {
        let of_class = components::all().into_iter().filter(|about| about.class == class);
        of_class
            .flat_map(|about| std::iter::once(about.kind).chain(about.aliases.iter().copied()))
            .collect()
    }
}
