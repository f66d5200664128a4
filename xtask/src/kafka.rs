// SPDX-License-Identifier: Apache-2.0

//! The Kafka broker of the tests: jars that Maven fetches, in a cache that outlives the checkout.
//!
//! The broker needs Java, and the jars need Maven once. Debian's packages of both work only where they are installed, so
//! setup installs those that the machine lacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, apt, golang, process, test, testenv};

/// The directory in the cache. The brokers of the tests have the same name.
const NAME: &str = "kafka-4.3.1";

/// The list of jars.
const POM: &str = "crates/tidegate-kafka/tests/kafka.pom.xml";

/// The oldest Java that runs the broker.
const OLDEST_JAVA: u32 = 17;

/// Debian's packages with the two programs.
const JAVA: &str = "openjdk-17-jre-headless";
const MAVEN: &str = "maven";

/// Installs Java, and fetches the jars unless they are there.
///
/// # Errors
/// Java or Maven is missing and not installable, or the jars are not available.
pub(crate) fn setup() -> Outcome {
    let (pom, cache) = (test::workspace().join(POM), golang::cache()?);
    let stamp = fs::read_to_string(&pom).map_err(|error| format!("{}: {error}", pom.display()))?;
    let _lock = testenv::lock(&cache)?;
    if java_version() < Some(OLDEST_JAVA) {
        install(JAVA)?;
    }
    testenv::ensure(&cache, NAME, &stamp, |scratch| {
        eprintln!("installing {NAME} in {}", cache.display());
        if answer(Command::new("mvn").arg("--version")).is_none() {
            install(MAVEN)?;
        }
        process::retry(NAME, process::PAUSE, || fetch(&pom, scratch))
    })
}

/// The directory of the jars.
///
/// # Errors
/// The user has no cache directory.
pub(crate) fn jars() -> Result<PathBuf, String> {
    Ok(golang::cache()?.join(NAME).join("jars"))
}

fn install(package: &str) -> Outcome {
    eprintln!("installing {package} on the system, for {NAME}");
    process::retry(package, process::PAUSE, || apt::install(&[package])).map_err(|error| {
        format!("{NAME} needs Debian's package `{package}`: install it, or run setup as root\n{error}")
    })
}

/// The output of a program; `None`: it is missing or fails.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn java_version() -> Option<u32> {
    version(&answer(Command::new("java").arg("--version"))?)
}

/// `openjdk 17.0.15 2025-04-15` as 17.
fn version(answer: &str) -> Option<u32> {
    let word = answer.split(' ').nth(1)?;
    word.split(['.', '-', '+']).next()?.parse().ok()
}

fn fetch(pom: &Path, into: &Path) -> Outcome {
    let jars = into.join("jars");
    let mut output = std::ffi::OsString::from("-DoutputDirectory=");
    output.push(&jars);
    process::run(
        Command::new("mvn")
            .args(["--batch-mode", "--quiet", "--file"])
            .arg(pom)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(output),
    )?;
    let class_path: PathBuf = jars.join("*");
    process::run(
        Command::new("java")
            .arg("-cp")
            .arg(class_path)
            .args(["kafka.Kafka", "--version"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_java_or_another_program_is_not_new_enough() {
        assert_eq!(version("openjdk 17.0.15 2025-04-15\n"), Some(17));
        assert_eq!(version("openjdk 21-ea 2023-09-19\n"), Some(21));
        for said in ["openjdk 11.0.2 2019-01-15", "java version 8", ""] {
            assert!(version(said) < Some(OLDEST_JAVA), "{said}");
        }
    }

    #[test]
    fn the_directory_has_the_version_of_the_pom() {
        let pom = fs::read_to_string(test::workspace().join(POM)).expect("the pom");
        let version = NAME.strip_prefix("kafka-").expect("a version");
        assert!(pom.contains(&format!("<version>{version}</version>")));
    }

    #[test]
    fn the_tests_take_the_broker_from_the_same_directory() {
        for file in [
            "crates/tidegate-kafka/tests/it/broker.rs",
            "tests/it/kit/kafka_broker.rs",
        ] {
            let source = fs::read_to_string(test::workspace().join(file)).expect("the source");
            assert!(source.contains(&format!("{NAME:?}")), "{file}");
        }
    }
}
