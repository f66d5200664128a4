// SPDX-License-Identifier: Apache-2.0

//! The extension `admin`, which the commands `top`, `tap` and `query` ask. Files of other programs do not have it.

use crate::config::{Class, Node, NodeValue, Problems, parse_text};
use crate::extensions::admin::FACTORY;

/// The address that commands ask by default, and the permission for `tidegate tap`.
const OPTIONS: &str = "{endpoint: \"127.0.0.1:8080\", tap: true}";

/// Options that decide who may read.
const OWN: [&str; 3] = ["auth", "endpoint", "tap"];

/// The remark for a configuration without the extension.
const MISSING: &str = "note: commands such as `tidegate top` query the extension `admin`, which the file lacks: \
`--with-admin` adds it";

/// The remark for a configuration that has got the options.
const ADDED: &str = "note: `admin` listens on 127.0.0.1:8080 with `tap: true`: all users of the machine can read the data. \
Add `auth`, or remove `tap`, if they must not";

/// Adds the extension with its options, if that is wanted. Returns the remark about it.
///
/// An extension with one of [`OWN`] stays as it is: its file decides who may read.
pub(super) fn complete(root: &mut Node, is_wanted: bool) -> Option<&'static str> {
    let started = started(root);
    if !is_wanted {
        return started.is_none().then_some(MISSING);
    }
    let is_started = started.is_some();
    let id = started.unwrap_or_else(|| FACTORY.kind.to_owned());
    let is_open = add_options(root, &id);
    if !is_started {
        start(root, &id);
    }
    is_open.then_some(ADDED)
}

/// The id of the extension in the list of those that the gateway starts.
fn started(root: &Node) -> Option<String> {
    let extensions = root.get("service")?.get(Class::Extension.section())?;
    let mut ids = extensions.as_list()?.iter().filter_map(Node::as_str);
    let id = ids.find(|id| id.split('/').next() == Some(FACTORY.kind))?;
    Some(id.to_owned())
}

/// Whether the options were added.
fn add_options(root: &mut Node, id: &str) -> bool {
    let (section, span) = (Class::Extension.section(), root.span());
    if root.get(section).is_none_or(|section| section.as_map().is_none()) {
        root.set(section, Node::empty_map(span));
        // In the layout of files, `service` is the last section.
        if let Some(service) = root.take("service") {
            root.set("service", service);
        }
    }
    let Some(extensions) = root.get_mut(section) else {
        return false;
    };
    if extensions.get(id).is_none_or(|admin| admin.as_map().is_none()) {
        extensions.set(id, Node::empty_map(span));
    }
    let options = parse_text("admin.yaml", OPTIONS, &mut Problems::default());
    let (Some(admin), Some(options)) = (extensions.get_mut(id), options) else {
        return false;
    };
    let options = options.as_map().unwrap_or_default();
    let is_own = OWN.iter().any(|key| admin.get(key).is_some());
    for option in options.iter().filter(|_| !is_own) {
        admin.set(&option.key, option.value.clone());
    }
    !is_own
}

/// Adds the extension to the list of those that the gateway starts.
fn start(root: &mut Node, id: &str) {
    let (section, span) = (Class::Extension.section(), root.span());
    let Some(service) = root.get_mut("service") else {
        return;
    };
    if service.get(section).is_none_or(|list| list.as_list().is_none()) {
        service.set(section, Node::of_items(Vec::new(), span));
    }
    if let Some(NodeValue::List(started)) = service.get_mut(section).map(Node::value_mut) {
        started.push(Node::of_text(id, span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::print_yaml;

    /// The configuration with the extension, and the remark.
    fn completed(text: &str) -> (String, Option<&'static str>) {
        let mut root = parse_text("in.yaml", text, &mut Problems::default()).unwrap();
        let note = complete(&mut root, true);
        assert!(started(&root).is_some(), "{text}");
        (print_yaml(&root), note)
    }

    #[test]
    fn a_file_gets_the_extension_beside_its_own_ones() {
        let (own, _) = completed("{extensions: {zpages: }, service: {extensions: [zpages], pipelines: {}}}");
        let (without, note) = completed("{receivers: {}, service: {pipelines: {}}}");
        for (text, started) in [
            (&own, "zpages\n    - admin"),
            (&without, "extensions:\n    - admin"),
        ] {
            assert!(text.contains(started), "{text}");
            assert!(text.contains("tap: true"), "{text}");
        }
        assert_eq!(note, Some(ADDED));
        let sections = without.lines().filter(|line| !line.starts_with(' '));
        let sections: Vec<_> = sections.filter_map(|line| line.split(':').next()).collect();
        assert_eq!(sections, ["receivers", "extensions", "service"]);
    }

    #[test]
    fn options_that_the_file_has_for_the_extension_stay() {
        let not_started = "{extensions: {admin: {endpoint: \"127.0.0.1:1\"}}, service: {extensions: }}";
        let started = "{extensions: {admin/a: {endpoint: \"0.0.0.0:1\"}}, service: {extensions: [admin/a]}}";
        for (text, own) in [(not_started, "127.0.0.1:1"), (started, "0.0.0.0:1")] {
            let (text, note) = completed(text);
            assert!(text.contains(own) && !text.contains("tap"), "{text}");
            assert_eq!((note, text.matches("- admin").count()), (None, 1), "{text}");
        }
    }

    #[test]
    fn an_extension_with_other_options_gets_those_that_it_lacks() {
        let (text, note) =
            completed("{extensions: {admin: {history: {retention: 10m}}}, service: {extensions: [admin]}}");
        for part in ["retention:", "127.0.0.1:8080", "tap: true"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            (note, text.matches("- admin").count()),
            (Some(ADDED), 1),
            "{text}"
        );
    }

    #[test]
    fn only_a_file_without_the_extension_gets_the_advice() {
        for (started, expected) in [("[zpages]", Some(MISSING)), ("[admin/a]", None)] {
            let text = format!("{{service: {{extensions: {started}}}}}");
            let mut root = parse_text("in.yaml", &text, &mut Problems::default()).unwrap();
            let before = print_yaml(&root);
            assert_eq!(complete(&mut root, false), expected, "{started}");
            assert_eq!(print_yaml(&root), before);
        }
    }
}
