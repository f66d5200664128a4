// SPDX-License-Identifier: Apache-2.0

use super::*;
use tidegate_config::{Decode, parse_text};

/// `a=1,b=2` as labels.
fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.collect()
}

fn rules(yaml: &str) -> Result<Vec<Rule>, String> {
    let mut problems = Problems::default();
    let node = parse_text("rules.yaml", yaml, &mut problems).unwrap();
    let rules = Vec::<Rule>::decode(&node, &mut problems);
    for (rule, node) in rules.iter().flatten().zip(node.as_list().unwrap()) {
        rule.check_names(Validation::Utf8, node, &mut problems);
    }
    match rules {
        Some(rules) if !problems.has_errors() => Ok(rules),
        _ => Err(problems.to_string()),
    }
}

/// The labels that result from rules; `DROPPED` if a rule drops the target. In a configuration file `$` would be `$$`.
#[test]
fn every_action_does_what_prometheus_does() {
    let table = [
        // replace
        (
            "a=foo,b=bar",
            "[{source_labels: [a], regex: 'f(.*)', target_label: d, replacement: 'ch${1}-ch${1}'}]",
            "a=foo,b=bar,d=choo-choo",
        ),
        (
            "a=foo,b=bar",
            "[{source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: 'b${1}${2}m'}]",
            "a=boobam,b=bar",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: o, target_label: d}]",
            "a=foo",
        ),
        ("a=foo", "[{source_labels: [a], target_label: d}]", "a=foo,d=foo"),
        (
            "a=foo",
            "[{target_label: d, replacement: fixed}]",
            "a=foo,d=fixed",
        ),
        ("a=foo", "[{target_label: a, replacement: ''}]", ""),
        (
            "a=foo,b=x",
            "[{source_labels: [a], regex: '(x)?.*', target_label: b}]",
            "a=foo",
        ),
        (
            "a=foo,b=bar",
            "[{source_labels: [a, missing, b], separator: '/', target_label: c}]",
            "a=foo,b=bar,c=foo//bar",
        ),
        (
            "a=some-name-value",
            "[{source_labels: [a], regex: 'some-([^-]+)-([^,]+)', target_label: '${1}', replacement: '${2}'}]",
            "a=some-name-value,name=value",
        ),
        (
            "a=some-name-0",
            "[{source_labels: [a], regex: 'some-([^-]+)-(.+)', target_label: 'x_${1}_y', replacement: '$2'}]",
            "a=some-name-0,x_name_y=0",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: '(?P<all>.+)', target_label: b, replacement: '$all-${all}'}]",
            "a=foo,b=foo-foo",
        ),
        // Letters, digits and underscores after `$` all belong to the name, so this is group `1x`.
        (
            "a=foo",
            "[{source_labels: [a], target_label: b, replacement: 'y$1x'}]",
            "a=foo,b=y",
        ),
        (
            "a=foo",
            "[{source_labels: [a], target_label: b, replacement: '$$1'}]",
            "a=foo,b=$1",
        ),
        (
            "a=foo",
            "[{source_labels: [a], target_label: b, replacement: '$ ${ ${no-name} $'}]",
            "a=foo,b=$ ${ ${no-name} $",
        ),
        (
            "a=foo",
            "[{source_labels: [a], target_label: b, replacement: '$9'}]",
            "a=foo",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: x, target_label: b, replacement: y}]",
            "a=foo",
        ),
        (
            "a=x\ny",
            "[{source_labels: [a], target_label: b, replacement: z}]",
            "a=x\ny,b=z",
        ),
        (
            "a=true",
            "[{source_labels: [a], regex: true, target_label: b, replacement: 1}]",
            "a=true,b=1",
        ),
        // Classes are those of ASCII, as in Go.
        (
            "a=\u{663}",
            r"[{source_labels: [a], regex: '\d', target_label: b, replacement: z}]",
            "a=\u{663}",
        ),
        (
            "a=\u{663}3",
            r"[{source_labels: [a], regex: '[^\d]\d', target_label: b, replacement: z}]",
            "a=\u{663}3,b=z",
        ),
        // keep, drop
        (
            "a=foo",
            "[{source_labels: [a], regex: foo, action: keep}]",
            "a=foo",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: fo, action: keep}]",
            "DROPPED",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: foo|bar, action: drop}]",
            "DROPPED",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: fo, action: drop}]",
            "a=foo",
        ),
        (
            "a=foo",
            "[{source_labels: [missing], regex: '', action: drop}]",
            "DROPPED",
        ),
        (
            "a=foo",
            "[{source_labels: [missing], regex: '.+', action: drop}, {target_label: b, replacement: x}]",
            "a=foo,b=x",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: foo, action: drop}, {target_label: b, replacement: x}]",
            "DROPPED",
        ),
        (
            "a=foo",
            "[{source_labels: [a], regex: foo, action: Keep}]",
            "a=foo",
        ),
        // keepequal, dropequal
        (
            "p=1,q=1",
            "[{source_labels: [p], target_label: q, action: keepequal}]",
            "p=1,q=1",
        ),
        (
            "p=1,q=2",
            "[{source_labels: [p], target_label: q, action: keepequal}]",
            "DROPPED",
        ),
        (
            "p=1,q=1",
            "[{source_labels: [p], target_label: q, action: dropequal}]",
            "DROPPED",
        ),
        (
            "p=1,q=2",
            "[{source_labels: [p], target_label: q, action: dropequal}]",
            "p=1,q=2",
        ),
        // hashmod: the last 8 bytes of MD5. md5("bar") = 37b51d194a7513e45b56f6524f2d51f2
        (
            "a=bar",
            "[{source_labels: [a], modulus: 1000, target_label: d, action: hashmod}]",
            &format!("a=bar,d={}", 0x5b56_f652_4f2d_51f2_u64 % 1000),
        ),
        (
            "a=foo,b=bar",
            "[{source_labels: [a, b], modulus: 18446744073709551615, target_label: d, action: hashmod}]",
            &format!("a=foo,b=bar,d={}", 0xddad_c4ed_9df3_1f3e_u64),
        ),
        // labelmap
        (
            "a=foo,b1=bar,b2=baz",
            "[{regex: '(b.*)', replacement: 'x_$1', action: labelmap}]",
            "a=foo,b1=bar,b2=baz,x_b1=bar,x_b2=baz",
        ),
        (
            "__meta_my_bar=aaa,__meta_my_baz=bbb",
            "[{regex: '__meta_(my.*)', action: labelmap}]",
            "__meta_my_bar=aaa,__meta_my_baz=bbb,my_bar=aaa,my_baz=bbb",
        ),
        // labeldrop, labelkeep
        (
            "a=foo,b1=bar,b2=baz",
            "[{regex: '(b.*)', action: labeldrop}]",
            "a=foo",
        ),
        (
            "a=foo,b1=bar,b2=baz",
            "[{regex: '(b.*)', action: labelkeep}]",
            "b1=bar,b2=baz",
        ),
        // lowercase, uppercase
        (
            "a=bAr123Foo\u{c9}",
            "[{source_labels: [a], target_label: l, action: lowercase}, {source_labels: [a], target_label: u, action: uppercase}]",
            "a=bAr123Foo\u{c9},l=bar123foo\u{e9},u=BAR123FOO\u{c9}",
        ),
    ];
    for (before, yaml, expected) in table {
        let rules = rules(yaml).unwrap_or_else(|problems| panic!("{yaml}: {problems}"));
        let mut labels = labels(before);
        let after = if apply(&rules, Validation::Utf8, &mut labels) {
            labels.pairs()
        } else {
            "DROPPED".to_owned()
        };
        assert_eq!(after, expected, "{before} by {yaml}");
    }
}

#[test]
fn every_mistake_is_said() {
    let table = [
        ("[{action: replce}]", "did you mean `replace`?"),
        (
            "[{regex: '(', target_label: a}]",
            "not a regular expression: unclosed group",
        ),
        ("[{source_labels: [a]}]", "replace action requires `target_label`"),
        (
            "[{action: hashmod, source_labels: [a], target_label: b}]",
            "requires non-zero modulus",
        ),
        (
            "[{action: lowercase, source_labels: [a]}]",
            "lowercase action requires `target_label`",
        ),
        (
            "[{action: uppercase, source_labels: [a], target_label: b, replacement: x}]",
            "`replacement` can not be set for uppercase action",
        ),
        (
            "[{action: keepequal, source_labels: [a], target_label: b, regex: x}]",
            "`regex` can not be set for keepequal action",
        ),
        (
            "[{action: dropequal, source_labels: [a], target_label: b, separator: x}]",
            "`separator` can not be set for dropequal action",
        ),
        (
            "[{action: labeldrop, regex: x, source_labels: [a]}]",
            "`source_labels` can not be set for labeldrop action",
        ),
        (
            "[{action: labelkeep, regex: x, target_label: a}]",
            "`target_label` can not be set for labelkeep action",
        ),
        (
            "[{action: labelmap, regex: x, replacement: ''}]",
            "is invalid `replacement` for labelmap action",
        ),
        (
            "[{source_label: [a], target_label: b}]",
            "did you mean `source_labels`?",
        ),
    ];
    for (yaml, expected) in table {
        let problems = rules(yaml).expect_err(yaml);
        assert!(problems.contains(expected), "{yaml}: {problems}");
    }
}

#[test]
fn names_are_held_to_the_scheme() {
    let table = [
        ("a_b", true, true),
        ("a.b", true, false),
        ("1a", true, false),
        ("${1}_x", true, true),
        ("$1", true, true),
        ("x${1}-y", true, false),
        ("${1", true, false),
    ];
    for (template, utf8, legacy) in table {
        assert_eq!(is_name_template(Validation::Utf8, template), utf8, "{template}");
        assert_eq!(
            is_name_template(Validation::Legacy, template),
            legacy,
            "{template}"
        );
    }
    assert!(!Validation::Legacy.label_name("a:b"));
    // A label whose name comes out wrong is left alone.
    let rules = rules("[{source_labels: [a], target_label: '$1', replacement: x}]").unwrap();
    let mut set = labels("a=b.c");
    assert!(apply(&rules, Validation::Legacy, &mut set));
    assert_eq!(set.pairs(), "a=b.c");
}
