// SPDX-License-Identifier: Apache-2.0

//! The attributes of the gateway itself: a map, the Collector's older form, or the list of OpenTelemetry's
//! declarative configuration.

use crate::config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// Attributes in written order. `None` removes a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceConfig {
    /// Keys and values.
    pub attributes: Vec<(String, Option<String>)>,
    /// The schema of the attributes.
    pub schema_url: Option<String>,
}

crate::options! {
    /// An attribute in a list.
    struct Attribute {
        /// Name of the attribute.
        pub name: String = required,
        /// Value of the attribute; null removes a default.
        pub value: AnyText = AnyText::default(),
        /// Type of the value. The gateway sends all values as text.
        pub r#type: Option<String> = None,
    }
}

/// A scalar as it was written; lists are joined by commas.
#[derive(Clone, Debug, Default, PartialEq)]
struct AnyText(Option<String>);

impl Decode for AnyText {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        if node.is_null() {
            return Some(Self(None));
        }
        if let Some(items) = node.as_list() {
            let texts: Option<Vec<_>> = items.iter().map(Node::as_text).collect();
            return match texts {
                Some(texts) => Some(Self(Some(texts.join(",")))),
                None => wrong_type(node, cx),
            };
        }
        match node.as_text() {
            Some(text) => Some(Self(Some(text.to_owned()))),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        let list = YamlType::List(Box::new(YamlType::Scalar));
        TypeHelp::plain("string, number, boolean or null")
            .accepting(YamlType::AnyOf(vec![YamlType::Scalar, list]))
    }

    fn show(&self) -> String {
        self.0.clone().unwrap_or_else(|| "unset".to_owned())
    }
}

impl Decode for ResourceConfig {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let mut resource = Self::default();
        if node.is_null() {
            return Some(resource);
        }
        let Some(entries) = node.as_map() else {
            return wrong_type(node, cx);
        };
        for entry in entries {
            match (entry.key.as_str(), &entry.value) {
                ("attributes", value) if value.as_list().is_some() => {
                    for attribute in Vec::<Attribute>::decode(value, cx)? {
                        resource.set(attribute.name, attribute.value.0);
                    }
                }
                ("attributes", value) if value.is_null() => {}
                ("attributes_list", value) => resource.add_list(&String::decode(value, cx)?),
                ("schema_url", value) => resource.schema_url = Option::decode(value, cx)?,
                ("detectors" | "detection/development", value) => {
                    cx.at_key(value).warning(
                        "has no effect: tidegate detects no attributes; write them under `attributes`",
                    );
                }
                (key, value) => resource.set(key.to_owned(), AnyText::decode(value, cx)?.0),
            }
        }
        Some(resource)
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like(
            "map of attributes, or attributes: a list of name and value",
            "{deployment.environment.name: prod}",
        )
        .accepting(YamlType::Map(Box::new(YamlType::Any)))
    }

    fn show(&self) -> String {
        "{}".to_owned()
    }
}

impl ResourceConfig {
    /// Sets an attribute. The last value of a name counts.
    fn set(&mut self, name: String, value: Option<String>) {
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value));
    }

    /// Adds `key=value,key=value`, as in `OTEL_RESOURCE_ATTRIBUTES`. Entries of `attributes` override them.
    fn add_list(&mut self, list: &str) {
        let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
        for (name, value) in pairs {
            let name = name.trim();
            if self.get(name).is_none() {
                self.set(name.to_owned(), Some(value.trim().to_owned()));
            }
        }
    }

    /// The configured value of a name; the inner `None` removes the default.
    pub fn get(&self, name: &str) -> Option<Option<&str>> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn resource(text: &str) -> ResourceConfig {
        let mut cx = Problems::default();
        let node = parse_text("a.yaml", text, &mut cx).unwrap();
        let resource = ResourceConfig::decode(&node, &mut cx);
        assert!(!cx.has_errors());
        resource.unwrap()
    }

    #[test]
    fn attributes_are_a_map_or_a_list() {
        let map = resource("{service.name: gate, rack: 7, service.instance.id: null}");
        assert_eq!(map.get("service.name"), Some(Some("gate")));
        assert_eq!(map.get("rack"), Some(Some("7")));
        assert_eq!(map.get("service.instance.id"), Some(None));
        assert_eq!(map.get("service.version"), None);
        let list = resource(
            "{schema_url: 'https://a/1', attributes_list: 'a=1,b=2', \
             attributes: [{name: service.name, value: gate}, {name: b, value: true, type: bool}, {name: c, value: [1, x]}]}",
        );
        assert_eq!(list.get("service.name"), Some(Some("gate")));
        assert_eq!(
            [list.get("a"), list.get("b")],
            [Some(Some("1")), Some(Some("true"))]
        );
        assert_eq!(list.get("c"), Some(Some("1,x")));
        assert_eq!(list.schema_url.as_deref(), Some("https://a/1"));
    }
}
