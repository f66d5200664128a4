// SPDX-License-Identifier: Apache-2.0

//! `graph`: the pipelines of a configuration, as text or as a picture.
//!
//! `model` has the names and connections of the components. `text`, `dot`, `mermaid` and `svg` write one format each. `layout`
//! chooses the positions for `svg`.

mod dot;
mod layout;
mod mermaid;
mod model;
mod svg;
mod text;

use self::model::Diagram;
use super::{Failure, load, validate};
use crate::print_line;

/// Arguments of `graph`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Checks the configuration as `validate` does, with the same exit codes. Prints only the names of \
components.\n\nExamples:\n  tidegate graph --config gateway.yaml\n  \
tidegate graph --config gateway.yaml --format svg > pipelines.svg"
)]
pub struct GraphArgs {
    #[command(flatten)]
    config: load::ConfigArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    format: GraphFormat,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum GraphFormat {
    /// Lines of at most 80 characters
    Text,
    /// Input of Graphviz
    Dot,
    /// A flowchart for Markdown
    Mermaid,
    /// A picture for browsers
    Svg,
}

/// Loads and checks the configuration, and prints its pipelines.
///
/// # Errors
/// The configuration has errors, a component can't be built, or the runtime can't start.
pub fn run(args: &GraphArgs) -> Result<(), Failure> {
    let (plan, problems) = validate::check(&args.config)?;
    eprint!("{problems}");
    let diagram = Diagram::of(&plan.ok_or(Failure::Reported)?);
    let text = match args.format {
        GraphFormat::Text => text::render(&diagram),
        GraphFormat::Dot => dot::render(&diagram),
        GraphFormat::Mermaid => mermaid::render(&diagram),
        GraphFormat::Svg => svg::render(&diagram),
    };
    print_line!("{}", text.trim_end());
    Ok(())
}

#[cfg(test)]
mod testing {
    use super::model::Diagram;
    use crate::commands::load;
    use crate::config::Loader;

    /// Two pipelines with a connector between them. A third shares a receiver and an exporter with them. An exporter has a
    /// name with odd characters, and no pipeline uses the receiver `nop/idle`.
    const CONFIGURATION: &str = r#"yaml:
extensions: {health_check: {}, admin: {}}
receivers: {nop: {}, nop/a-b: {}, nop/idle: {}}
processors: {batch: {}, attributes: {actions: [{key: k, value: v, action: insert}]}}
exporters:
  otlp/a-b: {endpoint: "localhost:1", tls: {insecure: true}}
  'nop/<"odd" & \b>': {}
connectors: {forward: {}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics/in: {receivers: [nop, nop/a-b], processors: [attributes, batch], exporters: [forward]}
    metrics/out: {receivers: [forward], exporters: [otlp/a-b]}
    logs: {receivers: [nop], processors: [batch], exporters: [otlp/a-b, 'nop/<"odd" & \b>']}
"#;

    pub(super) fn diagram() -> Diagram {
        diagram_of(CONFIGURATION)
    }

    pub(super) fn diagram_of(configuration: &str) -> Diagram {
        let loaded = load::load_from(Loader::default().config(configuration));
        let loaded = loaded.unwrap_or_else(|_| panic!("{configuration} should load"));
        Diagram::of(&loaded.plan)
    }
}
