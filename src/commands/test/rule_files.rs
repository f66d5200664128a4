// SPDX-License-Identifier: Apache-2.0

//! Unit tests of rules, in the files of `promtool test rules`.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_rules::unit_test::{UnitCase, UnitTests};

use super::case::directory_of;
use crate::component::files;

/// The largest rule file, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The most files of one pattern.
const MAX_FILES: usize = 1000;

/// Reads a file of unit tests, and the rule files that it names. Patterns without a file are added to `notes`.
///
/// # Errors
/// A file can't be read or has errors, or there is no test.
pub(super) fn read(path: &Path, text: &str, notes: &mut BTreeSet<String>) -> Result<UnitTests, String> {
    let directory = directory_of(path);
    let mut load = |pattern: &str| -> Result<Vec<(String, String)>, String> {
        let files = matching(&directory, pattern)?;
        if files.is_empty() {
            notes.insert(format!("no rule file matches {pattern}"));
        }
        Ok(files)
    };
    let name = path.display().to_string();
    let tests = UnitTests::read(&name, text, &mut load)?;
    if tests.cases().next().is_none() {
        return Err(format!("{name}: a file without a test tests nothing"));
    }
    Ok(tests)
}

/// Runs a test.
///
/// # Errors
/// All that failed, as a text.
pub(super) fn run(case: &UnitCase<'_>) -> Result<(), String> {
    let failures = case.run();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// The names and texts of the files of a pattern. It may be relative to the directory of the tests.
fn matching(directory: &Path, pattern: &str) -> Result<Vec<(String, String)>, String> {
    let is_plain = directory.as_os_str().is_empty() || Path::new(pattern).is_absolute();
    let pattern = if is_plain {
        pattern.to_owned()
    } else {
        let directory = glob::Pattern::escape(&directory.display().to_string());
        format!("{directory}/{pattern}")
    };
    let paths = glob::glob(&pattern).map_err(|error| format!("{pattern}: {error}"))?;
    let mut texts = Vec::new();
    for path in paths.take(MAX_FILES) {
        let path = path.map_err(|error| error.to_string())?;
        let name = path.display().to_string();
        let bytes = files::read(&path, MAX_FILE_BYTES).map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{name}: it is not UTF-8"))?;
        texts.push((name, text));
    }
    Ok(texts)
}
