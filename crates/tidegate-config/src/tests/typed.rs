// SPDX-License-Identifier: Apache-2.0

//! Typed options: what values decode to, and the tables that documentation is made of.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use super::{Compression, HookOptions, Limits, NixlOptions, OuterOptions};
use crate::{
    ByteSize, ComponentId, Decode, IdError, OptionDoc, Ordered, PipelineId, Problems, Secret, Signal,
    YamlType, parse_text,
};

fn decode<T: Decode>(text: &str) -> (Option<T>, Problems) {
    let mut cx = Problems::default();
    let node = parse_text("t.yaml", text, &mut cx).expect("YAML");
    (T::decode(&node, &mut cx), cx)
}

#[track_caller]
fn gives<T: Decode + Debug + PartialEq>(text: &str, expected: T) {
    let (value, problems) = decode::<T>(text);
    assert!(problems.is_empty(), "{problems}");
    assert_eq!(value, Some(expected), "{text}");
}

#[track_caller]
fn fails<T: Decode + Debug>(text: &str, message: &str) {
    let (value, problems) = decode::<T>(text);
    assert!(value.is_none(), "{text} gave {value:?}");
    let messages: Vec<_> = problems.sorted().iter().map(|p| p.message.clone()).collect();
    assert_eq!(messages, [message]);
}

#[test]
fn values_decode() {
    gives("true", true);
    gives("0x10", 16u8);
    gives("-5", -5i32);
    gives("18446744073709551615", u64::MAX);
    gives("1", 1.0);
    gives("1e3", 1000.0);
    gives("-.inf", f64::NEG_INFINITY);
    gives("0660", "0660".to_owned());
    gives("1.50", "1.50".to_owned());
    gives("yes", "yes".to_owned());
    gives("!!str true", "true".to_owned());
    gives("|\n  a\n  b\n", "a\nb\n".to_owned());
    gives("/run", PathBuf::from("/run"));
    gives("0", Duration::ZERO);
    gives("1h30m", Duration::from_mins(90));
    gives("1.5s", Duration::from_millis(1500));
    gives("64 MiB", ByteSize::mib(64));
    gives("1GB", ByteSize(1_000_000_000));
    gives("[a, 1]", vec!["a".to_owned(), "1".to_owned()]);
    gives("~", None::<u8>);
    gives("~", Some(Limits::default()));
    gives(
        "{b: 1, a: 2}",
        Ordered(vec![("b".to_owned(), 1u8), ("a".to_owned(), 2)]),
    );
    gives("{b: 1}", BTreeMap::from([("b".to_owned(), 1u8)]));
    gives("123", Secret::new("123"));
    gives("\"\"", Compression::None);
}

#[test]
fn merged_keys_give_way_to_own_ones() {
    let inner = |entries: &[(&str, u8)]| {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), *value));
        Ordered(entries.collect())
    };
    gives(
        "{a: &a {p: 1, q: 2}, b: &b {r: 4, p: 5}, c: {q: 3, <<: [*a, *b]}, d: {<<: *a, p: 9}}",
        BTreeMap::from([
            ("a".to_owned(), inner(&[("p", 1), ("q", 2)])),
            ("b".to_owned(), inner(&[("r", 4), ("p", 5)])),
            ("c".to_owned(), inner(&[("q", 3), ("p", 1), ("r", 4)])),
            ("d".to_owned(), inner(&[("p", 9), ("q", 2)])),
        ]),
    );
}

#[test]
fn wrong_values_give_distinct_messages() {
    fails::<bool>(
        "yes",
        "expected a boolean (true or false), found the string \"yes\"",
    );
    fails::<u8>("256", "\"256\" is out of range (0 to 255)");
    fails::<u8>("1.5", "expected a non-negative integer, found the number 1.5");
    fails::<String>("true", "expected a string, found the boolean true");
    fails::<String>("[]", "expected a string, found a list");
    fails::<Duration>(
        "-1s",
        "expected a duration such as 10ms or 1h30m, found the string \"-1s\"",
    );
    fails::<ByteSize>(
        "-1",
        "expected a size in bytes such as 65536 or 64MiB, found the number -1",
    );
    fails::<Vec<u8>>("{}", "expected a list of non-negative integers, found a map");
    fails::<std::num::NonZeroU16>("0", "must be greater than zero");
    fails::<Compression>("gzp", "expected one of none, gzip, found the string \"gzp\"");
    fails::<NixlOptions>("[]", "expected a map, found a list");
    fails::<NixlOptions>("consume: false", "`directories` must be specified");
}

#[test]
fn a_deprecated_spelling_is_accepted_with_one_warning() {
    let (value, problems) = decode::<NixlOptions>("{dirs: [a], ring_limit: 7, compression: gnu_zip}");
    let value = value.expect("options");
    assert_eq!((value.max_rings, value.compression), (7, Compression::Gzip));
    let text = problems.to_string();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("warning")).collect();
    assert_eq!(
        warnings,
        [
            "t.yaml:1:13: warning: ring_limit: `ring_limit` is deprecated: write `max_rings`",
            "t.yaml:1:41: warning: compression: `gnu_zip` is deprecated: write `gzip`",
        ]
    );
}

#[test]
fn a_mistake_is_answered_with_the_new_spelling() {
    let (_, problems) = decode::<NixlOptions>("{dirs: [a], ring_limi: 7}");
    let helps: Vec<_> = problems.sorted().iter().map(|p| p.help.clone()).collect();
    assert!(!format!("{helps:?}").contains("ring_limit"), "{helps:?}");
    fails::<Compression>(
        "gnu_zap",
        "expected one of none, gzip, found the string \"gnu_zap\"",
    );
}

#[test]
fn one_option_under_two_names_is_an_error() {
    let (_, problems) = decode::<NixlOptions>("{dirs: [a], paths: [b]}");
    let found = problems.sorted().first().map(|p| p.message.clone());
    let message = "the same option as `dirs`, which is given too";
    assert_eq!(found.as_deref(), Some(message));
}

#[test]
fn null_options_take_their_defaults_and_null_maps_all_of_them() {
    let (value, problems) = decode::<NixlOptions>("{paths: [a], consume: , limits: , extra: }");
    assert!(problems.is_empty(), "{problems}");
    let value = value.expect("options");
    assert!(value.consume);
    assert_eq!(value.limits, Limits { soft: 1, hard: 10 });
    assert_eq!(value.extra, Some(Limits::default()));
    assert_eq!(value.r#type, None);
    assert_eq!(value.compression, Compression::None);
}

#[test]
fn a_partial_map_keeps_the_other_defaults_of_the_option() {
    let own = HookOptions::default();
    gives(
        "{limits: {hard: 9}, maybe: {hard: 9}, boxed: {hard: 90}, plain: {hard: 9}}",
        HookOptions {
            limits: Limits { soft: 3, hard: 9 },
            maybe: Some(Limits { soft: 2, hard: 9 }),
            boxed: Box::new(Limits { soft: 6, hard: 90 }),
            plain: Some(Limits { soft: 1, hard: 9 }),
        },
    );
    gives("{limits: , maybe: {}, boxed: {soft: }}", own.clone());
    let hook = HookOptions {
        limits: Limits { soft: 4, hard: 9 },
        ..own.clone()
    };
    gives(
        "{hook: {limits: {hard: 9}}, hooks: [{limits: {soft: 5}}]}",
        OuterOptions {
            hook,
            hooks: vec![HookOptions {
                limits: Limits { soft: 5, hard: 7 },
                ..own
            }],
        },
    );
    let (_, problems) = decode::<HookOptions>("limits: {hard: 2}");
    let said = problems.to_string();
    assert!(said.contains("`soft` must not be greater than `hard`"), "{said}");
}

#[test]
fn the_option_table_has_the_defaults_inside_of_each_option() {
    let rows = |options: &[OptionDoc], name: &str| {
        let option = options.iter().find(|option| option.name == name);
        option.expect("the option").nested()
    };
    let inside = |options: &[OptionDoc], name: &str| -> Vec<String> {
        let rows = rows(options, name).into_iter();
        rows.map(|row| row.default.unwrap_or_default()).collect()
    };
    let hook = HookOptions::options();
    assert_eq!(inside(&hook, "limits"), ["3", "7"]);
    assert_eq!(inside(&hook, "maybe"), ["2", "10"]);
    assert_eq!(inside(&hook, "boxed"), ["6", "60"]);
    assert_eq!(inside(&hook, "plain"), ["1", "10"]);
    let outer = OuterOptions::options();
    assert_eq!(inside(&rows(&outer, "hook"), "limits"), ["4", "8"]);
    assert_eq!(inside(&rows(&outer, "hooks"), "limits"), ["3", "7"]);
}

#[test]
fn the_option_table_says_name_type_default_and_help() {
    let rows: Vec<_> = NixlOptions::options()
        .into_iter()
        .map(|row| {
            let default = row.default.unwrap_or_else(|| "required".to_owned());
            format!("{} | {} | {default} | {}", row.name, row.type_help.name, row.help)
        })
        .collect();
    assert_eq!(
        rows,
        [
            "directories | list of strings | required | Directories (globs) in which rings appear.",
            "poll_interval | duration | 10ms | Interval between two reads of a ring.",
            "consume | boolean (true or false) | true | The receiver removes events from the ring.",
            "max_rings | non-negative integer | 1000 | Largest number of rings.",
            "buffer | size in bytes | 64KiB | Bytes read at once.",
            "compression | one of none, gzip | none | Compression of the output.",
            "limits | map | {soft: 1, hard: 10} | Bounds.",
            "extra | map | unset | Absent unless given.",
            "type | string | unset | A keyword as a key.",
        ]
    );
    let options = NixlOptions::options();
    assert_eq!(options[0].aliases, ["dirs", "paths"]);
    assert_eq!(options[3].deprecated, ["ring_limit"]);
    let nested: Vec<_> = options[7].nested().iter().map(|row| row.name).collect();
    assert_eq!(nested, ["soft", "hard"]);
}

#[test]
fn types_say_which_values_of_yaml_they_accept() {
    let help = Option::<Vec<BTreeMap<String, Limits>>>::type_help();
    assert_eq!(help.name, "list of maps of maps");
    let YamlType::List(inner) = &help.accepts else {
        panic!("{help:?}")
    };
    assert!(matches!(**inner, YamlType::Map(_)), "{help:?}");
    let options = help.accepts.options().expect("the options of the innermost map");
    assert_eq!(options.len(), 2);
    let YamlType::Words { current, others } = Compression::type_help().accepts else {
        panic!("a choice accepts words")
    };
    assert_eq!((current, others), (vec!["none", "gzip"], vec!["", "gnu_zip"]));
    let YamlType::Integer { min, max } = std::num::NonZeroU16::type_help().accepts else {
        panic!("a number accepts integers")
    };
    assert_eq!((min, max), (1, 65_535));
}

#[test]
fn every_problem_of_a_map_is_found_in_one_run() {
    let (_, problems) = decode::<NixlOptions>("{consume: 1, max_rings: x, nope: 1, limits: {a: 1}}");
    let messages: Vec<_> = problems.sorted().iter().map(|p| p.message.as_str()).collect();
    assert_eq!(messages.len(), 5, "{messages:#?}");
}

#[test]
fn secrets_are_never_printed() {
    let (_, mut cx) = decode::<super::OtlpOptions>("{endpoint: e, pass_code: hunter2}");
    let root = parse_text("s.yaml", "pass_code: hunter2", &mut cx).expect("YAML");
    let secret = Secret::decode(root.child("pass_code"), &mut cx).expect("a secret");
    assert_eq!(secret.expose(), "hunter2");
    cx.at(root.child("pass_code")).error("no good");
    let debug = format!("{secret} {secret:?} {root:?} {:?} {cx:?} {cx}", Some(&secret));
    assert!(!debug.contains("hunter2"), "{debug}");
    assert_eq!(crate::print_redacted(&root, &cx), "pass_code: \"[REDACTED]\"\n");
}

#[test]
fn a_secret_where_a_list_of_secrets_belongs_is_never_printed() {
    for (text, found) in [
        ("hunter2", "a string"),
        ("{hunter2: hunter2}", "a map"),
        ("{hunter2}", "a map"),
    ] {
        let mut cx = Problems::default();
        let root = parse_text("s.yaml", &format!("codes: {text}"), &mut cx).expect("YAML");
        assert!(
            Vec::<Secret>::decode(root.child("codes"), &mut cx).is_none(),
            "{text}"
        );
        let shown = cx.to_string();
        let message = format!("codes: expected a list of strings (secret), found {found}\n");
        assert!(shown.contains(&message) && !shown.contains("hunter2"), "{shown}");
        assert_eq!(
            crate::print_redacted(&root, &cx),
            "codes: \"[REDACTED]\"\n",
            "{text}"
        );
    }
}

#[test]
fn ids_follow_the_collector() {
    let id = |text: &str| text.parse::<ComponentId>();
    assert_eq!(id("otlp").expect("an id").to_string(), "otlp");
    assert_eq!(id("otlp/a/b c").expect("an id").name, "a/b c");
    assert_eq!(id("otlp/"), Err(IdError::EmptyName));
    assert_eq!(id("/x"), Err(IdError::EmptyType));
    assert_eq!(id(""), Err(IdError::EmptyType));
    assert_eq!(id("ot-lp"), Err(IdError::BadType));
    assert_eq!(id("otlp/\u{7}"), Err(IdError::BadName));
    assert_eq!(id(&format!("otlp/{}", "x".repeat(1025))), Err(IdError::BadName));
    let pipeline: PipelineId = "traces/x".parse().expect("an id");
    assert_eq!((pipeline.signal, pipeline.name.as_str()), (Signal::Traces, "x"));
    assert_eq!("metric".parse::<PipelineId>(), Err(IdError::UnknownSignal));
}
