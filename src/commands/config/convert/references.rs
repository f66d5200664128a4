// SPDX-License-Identifier: Apache-2.0

//! The lists of a configuration that name components.

use crate::config::{Class, Entry, Node, NodeValue};

/// A component by its class and its id as written.
pub(super) type ComponentKey = (Class, String);

/// The lists of a pipeline, with the classes of components that each may name.
const PARTS: [(&str, &[Class]); 3] = [
    ("receivers", &[Class::Receiver, Class::Connector]),
    ("processors", &[Class::Processor]),
    ("exporters", &[Class::Exporter, Class::Connector]),
];

/// Removes removed components from all lists.
pub(super) fn remove_references(root: &mut Node, removed: &[ComponentKey]) {
    change_lists(root, &mut |classes: &[Class], items: &mut Vec<Node>| {
        items.retain(|item| {
            let is_item =
                |(class, id): &ComponentKey| classes.contains(class) && item.as_str() == Some(id.as_str());
            !removed.iter().any(is_item)
        });
    });
}

/// Renames exporters in all lists. Each pair is the old id and the new one.
pub(super) fn rename_exporters(root: &mut Node, renamed: &[(String, String)]) {
    change_lists(root, &mut |classes: &[Class], items: &mut Vec<Node>| {
        if !classes.contains(&Class::Exporter) {
            return;
        }
        for item in items {
            let mut names = renamed.iter();
            let name = names.find(|(old, _)| item.as_str() == Some(old.as_str()));
            if let Some((_, new)) = name {
                *item = Node::of_text(new, item.span());
            }
        }
    });
}

/// The pipelines in written order.
pub(super) fn pipelines(root: &mut Node) -> Option<&mut Vec<Entry>> {
    let pipelines = root.get_mut("service")?.get_mut("pipelines")?;
    match pipelines.value_mut() {
        NodeValue::Map(entries) => Some(entries),
        _ => None,
    }
}

fn change_lists(root: &mut Node, change: &mut dyn FnMut(&[Class], &mut Vec<Node>)) {
    let mut change_list = |list: Option<&mut Node>, classes: &[Class]| {
        if let Some(NodeValue::List(items)) = list.map(Node::value_mut) {
            change(classes, items);
        }
    };
    for pipeline in pipelines(root).into_iter().flatten() {
        for (part, classes) in PARTS {
            change_list(pipeline.value.get_mut(part), classes);
        }
    }
    let service = root.get_mut("service");
    let extensions = service.and_then(|service| service.get_mut("extensions"));
    change_list(extensions, &[Class::Extension]);
}
