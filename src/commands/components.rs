// SPDX-License-Identifier: Apache-2.0

//! `components`: the components of this binary, from the same lists that check the configuration.

mod about;
mod drop_reasons;
mod examples;
mod json;
pub mod service;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use self::about::{About, all};
use super::Failure;
use super::client::printable;
use crate::config::{Class, OptionDoc, yaml_text};
use crate::exporters;
use crate::print_line;

/// Arguments of `components`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidegate components\n  tidegate components otlphttp\n  tidegate components exporter otlphttp --json"
)]
pub struct ComponentsArgs {
    /// Only this class (receiver, processor, exporter, connector or extension), or a type with its options
    class: Option<String>,
    /// Only this type
    kind: Option<String>,
    /// Also list each component's options with type, default and meaning
    #[arg(long)]
    options: bool,
    /// Print JSON: also an example of each component, its own metrics, its errors and the reasons of its drops
    #[arg(long)]
    json: bool,
}

/// Prints YAML: classes, types, signals, and options where asked. Prints JSON where asked, always with options.
///
/// # Errors
/// The first argument is neither a class nor a type of component, or the class has no such type.
pub fn run(args: &ComponentsArgs) -> Result<(), Failure> {
    let components = all();
    let named = |word: &String| components.iter().any(|about| about.kind == word);
    // A type alone is as good as its class before it, and then its options are what is asked for.
    let only_kind = args
        .class
        .as_ref()
        .filter(|word| args.kind.is_none() && named(word));
    let classes = match &args.class {
        Some(word) if only_kind.is_none() => vec![class_of(word)?],
        _ => Class::ALL.to_vec(),
    };
    let kind = only_kind.or(args.kind.as_ref());
    let has = |kind: &String| {
        let mut of_classes = components.iter().filter(|about| classes.contains(&about.class));
        of_classes.any(|about| about.kind == kind)
    };
    if let (Some(class), Some(kind)) = (&args.class, kind)
        && !has(kind)
    {
        return Err(Failure::Message(format!(
            "`{class}` has no type `{kind}`: `tidegate components {class}` lists its types"
        )));
    }
    let with_options = args.options || only_kind.is_some();
    if args.json {
        let is_wanted =
            |about: &&About| classes.contains(&about.class) && kind.is_none_or(|kind| about.kind == kind);
        let wanted: Vec<_> = components.iter().filter(is_wanted).copied().collect();
        print_line!("{:#}", json::document(&wanted));
        return Ok(());
    }
    for class in classes {
        let wanted = |about: &&About| about.class == class && kind.is_none_or(|kind| about.kind == kind);
        let mut wanted = components.iter().filter(wanted).peekable();
        if only_kind.is_none() || wanted.peek().is_some() {
            print_line!("{}:", class.section());
        }
        for line in wanted.flat_map(|about| lines(about, with_options)) {
            print_line!("{line}");
        }
    }
    Ok(())
}

fn class_of(word: &str) -> Result<Class, Failure> {
    let known = |class: &Class| class.as_str() == word || class.section() == word;
    Class::ALL.into_iter().find(known).ok_or_else(|| {
        Failure::Message(format!(
            "`{word}` is neither a type nor a class (receiver, processor, exporter, connector, extension)"
        ))
    })
}

/// The lines of YAML of a component.
fn lines(about: &About, with_options: bool) -> Vec<String> {
    let mut lines = vec![format!("  - name: {}", yaml_text(about.kind))];
    if !about.aliases.is_empty() {
        let aliases: Vec<_> = about.aliases.iter().map(|alias| yaml_text(alias)).collect();
        lines.push(format!("    aliases: [{}]", aliases.join(", ")));
    }
    lines.push(format!("    description: {}", yaml_text(about.help)));
    let levels = about.levels();
    let levels: Vec<_> = levels
        .map(|(of, level)| format!("{of}: {}", yaml_text(level)))
        .collect();
    lines.push(format!("    stability: {{{}}}", levels.join(", ")));
    if with_options {
        lines.push("    options:".to_owned());
        let options = (about.config.docs)();
        add_options(&options, 6, &mut lines);
        let vendors = exporters::vendor::describe(&options);
        if !vendors.is_empty() {
            lines.push("    vendors:".to_owned());
            lines.extend(vendors.iter().map(|vendor| format!("      {vendor}")));
        }
    }
    lines
}

fn add_options(options: &[OptionDoc], indent: usize, lines: &mut Vec<String>) {
    for option in options {
        let default = option.default.as_deref().unwrap_or("required");
        let help = if option.is_without_effect {
            format!("accepted without effect: {}", option.help)
        } else {
            option.help.clone()
        };
        let comment = format!("{}; {default}; {help}", option.type_help.name);
        // A line break would end the comment.
        let comment = printable(&comment);
        lines.push(format!("{:indent$}{}: # {comment}", "", yaml_text(option.name)));
        add_options(&option.nested(), indent + 2, lines);
    }
}
