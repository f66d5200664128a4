// SPDX-License-Identifier: Apache-2.0

use super::*;

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.collect()
}

#[test]
fn the_target_wins_and_what_it_displaces_is_kept() {
    let table = [
        ("a=1", "job=j", "a=1,job=j"),
        ("job=own", "job=j", "exported_job=own,job=j"),
        (
            "exported_job=x,job=own",
            "job=j",
            "exported_exported_job=own,exported_job=x,job=j",
        ),
        // The shorter name has the first choice.
        (
            "b=1,exported_b=2",
            "b=3,exported_b=4",
            "b=3,exported_b=4,exported_exported_b=1,exported_exported_exported_b=2",
        ),
    ];
    for (page, target, expected) in table {
        let mut set = labels(page);
        override_labels(&mut set, &labels(target));
        assert_eq!(set, labels(expected), "{page} over {target}");
    }
}

#[test]
fn hosts_and_ports_come_apart() {
    let table = [
        ("a:1", "a", "1"),
        ("[::1]:1", "::1", "1"),
        ("::1", "::1", ""),
        ("a", "a", ""),
        ("", "", ""),
    ];
    for (instance, host, port) in table {
        assert_eq!(split_port(instance), (host, port), "{instance}");
    }
    assert!(is_telling("a.example") && is_telling("10.0.0.1"));
    assert!(
        !is_telling("localhost") && !is_telling("127.0.0.1") && !is_telling("::1") && !is_telling("0.0.0.0")
    );
}
