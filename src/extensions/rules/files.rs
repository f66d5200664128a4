// SPDX-License-Identifier: Apache-2.0

//! Rule files: found by globs, read, and checked against the history of the gateway.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_engine::Key;
use tidegate_promql::{HistoryLimits, Millis, show_duration};
use tidegate_rules::{ReachError, RuleDefinition, RuleGroup, parse_rules, reach};

use super::config::RulesConfig;
use super::paths::{Found, find};
use crate::component::{Settings, files};
use crate::config::{ByteSize, Problems};

/// The largest rule file, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The most bytes of all files together.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// With an offset of up to this, queries read the present and need no history. In milliseconds.
const PRESENT_MS: Millis = 2000;

/// The series that the history must have room for over the time of a rule. A metric of ten instances with a few labels has as
/// many, so a smaller history refuses most series of the rule. The limit of the history reserves nothing: a gateway with fewer
/// series may set it as high without a cost.
const SERIES: usize = 100;

/// The keys of the contents of files, by their paths. A file that can't be read has a key of the reason.
pub type ContentKeys = BTreeMap<PathBuf, Key>;

/// The files whose contents belong to the options of a `rules` extension.
#[derive(Clone)]
pub struct RuleFiles(Arc<RulesConfig>);

impl RuleFiles {
    /// The files of these options, which [`super::FACTORY`] has decoded.
    pub fn of(settings: &Settings) -> Self {
        Self(settings.get())
    }

    /// The paths and globs of the files.
    pub fn globs(&self) -> &[String] {
        &self.0.files
    }

    /// Reads the files. It holds one at a time. If they are too large together, it reads no further, and a key says so.
    pub fn keys(&self) -> ContentKeys {
        let paths = match find(self.globs()) {
            Ok(found) => found.paths,
            Err(error) => {
                let globs = PathBuf::from(self.globs().join(", "));
                return ContentKeys::from([(globs, Key::of_value(&error.to_string()))]);
            }
        };
        let (mut keys, mut bytes) = (ContentKeys::new(), 0);
        for path in paths {
            let contents = files::read(&path, MAX_FILE_BYTES).map_err(|error| error.kind());
            bytes += contents.as_ref().map_or(0, Vec::len);
            if bytes > MAX_TOTAL_BYTES {
                keys.insert(path, Key::of_value(&RuleFilesError::TooLarge.to_string()));
                break;
            }
            keys.insert(path, Key::of_value(&contents));
        }
        keys
    }
}

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
    /// A glob leads through too many entries of directories.
    #[error(
        "files: {0:?} leads through more than 100000 entries of directories: write a narrower glob, or remove links to directories"
    )]
    TooManyEntries(String),
    /// The files are too large together.
    #[error(
        "files: the files have more than 64 MiB together: write narrower globs, or divide the files among several `rules` extensions"
    )]
    TooLarge,
    /// The files have errors. The text has a line for each, with the file and its line.
    #[error("files:\n{0}")]
    Content(String),
    /// A rule needs samples, and no history is kept.
    #[error(
        "{rule} reads samples of the last {needed}, and no history is kept: add an `admin` extension with `history::enabled: true` to `service::extensions`"
    )]
    NoHistory { rule: String, needed: String },
    /// A rule reaches back further than the history.
    #[error(
        "{rule} reads samples of the last {needed}, and the history reaches back {kept}: set `history::retention` of the `admin` extension to {needed} at least, and `history::max_bytes` accordingly"
    )]
    History {
        rule: String,
        needed: String,
        kept: String,
    },
    /// The history has no room for the samples of a rule.
    #[error(
        "{rule} reads samples of the last {needed}, which take {bytes} for {SERIES} series, and the history may take {limit}: set `history::max_bytes` of the `admin` extension to {bytes} at least, or lengthen `history::interval`"
    )]
    HistoryBytes {
        rule: String,
        needed: String,
        bytes: ByteSize,
        limit: ByteSize,
    },
    /// A rule reads at a fixed time.
    #[error("{rule}: {why}")]
    FixedTime { rule: String, why: ReachError },
}

/// A rule that reads samples of the past.
struct FurthestRule {
    /// Its file, line, name and group, for messages.
    rule: String,
    /// The time between an evaluation and the oldest sample that it reads, in milliseconds.
    needed_ms: Millis,
}

/// The rules of all files.
pub(super) struct LoadedRules {
    pub(super) groups: Vec<Arc<RuleGroup>>,
    /// The rule that reads furthest into the past; `None`: all read the present.
    furthest: Option<FurthestRule>,
    /// Globs that match no file.
    pub(super) missing: Vec<String>,
    /// The key of the texts.
    texts: Key,
}

impl LoadedRules {
    /// Reads the files of these globs. `offset`: of groups that name none, in milliseconds.
    ///
    /// # Errors
    /// A file can't be read, or has errors.
    pub(super) fn load(globs: &[String], offset: Millis) -> Result<Self, RuleFilesError> {
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
            furthest: furthest(&groups, offset)?,
            groups,
            missing,
            texts: Key::of_value(&texts),
        })
    }

    /// Whether the files have other contents now, or can't be read.
    pub(super) fn is_outdated(&self, globs: &[String]) -> bool {
        read(globs).map_or(true, |(texts, _)| Key::of_value(&texts) != self.texts)
    }

    /// The time between an evaluation and the oldest sample that a rule reads, in milliseconds; 0: all read the present.
    pub(super) fn needed_ms(&self) -> Millis {
        self.furthest.as_ref().map_or(0, |furthest| furthest.needed_ms)
    }

    /// Checks that the history has the samples that each rule reads.
    ///
    /// # Errors
    /// The rule that reads furthest, if the history does not reach as far, or has no room for as many samples.
    pub(super) fn check_reach(&self, history: Option<HistoryLimits>) -> Result<(), RuleFilesError> {
        let Some(FurthestRule { rule, needed_ms }) = &self.furthest else {
            return Ok(());
        };
        let (rule, needed) = (rule.clone(), show_duration(*needed_ms));
        let Some(limits) = history else {
            return Err(RuleFilesError::NoHistory { rule, needed });
        };
        if *needed_ms > limits.span_ms {
            let kept = show_duration(limits.span_ms);
            return Err(RuleFilesError::History { rule, needed, kept });
        }
        let bytes = limits.bytes_of(SERIES, *needed_ms);
        if bytes > limits.max_bytes {
            return Err(RuleFilesError::HistoryBytes {
                rule,
                needed,
                bytes: in_mib(bytes),
                limit: ByteSize(limits.max_bytes as u64),
            });
        }
        Ok(())
    }
}

/// A number of bytes, rounded up to MiB.
fn in_mib(bytes: usize) -> ByteSize {
    ByteSize((bytes as u64).div_ceil(1 << 20).saturating_mul(1 << 20))
}

/// The first of the rules that read furthest into the past. `offset`: of groups that name none, in milliseconds.
///
/// # Errors
/// A rule reads at a fixed time.
fn furthest(groups: &[Arc<RuleGroup>], offset: Millis) -> Result<Option<FurthestRule>, RuleFilesError> {
    let mut furthest: Option<FurthestRule> = None;
    for group in groups {
        let offset = group.query_offset.unwrap_or(offset);
        for rule in &group.rules {
            // The present needs no history, so the look-back does not count.
            let reached = reach(&rule.expr, 0).map_err(|why| RuleFilesError::FixedTime {
                rule: shown(group, rule),
                why,
            })?;
            if reached == 0 && offset <= PRESENT_MS {
                continue;
            }
            let needed_ms = reached.saturating_add(offset);
            if furthest.as_ref().is_none_or(|other| needed_ms > other.needed_ms) {
                let rule = shown(group, rule);
                furthest = Some(FurthestRule { rule, needed_ms });
            }
        }
    }
    Ok(furthest)
}

/// A rule in messages.
fn shown(group: &RuleGroup, rule: &RuleDefinition) -> String {
    let (RuleGroup { file, name, .. }, RuleDefinition { line, name: of, .. }) = (group, rule);
    format!("{file}:{line}: rule `{of}` of group `{name}`")
}

/// The texts of the files, and the globs that match none.
fn read(globs: &[String]) -> Result<(RuleTexts, Vec<String>), RuleFilesError> {
    let Found { paths, missing } = find(globs)?;
    let (mut texts, mut bytes) = (RuleTexts::new(), 0);
    for path in paths {
        let name = path.display().to_string();
        let text = read_file(&path).map_err(|error| RuleFilesError::Read(name.clone(), error))?;
        bytes += text.len();
        if bytes > MAX_TOTAL_BYTES {
            return Err(RuleFilesError::TooLarge);
        }
        texts.insert(name, text);
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
    use crate::component::testing::settings;

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
        let rules = LoadedRules::load(&globs, 0).unwrap();
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
    fn files_that_change_appear_or_go_have_other_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let options = format!("files: [{:?}, {:?}]", path("*.yaml"), path("[ab].yaml"));
        let files = RuleFiles::of(&settings::<RulesConfig>(&options));
        assert_eq!(files.keys(), ContentKeys::new());
        std::fs::write(path("a.yaml"), "groups: []").unwrap();
        let first = files.keys();
        assert_eq!(first.len(), 1);
        assert_eq!(files.keys(), first);
        std::fs::write(path("a.yaml"), "{groups: []}").unwrap();
        let changed = files.keys();
        assert_ne!(changed, first);
        std::fs::create_dir(path("b.yaml")).unwrap();
        let with_directory = files.keys();
        assert!(with_directory.contains_key(&path("b.yaml")));
        std::fs::remove_dir(path("b.yaml")).unwrap();
        assert_eq!(files.keys(), changed);
        std::fs::remove_file(path("a.yaml")).unwrap();
        assert_eq!(files.keys(), ContentKeys::new());
    }

    #[test]
    fn each_reason_why_a_file_cannot_be_read_has_its_own_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        let files = RuleFiles::of(&settings::<RulesConfig>(&format!("files: [{path:?}]")));
        std::fs::create_dir(&path).unwrap();
        let of_directory = files.keys();
        std::fs::remove_dir(&path).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
        let too_large = files.keys();
        file.set_len(0).unwrap();
        let readable = files.keys();
        assert_eq!(readable.len(), 1);
        assert!(of_directory != too_large && too_large != readable && of_directory != readable);
    }

    #[test]
    fn files_that_are_too_large_together_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let globs = vec![format!("{}/*", directory.path().display())];
        let files = RuleFiles::of(&settings::<RulesConfig>(&format!("files: [{:?}]", globs[0])));
        for name in ["a", "b", "c", "d"] {
            let file = std::fs::File::create(directory.path().join(name)).unwrap();
            file.set_len(MAX_FILE_BYTES as u64).unwrap();
        }
        let largest = files.keys();
        assert_eq!(largest.len(), 4);
        for name in ["e", "f"] {
            std::fs::write(directory.path().join(name), "groups: []").unwrap();
        }
        let error = read(&globs).unwrap_err().to_string();
        assert!(
            error.starts_with("files: ") && error.contains("64 MiB"),
            "{error}"
        );
        let keys = files.keys();
        assert_eq!(
            keys.len(),
            5,
            "nothing is read after the first one that is too much"
        );
        assert!(largest.iter().all(|(path, key)| keys.get(path) == Some(key)));
        for name in ["e", "f"] {
            std::fs::remove_file(directory.path().join(name)).unwrap();
        }
        assert!(read(&globs).is_ok());
    }

    #[test]
    fn a_rule_that_reaches_further_than_the_history_is_refused_by_name() {
        let (_directory, _, rules) = loaded(RULES);
        let history = |span_ms| HistoryLimits {
            interval_ms: 1000,
            span_ms,
            max_bytes: 256 << 20,
        };
        assert!(rules.check_reach(Some(history(3_600_000))).is_ok());
        let error = rules.check_reach(Some(history(600_000))).unwrap_err().to_string();
        for part in ["a.yaml:4", "hits:rate1h", "1h", "10m", "history::retention"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = rules.check_reach(None).unwrap_err().to_string();
        assert!(error.contains("no history is kept"), "{error}");
    }

    #[test]
    fn rules_of_the_present_need_no_history() {
        let (_directory, globs, rules) = loaded("groups: [{name: a, rules: [{alert: Down, expr: up == 0}]}]");
        assert!(rules.check_reach(None).is_ok());
        assert_eq!(rules.needed_ms(), 0);
        let with_offset = LoadedRules::load(&globs, 60_000).unwrap();
        assert!(with_offset.check_reach(None).is_err());
        assert_eq!(with_offset.needed_ms(), 60_000);
    }

    #[test]
    fn the_rule_that_reads_furthest_counts_with_the_offset_of_its_group() {
        let text = "groups:
- name: a
  query_offset: 5m
  rules: [{record: near, expr: \"rate(x[1h])\"}, {record: nearer, expr: \"rate(x[5m])\"}]
- name: b
  rules: [{record: far, expr: \"rate(x[1h] offset 10m)\"}]
";
        let (_directory, _, rules) = loaded(text);
        assert_eq!(rules.needed_ms(), 70 * 60_000);
        let error = rules.check_reach(None).unwrap_err().to_string();
        assert!(error.contains("a.yaml:6: rule `far` of group `b`"), "{error}");
    }

    #[test]
    fn a_rule_that_the_history_has_no_room_for_is_refused_by_name() {
        let (_directory, _, rules) = loaded(RULES);
        let history = |max_bytes| HistoryLimits {
            interval_ms: 1000,
            span_ms: 3_600_000,
            max_bytes,
        };
        let needed = history(0).bytes_of(SERIES, 3_600_000);
        assert!(rules.check_reach(Some(history(needed))).is_ok());
        let error = rules.check_reach(Some(history(1 << 20))).unwrap_err().to_string();
        for part in [
            "a.yaml:4",
            "hits:rate1h",
            "1h",
            "1MiB",
            "2MiB",
            "history::max_bytes",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let longer = HistoryLimits {
            interval_ms: 10_000,
            ..history(1 << 20)
        };
        assert!(rules.check_reach(Some(longer)).is_ok(), "fewer samples need less");
    }

    #[test]
    fn a_rule_that_reads_at_a_fixed_time_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        std::fs::write(&path, "groups: [{name: a, rules: [{record: r, expr: x @ 1000}]}]").unwrap();
        let error = LoadedRules::load(&[path.display().to_string()], 0);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("rule `r` of group `a`: `@`"), "{error}");
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
        let error = LoadedRules::load(&[path.display().to_string()], 0);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("bad.yaml:5"), "{error}");
    }
}
