// SPDX-License-Identifier: Apache-2.0

//! Says of a build: the commit, its day, the features of Cargo and the compiler.
//!
//! `TIDEGATE_COMMIT` and `SOURCE_DATE_EPOCH` name the commit and its time. Without them, [`ARCHIVE`] has both if the source is
//! an archive that Git made, else Git knows them. Elsewhere they are unknown.

use std::env;
use std::fs;
use std::process::Command;

/// `git archive` writes the commit and its time into this file, by `.gitattributes`.
const ARCHIVE: &str = ".git_archival.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVE}");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    // A build for development says the commit of its first run: it is not built again for every commit.
    let is_told = set("TIDEGATE_COMMIT").is_some();
    if !is_told && env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        for name in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", name]) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
    }
    let commit = set("TIDEGATE_COMMIT")
        .or_else(|| archived("commit"))
        .or_else(|| git(&["rev-parse", "HEAD"]))
        .map(|commit| commit.chars().take(12).collect::<String>());
    let seconds = set("SOURCE_DATE_EPOCH")
        .or_else(|| archived("seconds"))
        .or_else(|| git(&["log", "-1", "--format=%ct"]));
    let date = seconds.and_then(|seconds| seconds.parse().ok()).map(date);
    let unknown = || "unknown".to_owned();
    // Cargo gives these values to tests too. A test that runs cargo must not give it another `TIDEGATE_COMMIT` than before.
    println!(
        "cargo::rustc-env=TIDEGATE_BUILT_COMMIT={}",
        commit.unwrap_or_else(unknown)
    );
    println!(
        "cargo::rustc-env=TIDEGATE_BUILT_DATE={}",
        date.unwrap_or_else(unknown)
    );
    println!("cargo::rustc-env=TIDEGATE_BUILT_FEATURES={}", features());
    println!(
        "cargo::rustc-env=TIDEGATE_BUILT_RUSTC={}",
        rustc().unwrap_or_else(unknown)
    );
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A value of [`ARCHIVE`], if Git has filled it in.
fn archived(key: &str) -> Option<String> {
    let text = fs::read_to_string(ARCHIVE).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = pairs.find(|(found, _)| *found == key)?;
    (!value.starts_with('$')).then(|| value.to_owned())
}

/// The features of Cargo that the build has, with commas between.
fn features() -> String {
    let mut names: Vec<String> = env::vars_os()
        .filter_map(|(name, _)| {
            let feature = name.to_str()?.strip_prefix("CARGO_FEATURE_")?;
            Some(feature.to_lowercase().replace('_', "-"))
        })
        .collect();
    names.sort();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(",")
    }
}

/// The version of the compiler, as `1.95.0`.
fn rustc() -> Option<String> {
    let answer = Command::new(env::var_os("RUSTC")?)
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    Some(text.split_whitespace().nth(1)?.to_owned())
}

/// The answer of Git for this directory, if it is a repository of its own.
fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let text = text.trim();
    (answer.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// The day of a time in seconds since 1970 as `2026-11-23`.
fn date(seconds: i64) -> String {
    // Days of the Gregorian calendar, counted from a March: the leap day is the last of its year.
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
