// SPDX-License-Identifier: Apache-2.0

//! Rule files: found by globs, read, and checked against the history of the gateway.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tidegate_engine::Key;
use tidegate_promql::{HistoryLimits, Millis, show_duration};
use tidegate_rules::{ReachError, RuleGroup, parse_rules, reach};

use crate::component::files;
use crate::config::Problems;

/// The largest rule file, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The most files of all globs.
const MAX_FILES: usize = 1000;

/// With an offset of up to this, queries read the present and need no history. In milliseconds.
const PRESENT_MS: Millis = 2000;

/// The texts of the files, by their names.
type RuleTexts = BTreeMap<String, String>;

/// The reason why rules can't be read or evaluated.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuleFilesError {
    /// A text is not a glob.
    #[error("files: {0:?} is not a glob: {1}")]
    Glob(String, glob::PatternError),
    /// A file can't be read.
    #[error("files: {0}: {1}")]
    Read(String, io::Error),
    /// The globs match too many files.
    #[error("files: the globs match more than 1000 files: write narrower globs, or join files")]
    TooMany,
    /// The files have errors. The text has a line for each, with the file and its line.
    #[error("files:\n{0}")]
    Content(String),
    /// A rule needs samples, and no history is kept.
    #[error(
        "{at}: rule `{rule}` of group `{group}` reads samples of the last {needed}, and no history is kept: add an `admin` extension with `history::enabled: true` to `service::extensions`"
    )]
    NoHistory {
        at: String,
        group: String,
        rule: String,
        needed: String,
    },
    /// A rule reaches back further than the history.
    #[error(
        "{at}: rule `{rule}` of group `{group}` reads samples of the last {needed}, and the history reaches back {kept}: set `history::retention` of the `admin` extension to {needed} at least, and `history::max_bytes` accordingly"
    )]
    History {
        at: String,
        group: String,
        rule: String,
        needed: String,
        kept: String,
    },
    /// A rule reads at a fixed time.
    #[error("{at}: rule `{rule}` of group `{group}`: {why}")]
    FixedTime {
        at: String,
        group: String,
        rule: String,
        why: ReachError,
    },
}

/// The rules of all files.
pub(super) struct LoadedRules {
    pub(super) groups: Vec<Arc<RuleGroup>>,
    /// Globs that match no file.
    pub(super) missing: Vec<String>,
    /// The key of the texts.
    texts: Key,
}

impl LoadedRules {
    /// Reads the files of these globs.
    ///
    /// # Errors
    /// A file can't be read, or has errors.
    pub(super) fn load(globs: &[String]) -> Result<Self, RuleFilesError> {
        let (texts, missing) = read(globs)?;
        let mut problems = Problems::default();
        let mut groups = Vec::new();
        for (name, text) in &texts {
            if let Some(file) = parse_rules(name, text, &mut problems) {
                groups.extend(file.groups);
            }
        }
        if problems.has_errors() {
            let text = problems.to_string();
            return Err(RuleFilesError::Content(text.trim_end().to_owned()));
        }
        Ok(Self {
            groups,
            missing,
            texts: Key::of_value(&texts),
        })
    }

    /// Whether the files have other contents now, or can't be read.
    pub(super) fn is_outdated(&self, globs: &[String]) -> bool {
        read(globs).map_or(true, |(texts, _)| Key::of_value(&texts) != self.texts)
    }

    /// Checks that the history has the samples that each rule reads. `offset`: of groups that name none.
    ///
    /// # Errors
    /// The first rule that reaches further.
    pub(super) fn check_reach(
        &self,
        history: Option<HistoryLimits>,
        offset: Millis,
    ) -> Result<(), RuleFilesError> {
        for group in &self.groups {
            for rule in &group.rules {
                let at = || format!("{}:{}", group.file, rule.line);
                let (group_name, name) = (|| group.name.clone(), || rule.name.clone());
                // The present needs no history, so the look-back does not count.
                let reached = reach(&rule.expr, 0).map_err(|why| RuleFilesError::FixedTime {
                    at: at(),
                    group: group_name(),
                    rule: name(),
                    why,
                })?;
                let offset = group.query_offset.unwrap_or(offset);
                if reached == 0 && offset <= PRESENT_MS {
                    continue;
                }
                let needed = reached.saturating_add(offset);
                match history {
                    None => {
                        return Err(RuleFilesError::NoHistory {
                            at: at(),
                            group: group_name(),
                            rule: name(),
                            needed: show_duration(needed),
                        });
                    }
                    Some(limits) if needed > limits.span_ms => {
                        return Err(RuleFilesError::History {
                            at: at(),
                            group: group_name(),
                            rule: name(),
                            needed: show_duration(needed),
                            kept: show_duration(limits.span_ms),
                        });
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// The texts of the files, and the globs that match none.
fn read(globs: &[String]) -> Result<(RuleTexts, Vec<String>), RuleFilesError> {
    let (mut texts, mut missing) = (RuleTexts::new(), Vec::new());
    for pattern in globs {
        let paths = glob::glob(pattern).map_err(|error| RuleFilesError::Glob(pattern.clone(), error))?;
        let mut is_missing = true;
        for path in paths {
            let path =
                path.map_err(|error| RuleFilesError::Read(error.path().display().to_string(), error.into()))?;
            is_missing = false;
            let name = path.display().to_string();
            if texts.contains_key(&name) {
                continue;
            }
            if texts.len() >= MAX_FILES {
                return Err(RuleFilesError::TooMany);
            }
            let text = read_file(&path).map_err(|error| RuleFilesError::Read(name.clone(), error))?;
            texts.insert(name, text);
        }
        if is_missing {
            missing.push(pattern.clone());
        }
    }
    Ok((texts, missing))
}

fn read_file(path: &Path) -> io::Result<String> {
    let bytes = files::read(path, MAX_FILE_BYTES)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "groups:
- name: web
  rules:
  - record: hits:rate1h
    expr: rate(hits_total[1h])
  - alert: Down
    expr: up == 0
";

    fn loaded(text: &str) -> (tempfile::TempDir, Vec<String>, LoadedRules) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.yaml"), text).unwrap();
        let globs = vec![format!("{}/*.yaml", directory.path().display())];
        let rules = LoadedRules::load(&globs).unwrap();
        (directory, globs, rules)
    }

    #[test]
    fn changed_files_are_noticed() {
        let (directory, globs, rules) = loaded(RULES);
        assert!(!rules.is_outdated(&globs));
        std::fs::write(directory.path().join("b.yaml"), "groups: []").unwrap();
        assert!(rules.is_outdated(&globs));
        std::fs::remove_file(directory.path().join("b.yaml")).unwrap();
        assert!(!rules.is_outdated(&globs));
        std::fs::write(directory.path().join("a.yaml"), "groups: []").unwrap();
        assert!(rules.is_outdated(&globs));
    }

    #[test]
    fn a_rule_that_reaches_further_than_the_history_is_refused_by_name() {
        let (_directory, _, rules) = loaded(RULES);
        let history = |span_ms| HistoryLimits {
            interval_ms: 1000,
            span_ms,
            max_bytes: 1 << 20,
        };
        assert!(rules.check_reach(Some(history(3_600_000)), 0).is_ok());
        let error = rules
            .check_reach(Some(history(600_000)), 0)
            .unwrap_err()
            .to_string();
        for part in ["a.yaml:4", "hits:rate1h", "1h", "10m", "history::retention"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = rules.check_reach(None, 0).unwrap_err().to_string();
        assert!(error.contains("no history is kept"), "{error}");
    }

    #[test]
    fn rules_of_the_present_need_no_history() {
        let (_directory, _, rules) = loaded("groups: [{name: a, rules: [{alert: Down, expr: up == 0}]}]");
        assert!(rules.check_reach(None, 0).is_ok());
        assert!(rules.check_reach(None, 60_000).is_err());
    }

    #[test]
    fn a_broken_file_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bad.yaml");
        std::fs::write(
            &path,
            "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: sum(\n",
        )
        .unwrap();
        let error = LoadedRules::load(&[path.display().to_string()]);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("bad.yaml:5"), "{error}");
    }
}
