// SPDX-License-Identifier: Apache-2.0

//! The examples of `examples.yaml`, one of each component type.

use crate::config::{Class, Node, Problems, parse_text};

const EXAMPLES: &str = include_str!("examples.yaml");

/// The example of a component type, under the name of its section.
pub(super) fn text_of(class: Class, kind: &str) -> Option<String> {
    let section = class.section();
    let lines = EXAMPLES.lines();
    let mut lines = lines
        .skip_while(|line| line.strip_suffix(':') != Some(section))
        .skip(1)
        .take_while(|line| line.starts_with(' '));
    let begin = format!("  {kind}:");
    let first = lines.find(|line| line.starts_with(&begin))?;
    // Its options are further to the right than its name.
    let options = lines.take_while(|line| line.starts_with("   "));
    let text: Vec<_> = std::iter::once(first).chain(options).collect();
    Some(format!("{section}:\n{}\n", text.join("\n")))
}

/// All examples.
pub(super) fn root() -> Option<Node> {
    parse_text("examples.yaml", EXAMPLES, &mut Problems::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::components::all;

    #[test]
    fn every_component_has_an_example_that_it_accepts() {
        let root = root().unwrap();
        for about in all() {
            let (section, kind) = (about.class.section(), about.kind);
            let text = text_of(about.class, kind);
            let text = text.unwrap_or_else(|| panic!("add {section}::{kind} to examples.yaml"));
            assert!(text.starts_with(&format!("{section}:\n  {kind}:")), "{text}");
            let mut problems = Problems::default();
            let node = root.get(section).and_then(|section| section.get(kind)).unwrap();
            let settings = (about.config.decode)(node, &mut problems);
            assert!(settings.is_some() && !problems.has_errors(), "{text}{problems}");
        }
    }

    #[test]
    fn every_example_is_of_a_component() {
        let root = root().unwrap();
        let known = all();
        for section in root.as_map().unwrap() {
            for example in section.value.as_map().unwrap() {
                let is_known = known
                    .iter()
                    .any(|about| about.class.section() == section.key && about.kind == example.key);
                assert!(is_known, "{}::{}", section.key, example.key);
            }
        }
    }
}
