// SPDX-License-Identifier: Apache-2.0

//! `--watch-config`: asks for a reload when the files of the configuration or its rule files change.
//!
//! It compares contents: a mounted ConfigMap changes by links.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::component::Shared;
use crate::component::reloads::NotReloaded;
use crate::component::shared::Latest;
use crate::extensions::rules::{ContentKeys, RuleFiles};
use crate::service::Plan;

/// The interval at which it reads the files.
const LOOK: Duration = Duration::from_secs(1);

/// The rule files of a configuration, with their contents before its components read them. A later change is seen.
pub(super) struct RuleContents {
    files: Vec<RuleFiles>,
    keys: ContentKeys,
}

/// The rule files of the newest configuration: a reload reads them.
#[derive(Default)]
struct NewestRules(Latest<RuleContents>);

impl RuleContents {
    /// Reads the rule files of a configuration. Call it before its components are built.
    pub(super) fn of(plan: &Plan) -> Self {
        let files = plan.rule_files();
        let keys = keys(&files);
        Self { files, keys }
    }

    /// Lets [`watch`] look at these files, and no others. Call it before a reload: if one of them is the cause of its failure, a
    /// change of the file asks for another reload.
    pub(super) fn watch(self, shared: &Shared) {
        shared.parts.get(NewestRules::default).0.set(self);
    }
}

fn keys(files: &[RuleFiles]) -> ContentKeys {
    files.iter().flat_map(RuleFiles::keys).collect()
}

/// Logs which files [`watch`] reads. It may itself run before the log does.
pub(super) fn log_watch(files: &[PathBuf], shared: &Shared) {
    let rules = shared.parts.get(NewestRules::default).0.get();
    let globs = rules.iter().flat_map(|rules| &rules.files);
    let globs: Vec<_> = globs.flat_map(RuleFiles::globs).map(String::as_str).collect();
    if files.is_empty() && globs.is_empty() {
        tracing::warn!("`--watch-config` has nothing to watch: no `--config` is a file");
        return;
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let rule_files = (!globs.is_empty()).then(|| globs.join(", "));
    tracing::info!(
        files = files.join(", "),
        rule_files,
        interval = ?LOOK,
        "watching the files of the configuration"
    );
}

/// What is in the files.
#[derive(Default, PartialEq)]
struct Seen {
    /// The contents of the configuration's files; `None` for one that can't be read.
    files: Vec<Option<Vec<u8>>>,
    rules: ContentKeys,
}

/// Asks for a reload whenever the contents of these files or of the rule files change.
pub(super) async fn watch(files: Vec<PathBuf>, shared: Arc<Shared>) {
    let of_newest = shared.parts.get(NewestRules::default);
    let mut rules: Option<Arc<RuleContents>> = None;
    let mut known = Seen {
        files: read(&files).await,
        ..Seen::default()
    };
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let newest = of_newest.0.get();
        if let Some(newest) = newest
            && rules.as_ref().is_none_or(|rules| !Arc::ptr_eq(rules, &newest))
        {
            known.rules.clone_from(&newest.keys);
            rules = Some(newest);
        }
        let now = look(&files, rules.as_ref()).await;
        if now == known {
            continue;
        }
        // Half-written files: the next look must find the same contents.
        tokio::time::sleep(LOOK / 4).await;
        let again = look(&files, rules.as_ref()).await;
        if again != now {
            continue;
        }
        match shared.reloads.ask("--watch-config").await {
            // The next look asks again.
            Err(NotReloaded::Unsupported | NotReloaded::Busy) => {}
            Err(NotReloaded::Stopping) => return,
            Ok(_) => known = now,
        }
    }
}

async fn look(files: &[PathBuf], rules: Option<&Arc<RuleContents>>) -> Seen {
    let files = read(files).await;
    let rules = match rules.filter(|rules| !rules.files.is_empty()).cloned() {
        Some(rules) => {
            let reading = tokio::task::spawn_blocking(move || keys(&rules.files));
            reading.await.unwrap_or_default()
        }
        None => ContentKeys::new(),
    };
    Seen { files, rules }
}

async fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    for file in files {
        contents.push(tokio::fs::read(file).await.ok());
    }
    contents
}
