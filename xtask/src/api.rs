// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask api`: whether the libraries that other programs build with still have the API of the newest release.

use std::fs;
use std::process::Command;

use crate::{Outcome, deny::Tool, headers, process, test::workspace};

/// A debug build: the program waits for rustdoc most of the time, so an optimised build takes longer in total.
const CARGO_SEMVER_CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    install: &["--debug"],
};

/// The Rust crates with users outside of this repository. cargo-semver-checks reads one crate at a time and follows no
/// re-export of another crate. So `tidegate-model` is one of them: `tidegate-cells` and `tidegate-metrics` show its types.
const LIBRARIES: [&str; 4] = [
    "tidegate-cells",
    "tidegate-metrics",
    "tidegate-model",
    "tidegate-plugin",
];

/// The derives of `tidegate-metrics`. cargo-semver-checks skips crates of procedural macros.
const DERIVES: &str = "crates/tidegate-metrics-derive/src/lib.rs";

/// Compares the public API of the libraries with that of the newest tag: Rust crates by cargo-semver-checks, C headers
/// and derives by their text. Without a tag there is nothing to compare.
pub(crate) fn api(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask api".into());
    }
    let tags = git(&["tag", "--list", "v*"])?;
    let Some(tag) = newest(&tags) else {
        println!(
            "no tag of a release (v1.2.3) exists: there is no API to compare with. Fetch tags with `git fetch --tags`."
        );
        return Ok(());
    };
    let files = git(&["ls-tree", "-r", "--name-only", tag, "--", "crates"])?;
    let breaks = text_breaks(tag, &files)?;
    for line in &breaks {
        eprintln!("gone or changed since {tag}: {line}");
    }
    check_crates(tag, &released(&files))?;
    if breaks.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} declarations are gone or changed since {tag}: restore them, or raise the ABI version of the header",
        breaks.len()
    ))
}

/// The output of git.
fn git(arguments: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(workspace());
    let (printed, ended) = process::printed(&mut git)?;
    ended.map(|()| printed)
}

/// The libraries that the tag has, of which these are the files.
fn released(files: &str) -> Vec<&'static str> {
    let has = |library: &&str| {
        let manifest = format!("crates/{library}/Cargo.toml");
        files.lines().any(|file| file == manifest)
    };
    LIBRARIES.into_iter().filter(has).collect()
}

fn check_crates(tag: &str, libraries: &[&str]) -> Outcome {
    if libraries.is_empty() {
        return Ok(()); // without a name, the program would check all crates
    }
    println!("the API of {} since {tag}:", libraries.join(", "));
    let mut checks = process::by_hand(CARGO_SEMVER_CHECKS.installed()?);
    checks.args(["semver-checks", "check-release", "--baseline-rev", tag]);
    for library in libraries {
        checks.args(["--package", library]);
    }
    process::stream(checks.current_dir(workspace()))
}

/// The breaks in the files that are compared by their text.
fn text_breaks(tag: &str, files: &str) -> Result<Vec<String>, String> {
    let mut breaks = Vec::new();
    for file in files.lines() {
        let Some(compare) = comparison(file) else {
            continue;
        };
        let then = git(&["show", &format!("{tag}:{file}")])?;
        let now = fs::read_to_string(workspace().join(file)).unwrap_or_default(); // a removed file declares nothing
        let broken = compare(&then, &now).into_iter();
        breaks.extend(broken.map(|declaration| format!("{file}: {declaration}")));
    }
    Ok(breaks)
}

/// How this file is compared by its text, the older one first.
fn comparison(file: &str) -> Option<fn(&str, &str) -> Vec<String>> {
    if file == DERIVES {
        Some(lost_words)
    } else if file.contains("/include/") && file.ends_with(".h") {
        Some(headers::breaks)
    } else {
        None
    }
}

/// The derives, attributes and options that only the older source has.
fn lost_words(older: &str, newer: &str) -> Vec<String> {
    let now: Vec<String> = newer.lines().flat_map(macro_words).collect();
    let then = older.lines().flat_map(macro_words);
    then.filter(|word| !now.contains(word)).collect()
}

/// The derive and its attributes that a line declares, or the option that it documents.
fn macro_words(line: &str) -> Vec<String> {
    let words = |text: &str, most: usize| -> Vec<String> {
        let words = text.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
        let words = words.filter(|word| !word.is_empty()).take(most);
        words.map(str::to_owned).collect()
    };
    if let Some(option) = line.strip_prefix("/// - `") {
        words(option, 1)
    } else if let Some(derive) = line.strip_prefix("#[proc_macro_derive(") {
        words(derive, usize::MAX)
    } else {
        Vec::new()
    }
}

/// The tag with the highest version, of one tag a line. Other tags do not count.
fn newest(tags: &str) -> Option<&str> {
    let version = |tag: &str| semver::Version::parse(tag.strip_prefix('v')?).ok();
    let versions = tags.lines().filter_map(|tag| Some((version(tag)?, tag)));
    versions.max().map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tag_has_the_highest_version() {
        assert_eq!(newest("v0.10.0\nv0.2.0\nv0.9.1\n"), Some("v0.10.0"));
        assert_eq!(
            newest("v1.0.0-rc.2\nv1.0.0-rc.10\nv0.9.0\n"),
            Some("v1.0.0-rc.10")
        );
        assert_eq!(newest("v1.0.0\nv1.0.0-rc.1\n"), Some("v1.0.0"));
        assert_eq!(newest("v1.0.0-1\nv1.0.0-beta\n"), Some("v1.0.0-beta"));
    }

    #[test]
    fn tags_that_are_not_versions_do_not_count() {
        assert_eq!(newest(""), None);
        assert_eq!(newest("very-old\nv1\nv1.2.3.4\nv1.2.x\n1.2.3\n"), None);
        assert_eq!(newest("vendored\nv0.1.0+build.7\n"), Some("v0.1.0+build.7"));
    }

    #[test]
    fn libraries_that_the_tag_lacks_are_not_compared() {
        let files = "crates/tidegate-cells/Cargo.toml\ncrates/tidegate-plugin/src/Cargo.toml\nCargo.toml\n";
        assert_eq!(released(files), ["tidegate-cells"]);
        assert_eq!(released(""), [""; 0]);
    }

    #[test]
    fn c_headers_and_derives_are_compared_by_their_text() {
        for file in [DERIVES, "crates/tidegate-capi/include/tidegate.h"] {
            assert!(
                comparison(file).is_some() && workspace().join(file).exists(),
                "{file}"
            );
        }
        for file in [
            "crates/tidegate-capi/include/tidegate.hpp",
            "crates/tidegate-capi/src/lib.rs",
            "crates/tidegate-capi/tests/c/expect.h",
        ] {
            assert!(comparison(file).is_none(), "{file}");
        }
    }

    #[test]
    fn a_derive_an_attribute_or_an_option_that_is_gone_is_a_break() {
        let source = fs::read_to_string(workspace().join(DERIVES)).expect(DERIVES);
        let lost = |from: &str, to: &str| {
            assert!(source.contains(from));
            lost_words(&source, &source.replace(from, to))
        };
        assert_eq!(lost("(LabelSet, ", "(Labels, "), ["LabelSet"]);
        assert_eq!(lost("(metrics, metric)", "(metrics)"), ["metric"]);
        assert_eq!(lost("/// - `exemplars`", "/// - `spans`"), ["exemplars"]);
        assert_eq!(lost("/// - `nested`", "/// - `fresh`\n/// - `nested`"), [""; 0]);
        assert_eq!(lost_words(&source, "").len(), 11 + 7);
    }
}
