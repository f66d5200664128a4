// SPDX-License-Identifier: Apache-2.0

//! The Kafka broker of the tests: jars that Maven fetches, in a cache that outlives the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, golang, process, test, testenv};

/// The directory in the cache. `tests/it/broker.rs` of `tidegate-kafka` has the same name.
const NAME: &str = "kafka-4.3.1";

/// What to fetch.
const POM: &str = "crates/tidegate-kafka/tests/kafka.pom.xml";

/// Fetches the jars unless they are there.
///
/// # Errors
/// Maven or Java is missing, or the jars are not available.
pub(crate) fn setup() -> Outcome {
    let (pom, cache) = (test::workspace().join(POM), golang::cache()?);
    let stamp = fs::read_to_string(&pom).map_err(|error| format!("{}: {error}", pom.display()))?;
    let _lock = testenv::lock(&cache)?;
    testenv::ensure(&cache, NAME, &stamp, |scratch| {
        eprintln!("installing {NAME} in {}", cache.display());
        process::retry(NAME, process::PAUSE, || fetch(&pom, scratch))
    })
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
    fn the_directory_has_the_version_of_the_pom() {
        let pom = fs::read_to_string(test::workspace().join(POM)).expect("the pom");
        let version = NAME.strip_prefix("kafka-").expect("a version");
        assert!(pom.contains(&format!("<version>{version}</version>")));
    }
}
