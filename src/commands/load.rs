//! What `run` and `validate` share: from `--config` and `--set` to a plan, with every problem on standard error.

use super::{Failure, components};
use crate::config::{At, Class, Loader, Problems, Registry};
use crate::service::Plan;
use crate::service::graph::BuildError;

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// A YAML file; several are merged, later ones win (maps deeply, lists as a whole). Also `env:VARIABLE` and
    /// `yaml:TEXT`
    #[arg(long = "config", short = 'c', value_name = "FILE")]
    configs: Vec<String>,
    /// Sets one value over all files, for example `--set exporters.prometheus.endpoint=0.0.0.0:9464`
    #[arg(long = "set", value_name = "A.B.C=VALUE")]
    sets: Vec<String>,
}

impl ConfigArgs {
    /// The loader for what was given.
    pub fn loader(&self) -> Loader<'static> {
        let loader = self
            .configs
            .iter()
            .fold(Loader::default(), |loader, config| loader.config(config));
        self.sets
            .iter()
            .fold(loader, |loader, set| loader.set(set.as_str()))
    }
}

/// A configuration without errors.
pub struct Loaded {
    /// What to build.
    pub plan: Plan,
    problems: Problems,
}

/// Loads; prints all problems when there are errors.
pub fn load(args: &ConfigArgs) -> Result<Loaded, Failure> {
    load_from(args.loader())
}

/// The same, from a loader.
pub fn load_from(loader: Loader<'_>) -> Result<Loaded, Failure> {
    let loaded = loader.load(&Kinds);
    let mut problems = loaded.problems;
    let plan = loaded
        .document
        .and_then(|document| Plan::resolve(&document, &mut problems));
    match plan.filter(|_| !problems.has_errors()) {
        Some(plan) => Ok(Loaded { plan, problems }),
        None => {
            eprint!("{problems}");
            Err(Failure::Reported)
        }
    }
}

impl Loaded {
    /// Prints the warnings.
    pub fn print_warnings(&self) {
        eprint!("{}", self.problems);
    }

    /// Logs the warnings, for a gateway that runs.
    pub fn log_warnings(&self) {
        for problem in self.problems.sorted() {
            tracing::warn!(path = problem.path, help = problem.help, "{}", problem.message);
        }
    }

    /// Prints what components said when they could not be built, each at its place in the file.
    pub fn build_failed(&mut self, errors: Vec<BuildError>) -> Failure {
        for error in errors {
            let (place, message) = self.place(error);
            place.error(message);
        }
        eprint!("{}", self.problems);
        Failure::Reported
    }

    /// Notes what is worth saying of components that could be built.
    pub fn build_warned(&mut self, warnings: Vec<BuildError>) {
        for warning in warnings {
            let (place, message) = self.place(warning);
            place.warning(message);
        }
    }

    fn place(&mut self, error: BuildError) -> (At<'_>, String) {
        let BuildError { class, id, error } = error;
        let span = self.plan.place(class, &id);
        let path = format!("{}::{id}", class.section());
        (self.problems.place(span, path), error.message)
    }
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
