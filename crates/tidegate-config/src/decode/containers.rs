// SPDX-License-Identifier: Apache-2.0

//! Options that hold other options: lists, maps, and values that may be absent.

use std::collections::BTreeMap;

use super::{Decode, SECRET, TypeHelp, wrong_type};
use crate::node::Node;
use crate::problems::Problems;
use crate::secret::Secret;
use crate::table::{Fields, OptionDoc, OptionNames};
use crate::units::{Headers, Ordered};
use crate::yaml_type::YamlType;

/// Null means absent, unless the inner type makes something of null (an options map does:
/// `grpc:` with nothing after it is a gRPC server with all defaults).
impl<T: Decode> Decode for Option<T> {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        Self::decode_over(node, cx, None)
    }

    fn decode_over(node: &Node, cx: &mut Problems, default: Self) -> Option<Self> {
        if node.is_null() && !T::TAKES_NULL {
            return Some(None);
        }
        match default {
            Some(default) => T::decode_over(node, cx, default),
            None => T::decode(node, cx),
        }
        .map(Some)
    }

    fn options_inside(&self) -> Option<Vec<OptionDoc>> {
        self.as_ref()?.options_inside()
    }

    fn type_help() -> TypeHelp {
        T::type_help()
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "unset".to_owned(), T::show)
    }
}

impl<T: Decode> Decode for Box<T> {
    const TAKES_NULL: bool = T::TAKES_NULL;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        T::decode(node, cx).map(Box::new)
    }

    fn decode_over(node: &Node, cx: &mut Problems, default: Self) -> Option<Self> {
        T::decode_over(node, cx, *default).map(Box::new)
    }

    fn options_inside(&self) -> Option<Vec<OptionDoc>> {
        T::options_inside(self)
    }

    fn type_help() -> TypeHelp {
        T::type_help()
    }

    fn show(&self) -> String {
        T::show(self)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(items) = node.as_list() else {
            return wrong_type(node, cx);
        };
        let decoded: Vec<_> = items.iter().map(|item| T::decode(item, cx)).collect();
        decoded.into_iter().collect()
    }

    fn type_help() -> TypeHelp {
        T::type_help().within("list", YamlType::List)
    }

    fn show(&self) -> String {
        let items: Vec<_> = self.iter().map(T::show).collect();
        format!("[{}]", items.join(", "))
    }
}

/// In key order. [`Ordered`] keeps the written order.
impl<T: Decode> Decode for BTreeMap<String, T> {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_map() {
            Some(_) => Ordered::decode(node, cx).map(|map| map.0.into_iter().collect()),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        Ordered::<T>::type_help()
    }

    fn show(&self) -> String {
        show_map(self.iter())
    }
}

impl<T: Decode> Decode for Ordered<T> {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(entries) = node.as_map() else {
            return wrong_type(node, cx);
        };
        let decoded: Vec<_> = entries
            .iter()
            .map(|entry| Some((entry.key.clone(), decode_value(&entry.value, cx)?)))
            .collect();
        decoded.into_iter().collect::<Option<_>>().map(Self)
    }

    fn type_help() -> TypeHelp {
        T::type_help().within("map", YamlType::Map)
    }

    fn show(&self) -> String {
        show_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Decode for Headers {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match (node.as_list(), node.as_map()) {
            (Some(_), _) => {
                let items = Vec::<Header>::decode(node, cx)?;
                let pairs = items.into_iter().map(|Header(name, value)| (name, value));
                Some(Self(pairs.collect()))
            }
            (_, Some(_)) => Ordered::decode(node, cx).map(|map| Self(map.0)),
            _ => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        let map = Ordered::<Secret>::type_help();
        let list = Vec::<Header>::type_help().accepts;
        TypeHelp::plain(format!("{}, or list of maps with name and value", map.name))
            .accepting(YamlType::AnyOf(vec![map.accepts, list]))
    }

    fn show(&self) -> String {
        show_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A name and a value in a list of headers.
struct Header(String, Secret);

impl Header {
    fn options() -> Vec<OptionDoc> {
        vec![
            OptionDoc::new::<String>(OptionNames::only("name"), &["Name of the header."], None),
            OptionDoc::new::<Secret>(OptionNames::only("value"), &["Value of the header."], None),
        ]
    }
}

impl Decode for Header {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        // The value of a misspelt key may be the secret.
        let entries = node.as_map().unwrap_or_default().iter();
        for entry in entries.filter(|entry| entry.key != "name" && !entry.value.is_null()) {
            cx.hide(&entry.value);
        }
        let mut fields = Fields::open::<Self>(node, cx)?;
        let name = fields.required(OptionNames::only("name"));
        // Null is an empty value, as in a map.
        let value = fields.required::<Option<Secret>>(OptionNames::only("value"));
        fields.finish()?;
        Some(Self(name?, value?.unwrap_or_default()))
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain(format!("map with name and value {SECRET}"))
            .accepting(YamlType::Options(Self::options))
    }
}

impl TypeHelp {
    /// The type of a container of such values.
    fn within(self, container: &str, accepts: fn(Box<YamlType>) -> YamlType) -> Self {
        Self {
            name: format!("{container} of {}", plural(&self.name)),
            example: self.example,
            accepts: accepts(Box::new(self.accepts)),
        }
    }
}

fn decode_value<T: Decode>(node: &Node, cx: &mut Problems) -> Option<T> {
    let empty = T::of_null().filter(|_| node.is_null() && !node.is_broken());
    empty.or_else(|| T::decode(node, cx))
}

fn show_map<'a, T: Decode + 'a>(entries: impl Iterator<Item = (&'a String, &'a T)>) -> String {
    let entries: Vec<_> = entries
        .map(|(key, value)| format!("{key}: {}", value.show()))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// `string (secret)` -> `strings (secret)`, `list of maps` stays.
fn plural(name: &str) -> String {
    let (head, tail) = name.split_at(name.find([' ', ',']).unwrap_or(name.len()));
    match head {
        "non-negative" | "positive" | "any" => name.replace("integer", "integers"),
        "boolean" => "booleans".to_owned(),
        "one" => format!("values, each {name}"),
        "status" => format!("statuses{tail}"),
        _ => format!("{head}s{tail}"),
    }
}
