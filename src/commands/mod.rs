// SPDX-License-Identifier: Apache-2.0

//! The subcommands, one file each. A command prints for people; everything below it returns errors.

mod broken_runtime;
pub mod cardinality;
pub mod client;
pub mod cluster;
pub mod completion;
pub mod components;
pub mod composites;
pub mod config;
pub mod explain;
mod fetch;
pub mod graph;
pub mod load;
mod man;
pub mod output;
pub mod plugin_host;
pub mod query;
pub mod quickstart;
mod reload;
pub mod ring;
pub mod run;
pub mod support_bundle;
pub mod tap;
mod terminal;
pub mod test;
pub mod top;
pub mod validate;
pub mod version;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A telemetry gateway for AI-inference clusters.
///
/// Drains NVIDIA NIXL telemetry out of shared memory, takes OTLP and Unix-socket events, aggregates across
/// ranks, answers composites at any instant, and serves Prometheus, OTLP vendors and files. Configured by one
/// YAML file in the OpenTelemetry Collector's shape.
///
/// Without a subcommand it runs, as the Collector does: `tidegate --config gateway.yaml`.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    propagate_version = false,
    max_term_width = 100,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(flatten)]
    run: run::RunArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway with a configuration
    Run(run::RunArgs),
    /// Run a demonstration: a simulated 8-rank NIXL node, read, aggregated and served on this machine
    Quickstart(quickstart::QuickstartArgs),
    /// Check a configuration and build its graph, without starting it
    Validate(validate::ValidateArgs),
    /// Run tests of a configuration: inputs at given times, and what must come of them
    Test(test::TestArgs),
    /// Print the pipelines of a configuration as text or as a picture, without starting them
    Graph(graph::GraphArgs),
    /// Print the effective configuration or its JSON Schema, format files, or convert those of other programs
    Config(config::ConfigCommandArgs),
    /// List the components of this binary with their signals, stability and options
    Components(components::ComponentsArgs),
    /// Query a running gateway with PromQL
    Query(query::QueryArgs),
    /// Show the composites of a running gateway, and their changes
    Composites(composites::CompositesArgs),
    /// Explain the origin of a series in a running gateway: sources, rule, state, resets
    Explain(explain::ExplainArgs),
    /// Count the series of a running gateway by metric, label and source
    Cardinality(cardinality::CardinalityArgs),
    /// Show the clusters of a running gateway, with their producers
    Cluster(cluster::ClusterArgs),
    /// Show the components of a running gateway, with rates, queues and drops, as they change
    Top(top::TopArgs),
    /// Show what enters or leaves a component of a running gateway, item by item
    Tap(tap::TapArgs),
    /// Inspect NIXL ring files and multi-process stores, and simulate agents that write them
    Ring(ring::RingArgs),
    /// Write the facts that a report of a problem needs to a new directory, without secrets
    SupportBundle(support_bundle::SupportBundleArgs),
    /// The process of a plugin, which the gateway starts
    #[command(hide = true)]
    PluginHost(plugin_host::PluginHostArgs),
    /// Print the manual page tidegate(1), with all commands and options
    Man,
    /// Print version and build information
    Version,
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
}

impl Cli {
    /// Runs the command of the process's arguments.
    pub fn main() -> ExitCode {
        let result = match Self::try_parse() {
            Ok(cli) => cli.run(),
            Err(help) if !help.use_stderr() => {
                output::note(help.print());
                Ok(())
            }
            Err(error) => error.exit(),
        };
        let mut code = ExitCode::SUCCESS;
        // Both: the report of the command may be in the output that is lost.
        for failure in [result, output::finish()].into_iter().filter_map(Result::err) {
            if !matches!(failure, Failure::Reported) {
                eprintln!("tidegate: {failure}");
            }
            code = ExitCode::FAILURE;
        }
        code
    }

    fn run(self) -> Result<(), Failure> {
        match self.command.unwrap_or(Command::Run(self.run)) {
            Command::Run(args) => run::run(&args),
            Command::Quickstart(args) => quickstart::run(&args),
            Command::Validate(args) => validate::run(&args),
            Command::Test(args) => test::run(&args),
            Command::Graph(args) => graph::run(&args),
            Command::Config(args) => config::run(&args),
            Command::Components(args) => components::run(&args),
            Command::Query(args) => query::run(&args),
            Command::Composites(args) => composites::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Cardinality(args) => cardinality::run(&args),
            Command::Cluster(args) => cluster::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Tap(args) => tap::run(&args),
            Command::Ring(args) => ring::run(&args),
            Command::SupportBundle(args) => support_bundle::run(&args),
            Command::PluginHost(args) => plugin_host::run(&args),
            Command::Man => man::run(),
            Command::Version => version::run(),
            Command::Completion(args) => completion::run(&args),
        }
    }
}

/// Why a command ends with exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The problems have been printed already.
    #[error("the configuration has errors")]
    Reported,
    /// A component could not be started.
    #[error(transparent)]
    Component(#[from] crate::component::ComponentError),
    /// The operating system said no.
    #[error("{what}: {error}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// Anything else that is worth one line.
    #[error("{0}")]
    Message(String),
}

impl Failure {
    /// For `map_err`: the system's error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io {
            what: what.into(),
            error,
        }
    }
}
