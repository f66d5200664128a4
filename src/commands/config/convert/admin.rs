// SPDX-License-Identifier: Apache-2.0

//! The extension `admin`, which the commands `top`, `tap` and `query` ask. Files of other programs do not have it.

use crate::config::{Class, Node, NodeValue, Problems, parse_text};
use crate::extensions::admin::FACTORY;

/// The address that commands ask by default, and the permission for `tidegate tap`.
const OPTIONS: &str = "{endpoint: \"127.0.0.1:8080\", tap: true}";

/// The remark for a file without the extension.
pub(super) const MISSING: &str = "note: commands such as `tidegate top` query the extension `admin`, which the file \
lacks: `--with-admin` adds it";

/// The remark for a file that has got the extension.
pub(super) const ADDED: &str = "note: `admin` listens on 127.0.0.1:8080 with `tap: true`: all users of the machine can \
read the data. Add `auth`, or remove `tap`, if they must not";

/// Whether commands can query the gateway.
pub(super) fn is_in(root: &Node) -> bool {
    let extensions = root.get("service").and_then(|service| service.get("extensions"));
    let mut ids = extensions.and_then(Node::as_list).unwrap_or_default().iter();
    ids.any(|id| {
        id.as_str()
            .is_some_and(|id| id.split('/').next() == Some(FACTORY.kind))
    })
}

/// Adds the extension, and starts it. Options that the file has for it stay.
pub(super) fn add(root: &mut Node) {
    let (section, span) = (Class::Extension.section(), root.span());
    if root.get(section).is_none_or(|section| section.as_map().is_none()) {
        root.set(section, Node::empty_map(span));
        // In the layout of files, `service` is the last section.
        if let Some(service) = root.take("service") {
            root.set("service", service);
        }
    }
    let is_missing = root
        .get(section)
        .is_some_and(|map| map.get(FACTORY.kind).is_none());
    let options = parse_text("admin.yaml", OPTIONS, &mut Problems::default()).filter(|_| is_missing);
    if let (Some(extensions), Some(options)) = (root.get_mut(section), options) {
        extensions.set(FACTORY.kind, options);
    }
    let Some(service) = root.get_mut("service") else {
        return;
    };
    if service.get(section).is_none_or(|list| list.as_list().is_none()) {
        service.set(section, Node::of_items(Vec::new(), span));
    }
    if let Some(NodeValue::List(started)) = service.get_mut(section).map(Node::value_mut) {
        started.push(Node::of_text(FACTORY.kind, span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::print_yaml;

    fn with_admin(text: &str) -> String {
        let mut root = parse_text("in.yaml", text, &mut Problems::default()).unwrap();
        assert!(!is_in(&root), "{text}");
        add(&mut root);
        assert!(is_in(&root), "{text}");
        print_yaml(&root)
    }

    #[test]
    fn a_file_gets_the_extension_beside_its_own_ones() {
        let own = with_admin("{extensions: {zpages: }, service: {extensions: [zpages], pipelines: {}}}");
        let without = with_admin("{receivers: {}, service: {pipelines: {}}}");
        for (text, started) in [
            (&own, "zpages\n    - admin"),
            (&without, "extensions:\n    - admin"),
        ] {
            assert!(text.contains(started), "{text}");
            assert!(text.contains("tap: true"), "{text}");
        }
        let sections = without.lines().filter(|line| !line.starts_with(' '));
        let sections: Vec<_> = sections.filter_map(|line| line.split(':').next()).collect();
        assert_eq!(sections, ["receivers", "extensions", "service"]);
    }

    #[test]
    fn options_that_the_file_has_for_the_extension_stay() {
        let text = with_admin("{extensions: {admin: {endpoint: \"127.0.0.1:1\"}}, service: {extensions: }}");
        assert!(text.contains("127.0.0.1:1") && !text.contains("tap"), "{text}");
    }
}
