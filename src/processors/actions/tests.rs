// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::component::testing::settings;

/// The result of an action on `{a: "x-1", n: 7}`.
fn done(action: &str) -> Attributes {
    let before = Attributes::new(vec![("a".into(), "x-1".into()), ("n".into(), 7i64.into())]);
    let mut set = Decoded::new(&before);
    settings::<Action>(action).get::<Action>().apply(&mut set, None);
    set.changed().unwrap_or(before)
}

fn with(pairs: &[(&str, AttributeValue)]) -> Attributes {
    pairs.iter().cloned().collect()
}

#[test]
fn every_action_does_what_the_collectors_does() {
    let (a, n) = (
        ("a", AttributeValue::from("x-1")),
        ("n", AttributeValue::from(7i64)),
    );
    let text = |text: &str| AttributeValue::from(text);
    // The digest of 7 as in the Collector: eight bytes, the least significant first.
    let sha256 = text("aae89fc0f03e2959ae4d701a80cc3915918c950b159f6abb6c92c1433b1a8534");
    let table: [(&str, Attributes); 16] = [
        (
            "{key: b, action: INSERT, value: 1}",
            with(&[a.clone(), n.clone(), ("b", 1i64.into())]),
        ),
        (
            "{action: hash, pattern: '^n$'}",
            with(&[a.clone(), ("n", sha256.clone())]),
        ),
        (
            "{key: a, action: extract, pattern: '(?P<letter>[a-z])(?P<more>[0-9])?-'}",
            with(&[a.clone(), n.clone(), ("letter", text("x")), ("more", text(""))]),
        ),
        (
            "{key: b, action: insert, value: 1}",
            with(&[a.clone(), n.clone(), ("b", 1i64.into())]),
        ),
        (
            "{key: a, action: insert, value: 1}",
            with(&[a.clone(), n.clone()]),
        ),
        (
            "{key: b, action: update, value: 1}",
            with(&[a.clone(), n.clone()]),
        ),
        (
            "{key: a, action: update, value: true}",
            with(&[("a", true.into()), n.clone()]),
        ),
        (
            "{key: b, action: upsert, from_attribute: a}",
            with(&[a.clone(), n.clone(), ("b", text("x-1"))]),
        ),
        (
            "{key: b, action: upsert, from_attribute: zz}",
            with(&[a.clone(), n.clone()]),
        ),
        ("{key: a, action: delete}", with(std::slice::from_ref(&n))),
        ("{action: delete, pattern: '^[an]$'}", with(&[])),
        ("{key: n, action: hash}", with(&[a.clone(), ("n", sha256)])),
        (
            "{key: n, action: convert, converted_type: string}",
            with(&[a.clone(), ("n", text("7"))]),
        ),
        (
            "{key: a, action: convert, converted_type: int}",
            with(&[a.clone(), n.clone()]),
        ),
        (
            "{key: n, action: convert, converted_type: double}",
            with(&[a.clone(), ("n", 7.0.into())]),
        ),
        (
            "{key: a, action: extract, pattern: '(?P<letter>[a-z])-(?P<n>[0-9])'}",
            with(&[a.clone(), ("letter", text("x")), ("n", text("1"))]),
        ),
    ];
    for (action, expected) in table {
        assert_eq!(done(action), expected, "{action}");
    }
}

/// SHA-256 of the bytes that the Collector digests; those of 1, 42 and true were seen to begin so in one.
#[test]
fn hashes_are_those_of_the_collector() {
    let table: [(AttributeValue, &str); 8] = [
        (
            1i64.into(),
            "7c9fa136d4413fa6173637e883b6998d32e1d675f88cddff9dcbcf331820f4b8",
        ),
        (
            42i64.into(),
            "ed049108bc18f2c64369e8d0ea42850bdd1a7d1dd340cfde716315579702a76c",
        ),
        (
            (-1i64).into(),
            "12a3ae445661ce5dee78d0650d33362dec29c4f82af05e7e57fb595bbbacf0ca",
        ),
        (
            1.5.into(),
            "e163f8cb0f7067a7fc78ca859a77f849aea3214f38fb75b884e4a16be725c905",
        ),
        (
            true.into(),
            "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
        ),
        (
            false.into(),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        ),
        (
            "x-1".into(),
            "e0f26c5c92757661153f941e9d0e65ece63b67e4e2e4640e69d7a71437f2aa31",
        ),
        ("".into(), ""),
    ];
    for (value, expected) in table {
        assert_eq!(hash(&value), expected, "{value:?}");
    }
    let bytes = AttributeValue::Bytes([1, 2].into());
    assert_eq!(
        hash(&bytes).len(),
        64,
        "ours, where the Collector leaves an empty text"
    );
}

#[test]
fn a_value_comes_from_a_header_that_was_kept() {
    let headers = [("x-tenant", "a"), ("x-tenant", "b"), ("x-zone", "eu")];
    let headers = headers.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
    let mut kept = http::HeaderMap::new();
    for (name, value) in headers {
        kept.append(name, value);
    }
    let client = ClientMetadata::new(kept);
    let value = |yaml: &str, client: Option<&ClientMetadata>| {
        let mut set = Decoded::new(&Attributes::default());
        settings::<Action>(yaml).get::<Action>().apply(&mut set, client);
        set.get("t")
    };
    let tenant = "{key: t, action: insert, from_context: metadata.X-Tenant}";
    assert_eq!(value(tenant, Some(&client)), Some("a;b".into()));
    assert_eq!(value(tenant, None), None);
    let zone = "{key: t, action: upsert, from_context: x-zone}";
    assert_eq!(value(zone, Some(&client)), Some("eu".into()));
}

#[test]
fn actions_that_make_no_sense_are_refused() {
    let wrong = [
        "{action: insert, value: 1}",
        "{key: a, action: insert}",
        "{key: a, action: upsert, value: 1, from_attribute: b}",
        "{key: a, action: extract}",
        "{key: a, action: extract, pattern: '[a-z]'}",
        "{key: a, action: convert}",
        "{key: a, action: delete, pattern: '('}",
        "{key: a, action: remove}",
        "{key: a, action: insert, from_context: metadata.x, value: 1}",
        "{key: a, action: insert, from_context: auth.subject}",
        "{key: a, action: insert, from_context: client.address}",
    ];
    for action in wrong {
        let mut problems = Problems::default();
        let node = crate::config::parse_text("t.yaml", action, &mut problems);
        node.and_then(|node| Action::decode(&node, &mut problems));
        assert!(problems.has_errors(), "{action}");
    }
}
