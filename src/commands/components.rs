// SPDX-License-Identifier: Apache-2.0

//! `components`: the components of this binary, from the same lists that check the configuration.

mod drop_reasons;
mod examples;
mod json;
pub mod service;
#[cfg(test)]
mod testing;

use super::Failure;
use super::client::printable;
use crate::batch::Signal;
use crate::component::{ConfigType, ErrorDoc, Factory, Stability};
use crate::config::{Class, OptionDoc, yaml_text};
use crate::print_line;
use crate::{connectors, exporters, extensions, processors, receivers};

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

/// The description of a component type.
#[derive(Clone, Copy)]
pub struct About {
    /// Class of the component.
    pub class: Class,
    /// Type name.
    pub kind: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// Signals with stability. Empty for extensions.
    pub signals: &'static [(Signal, Stability)],
    /// The level of an extension.
    pub stability: Option<Stability>,
    /// One line.
    pub help: &'static str,
    /// Errors, in groups.
    pub errors: &'static [&'static [ErrorDoc]],
    /// Options.
    pub config: ConfigType,
}

impl About {
    fn of<B>(class: Class, factory: &'static Factory<B>) -> Self {
        Self::new(class, factory, factory.stability, None)
    }

    fn new<B, S>(
        class: Class,
        factory: &'static Factory<B, S>,
        signals: &'static [(Signal, Stability)],
        stability: Option<Stability>,
    ) -> Self {
        let Factory {
            kind,
            aliases,
            help,
            errors,
            config,
            ..
        } = factory;
        Self {
            class,
            kind,
            aliases,
            signals,
            stability,
            help,
            errors,
            config: *config,
        }
    }

    /// The signals with their levels. An extension has one level, at the name of its class.
    fn levels(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let signals = self
            .signals
            .iter()
            .map(|(signal, level)| (signal.name(), level.name()));
        let of_extension = self.stability.map(|level| (self.class.as_str(), level.name()));
        signals.chain(of_extension)
    }
}

/// Every component type of this binary, in the order of their lists.
pub fn all() -> Vec<About> {
    let mut all = Vec::new();
    all.extend(
        receivers::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Receiver, factory)),
    );
    all.extend(
        processors::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Processor, factory)),
    );
    all.extend(
        exporters::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Exporter, factory)),
    );
    all.extend(
        connectors::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Connector, factory)),
    );
    all.extend(
        extensions::FACTORIES
            .iter()
            .map(|factory| About::new(Class::Extension, factory, &[], Some(factory.stability))),
    );
    all
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::{Node, Problems, parse_text};
    use crate::telemetry;

    /// A component as the reader of configurations reads it from the list.
    fn read(about: &About) -> Node {
        let text = format!("all:\n{}\n", lines(about, true).join("\n"));
        let mut problems = Problems::default();
        let root = parse_text("components.yaml", &text, &mut problems);
        assert!(problems.is_empty(), "{text}\n{problems}");
        let root = root.expect("the list");
        let all = root.child("all").as_list().unwrap_or_default();
        all.first().expect("the component").clone()
    }

    #[test]
    fn the_list_of_components_is_yaml_with_their_texts() {
        for about in all() {
            let one = read(&about);
            assert_eq!(one.child("name").as_text(), Some(about.kind));
            assert_eq!(one.child("description").as_text(), Some(about.help));
            let listed = one.child("options").as_map().unwrap_or_default();
            let listed: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
            let options = (about.config.docs)();
            let names: Vec<_> = options.iter().map(|option| option.name).collect();
            assert_eq!(listed, names, "{}", about.kind);
        }
    }

    #[test]
    fn each_signal_and_each_extension_has_a_level() {
        for about in all() {
            let one = read(&about);
            let listed = one.child("stability").as_map().unwrap_or_default();
            let listed: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
            let mut expected: Vec<_> = about.signals.iter().map(|(signal, _)| signal.name()).collect();
            if about.class == Class::Extension {
                expected.push("extension");
            }
            assert!(!expected.is_empty(), "{}", about.kind);
            assert_eq!(listed, expected, "{}", about.kind);
        }
    }

    #[test]
    fn descriptions_that_look_like_other_yaml_are_read_as_texts() {
        let one = all()[0];
        for help in [
            "a # b", "- a", "[a", "{a", "a:", "a: b", "'a", "\"a", "&a", "*a", "!a", "| a", "> a", "% a",
            "@a", "`a", "true", "~", "1", "? a", "#a", " a ", "a\\b", "a\nb",
        ] {
            let read = read(&About { help, ..one });
            assert_eq!(read.child("description").as_text(), Some(help));
        }
    }

    fn rows(component: &str, path: &str, options: &[OptionDoc], table: &mut String) {
        for option in options {
            let path = match path {
                "" => option.name.to_owned(),
                path => format!("{path}::{}", option.name),
            };
            if option.is_without_effect {
                writeln!(table, "| {component} | `{path}` | {} |", option.help).unwrap();
            }
            rows(component, &path, &option.nested(), table);
        }
    }

    /// `UPDATE_GOLDEN=1` writes the table.
    #[test]
    fn the_documentation_lists_every_option_without_effect() {
        let mut table = String::from("| component | option | why |\n| --- | --- | --- |\n");
        for about in all() {
            let component = format!("`{}` ({})", about.kind, about.class.as_str());
            rows(&component, "", &(about.config.docs)(), &mut table);
        }
        rows(
            "`service::telemetry`",
            "",
            &telemetry::TelemetryConfig::options(),
            &mut table,
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/collector.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text
            .split_once("<!-- options without effect: begin -->\n")
            .unwrap();
        let (_, after) = rest.split_once("<!-- options without effect: end -->").unwrap();
        let expected = format!(
            "{before}<!-- options without effect: begin -->\n\n{table}\n<!-- options without effect: end -->{after}"
        );
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == expected,
            "docs/collector.md should have\n{table}"
        );
    }

    fn without_text(path: &str, options: &[OptionDoc], found: &mut Vec<String>) {
        for option in options {
            let path = format!("{path}::{}", option.name);
            // A text of one word repeats the name.
            if option.help.split_whitespace().count() < 2 {
                found.push(path.clone());
            }
            without_text(&path, &option.nested(), found);
        }
    }

    #[test]
    fn every_component_and_option_has_a_text() {
        let mut found = Vec::new();
        for about in all() {
            let path = format!("{}::{}", about.class.section(), about.kind);
            assert!(
                about.help.split_whitespace().count() > 2,
                "{path}: {}",
                about.help
            );
            without_text(&path, &(about.config.docs)(), &mut found);
        }
        without_text("service", &service::options(), &mut found);
        assert!(
            found.is_empty(),
            "write doc comments for these options, with units: {found:#?}"
        );
    }

    /// Components that report no errors of their own.
    const WITHOUT_ERRORS: &[(Class, &str)] = &[
        (Class::Receiver, "nop"),
        (Class::Processor, "attributes"),
        (Class::Processor, "resource"),
        (Class::Exporter, "nop"),
        (Class::Connector, "forward"),
        (Class::Extension, "headers_setter"),
        (Class::Extension, "memory_ballast"),
    ];

    fn is_sentence(text: &str) -> bool {
        text.starts_with(|first: char| first.is_uppercase() || first == '`')
            && text.ends_with('.')
            && text.split_whitespace().count() > 2
    }

    #[test]
    fn every_component_has_errors_with_texts() {
        for about in all() {
            let path = format!("{}::{}", about.class.section(), about.kind);
            let is_listed = WITHOUT_ERRORS.contains(&(about.class, about.kind));
            let errors = about.errors.concat();
            assert_eq!(errors.is_empty(), is_listed, "{path}");
            for error in errors {
                let has_symptom = !error.answer.is_empty() || !error.log.is_empty();
                assert!(has_symptom, "{path}: neither an answer nor a log line: {error:?}");
                assert!(is_sentence(error.case), "{path}: {error:?}");
                assert!(is_sentence(error.remedy), "{path}: {error:?}");
            }
        }
    }

    #[test]
    fn log_lines_of_errors_are_in_the_code() {
        let code = testing::code_without_errors();
        let mut found = 0;
        for error in all().iter().flat_map(|about| about.errors.concat()) {
            let is_there = error.log.is_empty() || code.contains(error.log);
            assert!(is_there, "no code logs this: {:?}", error.log);
            found += usize::from(!error.log.is_empty());
        }
        assert!(found > 80, "{found} lines");
    }

    /// The answers of HTTP and gRPC by their names in the code.
    const ANSWERS: &[(&[&str], &str)] = &[
        (&["StatusCode::BAD_REQUEST"], "400"),
        (&["StatusCode::UNAUTHORIZED"], "401"),
        (&["StatusCode::FORBIDDEN"], "403"),
        (&["StatusCode::NOT_FOUND"], "404"),
        (&["StatusCode::METHOD_NOT_ALLOWED"], "405"),
        (&["StatusCode::PAYLOAD_TOO_LARGE"], "413"),
        (&["StatusCode::UNSUPPORTED_MEDIA_TYPE"], "415"),
        (&["StatusCode::UNPROCESSABLE_ENTITY"], "422"),
        (&["StatusCode::TOO_MANY_REQUESTS"], "429"),
        (&["StatusCode::INTERNAL_SERVER_ERROR"], "500"),
        (&["StatusCode::NOT_IMPLEMENTED"], "501"),
        (&["StatusCode::SERVICE_UNAVAILABLE"], "503"),
        (&["Code::Cancelled", "Status::cancelled"], "CANCELLED"),
        (
            &["Code::FailedPrecondition", "Status::failed_precondition"],
            "FAILED_PRECONDITION",
        ),
        (&["Code::Internal", "Status::internal"], "INTERNAL"),
        (
            &["Code::InvalidArgument", "Status::invalid_argument"],
            "INVALID_ARGUMENT",
        ),
        (&["Code::NotFound", "Status::not_found"], "NOT_FOUND"),
        (
            &["Code::PermissionDenied", "Status::permission_denied"],
            "PERMISSION_DENIED",
        ),
        (
            &["Code::ResourceExhausted", "Status::resource_exhausted"],
            "RESOURCE_EXHAUSTED",
        ),
        (
            &["Code::Unauthenticated", "Status::unauthenticated"],
            "UNAUTHENTICATED",
        ),
        (&["Code::Unavailable", "Status::unavailable"], "UNAVAILABLE"),
        (&["Code::Unimplemented", "Status::unimplemented"], "UNIMPLEMENTED"),
    ];

    #[test]
    fn the_errors_have_each_status_that_the_code_answers_with() {
        let mut found = 0;
        for about in all() {
            // The statuses there are those that destinations answer with.
            if about.class == Class::Exporter && about.kind != "prometheus" {
                continue;
            }
            let Some(code) = testing::code_of_component(about.class, about.kind) else {
                continue;
            };
            let answers: Vec<_> = about.errors.concat().iter().map(|error| error.answer).collect();
            for (names, answer) in ANSWERS {
                if names.iter().any(|name| code.contains(name)) {
                    found += 1;
                    let is_listed = answers.iter().any(|listed| listed.contains(answer));
                    assert!(is_listed, "{}::{}: {answer}", about.class.section(), about.kind);
                }
            }
        }
        assert!(found >= 25, "{found} statuses");
    }

    /// The option at a path such as `protocols::grpc`.
    fn find(options: Vec<OptionDoc>, path: &str) -> Option<OptionDoc> {
        let (first, rest) = path
            .split_once("::")
            .map_or((path, None), |(first, rest)| (first, Some(rest)));
        let found = options.into_iter().find(|option| option.name == first)?;
        match rest {
            None => Some(found),
            Some(rest) => find(found.nested(), rest),
        }
    }

    #[test]
    fn the_documentation_has_the_defaults_of_the_binary() {
        let text = include_str!("../../docs/collector.md");
        let (_, rest) = text.split_once("<!-- defaults: begin -->").unwrap();
        let (table, _) = rest.split_once("<!-- defaults: end -->").unwrap();
        let mut rows = 0;
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let words: Vec<&str> = row.split('`').collect();
            let (kind, path, here) = (words[1], words[3], words[5]);
            let mut known = all().into_iter();
            let about = known.find(|about| about.kind == kind && words[2].contains(about.class.as_str()));
            let option = about.and_then(|about| find((about.config.docs)(), path));
            let option = option.unwrap_or_else(|| panic!("no such option: {row}"));
            assert_eq!(option.default.as_deref(), Some(here), "{row}");
            rows += 1;
        }
        assert!(rows >= 20, "{rows} rows");
    }
}
