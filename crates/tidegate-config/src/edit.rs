// SPDX-License-Identifier: Apache-2.0

//! Changes of trees, for programs that write configurations.

use super::node::{Entry, Node, NodeValue, Path, Scalar, ScalarKind};
use super::source::Span;

impl Node {
    /// A map without entries. `span` is the position that problems with it show.
    pub fn empty_map(span: Span) -> Self {
        Self::new(NodeValue::Map(Vec::new()), span)
    }

    /// A list.
    pub fn of_items(items: Vec<Node>, span: Span) -> Self {
        Self::new(NodeValue::List(items), span)
    }

    /// A string.
    pub fn of_text(text: &str, span: Span) -> Self {
        Self::string(text, span)
    }

    /// `true` or `false`.
    pub fn of_bool(value: bool, span: Span) -> Self {
        let scalar = Scalar {
            kind: ScalarKind::Bool(value),
            text: value.to_string(),
            quoted: false,
        };
        Self::new(NodeValue::Scalar(scalar), span)
    }

    /// The value, for changes. Call [`Node::renew_paths`] on the root after them.
    pub fn value_mut(&mut self) -> &mut NodeValue {
        &mut self.value
    }

    /// The value of a key, for changes.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let NodeValue::Map(entries) = &mut self.value else {
            return None;
        };
        let mut entries = entries.iter_mut();
        entries
            .find(|entry| entry.key == key)
            .map(|entry| &mut entry.value)
    }

    /// Replaces the value of a key of a map, or adds the key at the end. Does nothing if this is not a map.
    pub fn set(&mut self, key: &str, value: Node) {
        if let Some(known) = self.get_mut(key) {
            *known = value;
        } else if let NodeValue::Map(entries) = &mut self.value {
            let key = key.to_owned();
            entries.push(Entry { key, value });
        }
    }

    /// Removes a key of a map, and gives its value.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        let NodeValue::Map(entries) = &mut self.value else {
            return None;
        };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at).value)
    }

    /// Removes all values below this one that `keep` refuses. It is not asked about values below a removed one.
    pub fn retain(&mut self, keep: &mut dyn FnMut(&Node) -> bool) {
        match &mut self.value {
            NodeValue::Scalar(_) => {}
            NodeValue::List(items) => {
                items.retain(&mut *keep);
                items.iter_mut().for_each(|item| item.retain(keep));
            }
            NodeValue::Map(entries) => {
                entries.retain(|entry| keep(&entry.value));
                entries.iter_mut().for_each(|entry| entry.value.retain(keep));
            }
        }
    }

    /// Changes the text of every string at and below this node.
    pub fn change_strings(&mut self, change: &dyn Fn(&str) -> String) {
        let is_string = self.as_str().is_some();
        match &mut self.value {
            NodeValue::Scalar(scalar) if is_string => scalar.text = change(&scalar.text),
            NodeValue::Scalar(_) => {}
            NodeValue::List(items) => items.iter_mut().for_each(|item| item.change_strings(change)),
            NodeValue::Map(entries) => {
                entries
                    .iter_mut()
                    .for_each(|entry| entry.value.change_strings(change));
            }
        }
    }

    /// Writes the paths of a changed tree. This node is its root.
    pub fn renew_paths(&mut self) {
        self.set_paths(Path::default());
    }
}

#[cfg(test)]
mod tests {
    use crate::{Node, Problems, parse_text, print_yaml};

    fn root(text: &str) -> Node {
        parse_text("a.yaml", text, &mut Problems::default()).unwrap()
    }

    #[test]
    fn keys_keep_their_order_when_values_change() {
        let mut node = root("{a: 1, b: 2, c: 3}");
        let span = node.span();
        node.set("b", Node::of_text("x", span));
        node.set("d", Node::empty_map(span));
        node.set("e", Node::of_bool(true, span));
        assert!(node.take("a").is_some() && node.take("a").is_none());
        assert_eq!(print_yaml(&node), "b: x\nc: 3\nd: {}\ne: true\n");
    }

    #[test]
    fn removed_values_are_gone_at_every_level_and_paths_follow() {
        let mut node = root("{a: [x, y, z], b: {c: x, d: y}}");
        node.retain(&mut |node| node.as_str() != Some("x"));
        node.renew_paths();
        assert_eq!(print_yaml(&node), "a:\n  - y\n  - z\nb:\n  d: y\n");
        let items = node.get("a").and_then(Node::as_list).unwrap();
        assert_eq!(items[1].path().to_string(), "a[1]");
    }

    #[test]
    fn only_strings_change() {
        let mut node = root("{a: [x, 1], b: {c: 'true'}}");
        node.change_strings(&|text| format!("<{text}>"));
        assert_eq!(print_yaml(&node), "a:\n  - \"<x>\"\n  - 1\nb:\n  c: \"<true>\"\n");
    }
}
