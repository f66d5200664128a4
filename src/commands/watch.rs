// SPDX-License-Identifier: Apache-2.0

//! `--watch-config`: asks for a reload when the files of the configuration or its rule files change.
//!
//! It compares keys of contents: a mounted ConfigMap changes by links.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use tidegate_engine::Key;

use crate::component::reloads::NotReloaded;
use crate::component::shared::Latest;
use crate::component::{Shared, files};
use crate::config::MAX_FILE_BYTES;
use crate::extensions::rules::{ContentKeys, RuleFiles};
use crate::service::Plan;

/// The interval at which it reads the files.
const LOOK: Duration = Duration::from_secs(1);

/// After so many looks in a row, files that still change no longer delay the reload of others.
const PATIENCE: u32 = 5;

/// The files of the configuration.
#[derive(Clone)]
pub(super) struct WatchedFiles {
    regular: Vec<PathBuf>,
    /// Pipes, such as `/dev/fd/63` of `<(...)`, and devices. No reload reads them again, so they are not watched.
    others: Vec<PathBuf>,
}

impl WatchedFiles {
    /// Sorts the files by what they are now. Call it at the start.
    pub(super) fn of(files: Vec<PathBuf>) -> Self {
        let is_regular = |path: &PathBuf| path.metadata().map_or(true, |found| found.is_file());
        let (regular, others) = files.into_iter().partition(is_regular);
        Self { regular, others }
    }
}

/// The rule files of a configuration, with their contents before its components read them. A later change is seen.
pub(super) struct RuleContents {
    files: Vec<RuleFiles>,
    keys: ContentKeys,
}

/// The rule files that [`watch`] looks at.
#[derive(Default)]
struct WatchedRules {
    /// Those of the newest configuration: a reload reads them.
    newest: Latest<RuleContents>,
    /// Whether anything looks at them.
    are_wanted: AtomicBool,
}

/// Announces [`watch`]. Without it, nobody needs the contents of rule files. Call it before the first [`RuleContents::of`].
pub(super) fn want_rules(shared: &Shared) {
    let rules = shared.parts.get(WatchedRules::default);
    rules.are_wanted.store(true, Release);
}

impl RuleContents {
    /// Reads the rule files of a configuration, if they are watched. Call it before its components are built.
    pub(super) fn of(plan: &Plan, shared: &Shared) -> Option<Self> {
        let rules = shared.parts.get(WatchedRules::default);
        rules.are_wanted.load(Acquire).then(|| {
            let files = plan.rule_files();
            let keys = keys(&files);
            Self { files, keys }
        })
    }

    /// Lets [`watch`] look at these files, and no others. Call it before a reload: if one of them is the cause of its failure, a
    /// change of the file asks for another reload.
    pub(super) fn watch(self, shared: &Shared) {
        shared.parts.get(WatchedRules::default).newest.set(self);
    }
}

fn keys(files: &[RuleFiles]) -> ContentKeys {
    files.iter().flat_map(RuleFiles::keys).collect()
}

/// Paths in a line of the log.
fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

/// Logs which files [`watch`] reads. It may itself run before the log does.
pub(super) fn log_watch(files: &WatchedFiles, shared: &Shared) {
    if !files.others.is_empty() {
        tracing::warn!(
            files = listed(&files.others),
            "these are not regular files: `--watch-config` does not watch them, and reloads fail because of them"
        );
    }
    let rules = shared.parts.get(WatchedRules::default).newest.get();
    let globs = rules.iter().flat_map(|rules| &rules.files);
    let globs: Vec<_> = globs.flat_map(RuleFiles::globs).map(String::as_str).collect();
    if files.regular.is_empty() && globs.is_empty() {
        tracing::warn!("`--watch-config` has nothing to watch: no `--config` is a file");
        return;
    }
    let rule_files = (!globs.is_empty()).then(|| globs.join(", "));
    tracing::info!(
        files = listed(&files.regular),
        rule_files,
        interval = ?LOOK,
        "watching the files of the configuration"
    );
}

/// What a look has found in the files.
#[derive(Default, PartialEq)]
struct Seen {
    /// The keys of the configuration's files.
    files: ContentKeys,
    rules: ContentKeys,
    /// Files of the configuration that are now pipes, devices or directories. A reload would refuse them.
    not_regular: Vec<PathBuf>,
}

impl Seen {
    /// Reads the files, one at a time.
    fn look(files: &[PathBuf], rules: &[RuleFiles]) -> Self {
        let mut seen = Self {
            rules: keys(rules),
            ..Self::default()
        };
        for path in files {
            let contents = files::read(path, MAX_FILE_BYTES).map_err(|error| error.kind());
            if contents == Err(io::ErrorKind::InvalidInput) {
                seen.not_regular.push(path.clone());
            }
            seen.files.insert(path.clone(), Key::of_value(&contents));
        }
        seen
    }

    /// The keys of all files.
    fn all(&self) -> [&ContentKeys; 2] {
        [&self.files, &self.rules]
    }
}

/// What the looks have found so far.
struct Watch {
    /// The files as the last reload has read them.
    known: Seen,
    /// The looks in a row that found files which change during the look.
    restless: u32,
    /// Whether the log has such files.
    is_restlessness_logged: bool,
    /// Whether the log has the files that are not regular now.
    is_kind_logged: bool,
}

impl Watch {
    fn of(known: Seen) -> Self {
        Self {
            known,
            restless: 0,
            is_restlessness_logged: false,
            is_kind_logged: false,
        }
    }

    /// Whether to ask for a reload after two looks, one soon after the other.
    fn wants_reload(&mut self, now: &Seen, again: &Seen) -> bool {
        let (mut is_changed, mut restless) = (false, Vec::new());
        for ((known, now), again) in self.known.all().into_iter().zip(now.all()).zip(again.all()) {
            let paths: BTreeSet<_> = known.keys().chain(now.keys()).chain(again.keys()).collect();
            for path in paths {
                if now.get(path) != again.get(path) {
                    // A half-written file: a later look must find the same contents twice.
                    restless.push(path.clone());
                } else if now.get(path) != known.get(path) {
                    is_changed = true;
                }
            }
        }
        if restless.is_empty() {
            self.restless = 0;
        } else {
            self.restless = self.restless.saturating_add(1);
        }
        let is_patient = self.restless < PATIENCE;
        if !is_patient && !self.is_restlessness_logged {
            self.is_restlessness_logged = true;
            tracing::warn!(
                files = listed(&restless),
                "these files change at each look: they cause no reload until two looks find the same contents, and reloads for \
                 other files no longer wait for them"
            );
        }
        if again.not_regular.is_empty() {
            self.is_kind_logged = false;
        } else if !self.is_kind_logged {
            self.is_kind_logged = true;
            tracing::warn!(
                files = listed(&again.not_regular),
                "no longer regular files: reloads of `--watch-config` wait until they are"
            );
        }
        is_changed && (restless.is_empty() || !is_patient) && again.not_regular.is_empty()
    }
}

/// Asks for a reload whenever the contents of these files or of the rule files change.
pub(super) async fn watch(files: WatchedFiles, shared: Arc<Shared>) {
    let watched = shared.parts.get(WatchedRules::default);
    let files: Arc<[PathBuf]> = files.regular.into();
    let mut rules: Option<Arc<RuleContents>> = None;
    let mut watch = Watch::of(look(&files, None).await);
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let newest = watched.newest.get();
        if let Some(newest) = newest
            && rules.as_ref().is_none_or(|rules| !Arc::ptr_eq(rules, &newest))
        {
            watch.known.rules.clone_from(&newest.keys);
            rules = Some(newest);
        }
        let now = look(&files, rules.as_ref()).await;
        if now == watch.known {
            continue;
        }
        tokio::time::sleep(LOOK / 4).await;
        let again = look(&files, rules.as_ref()).await;
        if !watch.wants_reload(&now, &again) {
            continue;
        }
        match shared.reloads.ask("--watch-config").await {
            // The next look asks again.
            Err(NotReloaded::Unsupported | NotReloaded::Busy) => {}
            Err(NotReloaded::Stopping) => return,
            Ok(_) => watch.known = again,
        }
    }
}

/// See [`Seen::look`]. A file on a dead mount does not block the runtime.
async fn look(files: &Arc<[PathBuf]>, rules: Option<&Arc<RuleContents>>) -> Seen {
    let (files, rules) = (files.clone(), rules.cloned());
    let reading = tokio::task::spawn_blocking(move || {
        let rules: &[RuleFiles] = if let Some(rules) = &rules {
            &rules.files
        } else {
            &[]
        };
        Seen::look(&files, rules)
    });
    reading.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::commands::load;
    use crate::config::Loader;

    /// Files of the configuration with these contents. 0: the file is missing.
    fn seen<const N: usize>(contents: [(&str, u8); N]) -> Seen {
        let present = contents.iter().filter(|(_, content)| *content > 0);
        Seen {
            files: present
                .map(|(path, content)| (PathBuf::from(path), Key::of_value(content)))
                .collect(),
            ..Seen::default()
        }
    }

    #[test]
    fn a_change_counts_when_two_looks_find_the_same() {
        let mut watch = Watch::of(seen([("a", 1), ("b", 1)]));
        let mut wants = |now, again| watch.wants_reload(&seen(now), &seen(again));
        assert!(!wants([("a", 1), ("b", 1)], [("a", 1), ("b", 1)]));
        assert!(!wants([("a", 2), ("b", 1)], [("a", 3), ("b", 1)]), "half-written");
        assert!(wants([("a", 3), ("b", 1)], [("a", 3), ("b", 1)]));
        assert!(wants([("a", 0), ("b", 1)], [("a", 0), ("b", 1)]), "gone");
        assert!(
            !wants([("a", 2), ("b", 2)], [("a", 2), ("b", 3)]),
            "b is half-written"
        );
    }

    #[test]
    fn a_file_that_always_changes_does_not_block_the_others() {
        let mut watch = Watch::of(seen([("a", 1), ("b", 1)]));
        for content in 1..20 {
            let [now, again] = [content, content + 1].map(|content| seen([("a", content), ("b", 1)]));
            assert!(!watch.wants_reload(&now, &again), "nothing but a changes");
        }
        assert!(watch.is_restlessness_logged);
        assert!(watch.wants_reload(&seen([("a", 21), ("b", 2)]), &seen([("a", 22), ("b", 2)])));
        watch.known = seen([("a", 22), ("b", 2)]);
        assert!(!watch.wants_reload(&seen([("a", 23), ("b", 2)]), &seen([("a", 24), ("b", 2)])));
        // It rests, so the patience begins again.
        assert!(watch.wants_reload(&seen([("a", 24), ("b", 2)]), &seen([("a", 24), ("b", 2)])));
        assert!(!watch.wants_reload(&seen([("a", 25), ("b", 3)]), &seen([("a", 26), ("b", 3)])));
    }

    #[test]
    fn a_rule_file_counts_as_a_file_of_the_configuration_does() {
        let rules = |content: u8| Seen {
            rules: seen([("a", content)]).files,
            ..Seen::default()
        };
        let mut watch = Watch::of(rules(1));
        assert!(!watch.wants_reload(&rules(1), &rules(1)));
        assert!(!watch.wants_reload(&rules(2), &rules(3)));
        assert!(watch.wants_reload(&rules(2), &rules(2)));
    }

    #[test]
    fn rule_files_are_read_only_if_they_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.yaml");
        fs::write(&file, "groups: []").unwrap();
        let yaml = format!(
            "yaml: {{extensions: {{rules: {{files: ['{}']}}}}, receivers: {{nop: {{}}}}, exporters: {{nop: {{}}}}, \
service: {{extensions: [rules], pipelines: {{logs: {{receivers: [nop], exporters: [nop]}}}}}}}}",
            file.display()
        );
        let loaded = load::load_from(Loader::default().config(&yaml));
        let plan = loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan;
        let shared = Shared::default();
        assert!(RuleContents::of(&plan, &shared).is_none());
        want_rules(&shared);
        let contents = RuleContents::of(&plan, &shared).unwrap();
        assert!(contents.keys.keys().eq([&file]));
    }

    #[test]
    fn a_huge_file_is_read_up_to_the_limit_of_the_loader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.yaml");
        let look = || Seen::look(std::slice::from_ref(&path), &[]).files;
        let missing = look();
        let file = File::create(&path).unwrap();
        let empty = look();
        file.set_len(MAX_FILE_BYTES as u64).unwrap();
        let large = look();
        file.set_len(1 << 30).unwrap();
        let too_large = look();
        file.set_len(1 << 31).unwrap();
        assert!(too_large == look(), "its contents are not read");
        let all = [missing, empty, large, too_large];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 1);
            assert!(all[..index].iter().all(|other| other != one), "{index}");
        }
    }

    #[test]
    fn a_file_that_becomes_a_pipe_is_not_loaded_until_it_is_a_file_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.yaml");
        fs::write(&path, "one").unwrap();
        let look = || Seen::look(std::slice::from_ref(&path), &[]);
        let mut watch = Watch::of(look());
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(look() != watch.known, "the pipe is noticed");
        assert!(!watch.wants_reload(&look(), &look()));
        assert!(watch.is_kind_logged);
        fs::remove_file(&path).unwrap();
        assert!(watch.wants_reload(&look(), &look()), "it is missing");
        fs::write(&path, "two").unwrap();
        assert!(watch.wants_reload(&look(), &look()));
        assert!(!watch.is_kind_logged);
    }

    #[test]
    fn only_regular_and_missing_files_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, pipe, missing] =
            ["file", "link", "pipe", "missing"].map(|name| directory.path().join(name));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let device = Path::new("/dev/null").to_owned();
        let all = [&file, &pipe, &link, &device, &missing];
        let sorted = WatchedFiles::of(all.into_iter().cloned().collect());
        assert_eq!(sorted.regular, [file, link, missing]);
        assert_eq!(sorted.others, [pipe, device]);
    }
}
