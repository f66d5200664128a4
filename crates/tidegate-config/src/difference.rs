// SPDX-License-Identifier: Apache-2.0

//! The keys whose values differ between two trees.

use super::node::Node;

/// The paths below `path` at which the two values differ, in the order of `from` and then of `to`. A key that only one of them
/// has is one path. Maps that differ in nothing but the order of their keys have no differences.
pub fn differences(path: &str, from: Option<&Node>, to: Option<&Node>) -> Vec<String> {
    let mut found = Vec::new();
    add(path, from, to, &mut found);
    found
}

fn add(path: &str, from: Option<&Node>, to: Option<&Node>, found: &mut Vec<String>) {
    if from == to {
        return;
    }
    let maps = from.and_then(Node::as_map).zip(to.and_then(Node::as_map));
    let (Some((old, new)), Some(from), Some(to)) = (maps, from, to) else {
        found.push(path.to_owned());
        return;
    };
    let added = new.iter().filter(|entry| from.get(&entry.key).is_none());
    for entry in old.iter().chain(added) {
        let below = format!("{path}::{}", entry.key);
        add(&below, from.get(&entry.key), to.get(&entry.key), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problems, parse_text};

    #[test]
    fn the_keys_that_differ_are_named_at_the_deepest_level() {
        let root = |text| parse_text("a.yaml", text, &mut Problems::default()).unwrap();
        let from = root("{logs: {level: info, encoding: json}, resource: {a: b}, list: [1, 2]}");
        for (text, expected) in [
            (
                "{resource: {a: b}, list: [1, 2], logs: {encoding: json, level: info}}",
                &[][..],
            ),
            (
                "{logs: {level: warn, encoding: json}, list: [1], metrics: {level: none}}",
                &["x::logs::level", "x::resource", "x::list", "x::metrics"][..],
            ),
            ("[1]", &["x"][..]),
        ] {
            assert_eq!(
                differences("x", Some(&from), Some(&root(text))),
                expected,
                "{text}"
            );
        }
        assert_eq!(differences("x", None, Some(&from)), ["x"]);
        assert!(differences("x", None, None).is_empty());
    }
}
