// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask api`: whether the libraries that other programs build with still have the API of the newest release.

use std::process::Command;

use crate::{Outcome, deny::Tool, process, test::workspace};

/// It waits for rustdoc most of the time. To optimise it would take longer.
const CARGO_SEMVER_CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    install: &["--debug"],
};

/// The crates with users outside of this repository.
const LIBRARIES: [&str; 3] = ["tidegate-cells", "tidegate-metrics", "tidegate-plugin"];

/// Compares the public API of the libraries with that of the newest tag. Without a tag there is nothing to compare.
pub(crate) fn api(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask api".into());
    }
    let mut git = Command::new("git");
    git.args(["tag", "--list", "v*"]).current_dir(workspace());
    let (tags, ended) = process::printed(&mut git)?;
    ended?;
    let Some(tag) = newest(&tags) else {
        println!(
            "no tag of a release (v1.2.3) exists: there is no API to compare with. Fetch tags with `git fetch --tags`."
        );
        return Ok(());
    };
    println!("the API of {} since {tag}:", LIBRARIES.join(", "));
    let mut checks = process::by_hand(CARGO_SEMVER_CHECKS.installed()?);
    checks.args(["semver-checks", "check-release", "--baseline-rev", tag]);
    for library in LIBRARIES {
        checks.args(["--package", library]);
    }
    process::stream(checks.current_dir(workspace()))
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
    fn tags_that_are_no_versions_do_not_count() {
        assert_eq!(newest(""), None);
        assert_eq!(newest("very-old\nv1\nv1.2.3.4\nv1.2.x\n1.2.3\n"), None);
        assert_eq!(newest("vendored\nv0.1.0+build.7\n"), Some("v0.1.0+build.7"));
    }
}
