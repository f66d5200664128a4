// SPDX-License-Identifier: Apache-2.0

//! For tests: hand-written messages held against the .proto file they stand for.

use std::collections::BTreeSet;

/// `Message.type name=number` of every field, `Enum.value=number` of every value, in lower case without underscores.
type Declarations = BTreeSet<String>;

/// Panics unless the .proto files and the Rust source declare the same; gives how many fields and values there are.
pub(crate) fn compare(protos: &[&str], rust: &str) -> usize {
    let expected: Declarations = protos.iter().flat_map(|proto| of_proto(proto)).collect();
    assert_eq!(expected, of_rust(rust));
    expected.len()
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_ascii_lowercase()
}

fn field(owner: &str, label: &str, kind: &str, name: &str, number: &str) -> String {
    format!(
        "{owner}.{label}{kind} {}={}",
        plain(name),
        number.trim_end_matches(';')
    )
}

fn of_proto(proto: &str) -> Declarations {
    let enums: BTreeSet<&str> = proto
        .lines()
        .filter_map(|line| line.trim().strip_prefix("enum ")?.strip_suffix(" {"))
        .collect();
    let wire_type = |kind: &str| match kind {
        kind if enums.contains(kind) => "enumeration".to_owned(),
        kind if kind.starts_with(|first: char| first.is_uppercase()) || kind.contains('.') => {
            "message".to_owned()
        }
        kind => kind.to_owned(),
    };
    let mut owner = "";
    let mut found = Declarations::new();
    for line in proto.lines().map(str::trim) {
        let line = line.replace("map<string, string>", "map<string,string>");
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["message" | "enum" | "service", name, ..] => {
                // Lives as long as the file.
                owner = proto
                    .split_whitespace()
                    .find(|word| word == name)
                    .unwrap_or_default();
            }
            [] | ["//" | "syntax" | "package" | "import" | "rpc", ..] | ["}"] => {}
            [value, "=", number] => {
                let value = plain(value);
                let value = value.strip_prefix(&plain(owner)).unwrap_or(&value);
                found.insert(format!("{owner}.{value}={}", number.trim_end_matches(';')));
            }
            [label @ ("repeated" | "optional"), kind, name, "=", number] => {
                let kind = wire_type(kind);
                // A message is optional whether or not that is said.
                let label = match (*label, &*kind) {
                    ("optional", "message") => String::new(),
                    (label, _) => format!("{label} "),
                };
                found.insert(field(owner, &label, &kind, name, number));
            }
            [kind, name, "=", number] => {
                found.insert(field(owner, "", &wire_type(kind), name, number));
            }
            other => panic!("unexpected in a .proto file: {other:?}"),
        }
    }
    found
}

fn of_rust(rust: &str) -> Declarations {
    let declarations = rust.split("#[cfg(test)]").next().unwrap_or_default();
    let mut owner = "";
    let mut attribute = None;
    let mut found = Declarations::new();
    for line in declarations.lines().map(str::trim) {
        let item = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub "));
        if let Some(rest) = item.and_then(|item| item.strip_prefix("struct ").or(item.strip_prefix("enum ")))
        {
            owner = rest.split([' ', '{']).next().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("#[prost(") {
            attribute = Some(rest.trim_end_matches(")]"));
        } else if let (Some(rest), Some(attribute)) = (item, attribute.take()) {
            let name = rest.split(':').next().unwrap_or_default();
            let (kind, number) = attribute.rsplit_once(", tag = ").expect("a tag");
            let kind = kind.replace("map = \"string, string\"", "map<string,string>");
            let word = kind.split([' ', ',']).next().unwrap_or_default();
            let word = if kind.starts_with("map<") {
                "map<string,string>"
            } else {
                word
            };
            let label = match (kind.ends_with("repeated"), kind.ends_with("optional"), word) {
                (true, _, _) => "repeated ",
                (_, true, word) if word != "message" => "optional ",
                _ => "",
            };
            found.insert(field(owner, label, word, name, number.trim_matches('"')));
        } else if let Some((value, number)) = line.trim_end_matches(',').split_once(" = ") {
            found.insert(format!("{owner}.{}={number}", plain(value)));
        }
    }
    found
}
