// SPDX-License-Identifier: Apache-2.0

//! Reloads of the configuration while the gateway runs: on SIGHUP, `POST /-/reload`, and with `--watch-config`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::load::{self, ConfigArgs, Loaded};
use crate::component::Shared;
use crate::component::reloads::{NotReloaded, ReloadResult};
use crate::service::Running;
use crate::service::reload::{Changes, ReloadError};
use crate::telemetry::Telemetry;

/// The interval at which `--watch-config` reads the files.
const LOOK: Duration = Duration::from_secs(1);

/// A reload that waits longer for the end of another one is logged.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// What a reload needs: the source of the configuration, and what runs.
pub(super) struct Reloader<'a> {
    /// `None`: the configuration has no source that can be read again.
    pub(super) args: Option<ConfigArgs>,
    /// The configuration that runs.
    pub(super) loaded: &'a mut Loaded,
    pub(super) shared: Arc<Shared>,
}

impl Reloader<'_> {
    /// The time limit of a stop, by the configuration that runs.
    pub(super) fn drain(&self) -> Duration {
        self.loaded.plan.drain_timeout
    }

    /// Reads the configuration again and applies the difference. Answers all that asked for it.
    pub(super) async fn reload(&mut self, cause: &'static str, running: &mut Running, telemetry: &Telemetry) {
        let mut answers = self.shared.reloads.take();
        let Some(args) = self.args.clone() else { return };
        tracing::info!(cause, "reading the configuration again");
        let listening = self.loaded.listening();
        let check = move || -> Result<_, String> {
            let loaded = load::check(&args).into_loaded()?;
            let clashes = listening.clashes(&loaded.listening());
            Ok((loaded, clashes))
        };
        let checked = tokio::task::spawn_blocking(check).await;
        let loaded = checked.unwrap_or_else(|error| Err(format!("reading the configuration: {error}")));
        let applied = match loaded {
            Ok((loaded, clashes)) => self.apply(loaded, &clashes, running).await,
            Err(problems) => Err(problems),
        };
        telemetry.set_graph(running.metrics().clone());
        let mut removed = Vec::new();
        if let Ok((changes, _)) = &applied {
            telemetry.begin_gauges(&changes.added);
            removed.clone_from(&changes.removed);
        }
        let at = SystemTime::now();
        record(applied.is_ok(), at);
        let result = match applied {
            Ok((changes, is_same)) => {
                let changed = lines(&changes);
                if is_same {
                    tracing::info!(cause, "nothing has changed");
                } else {
                    tracing::info!(cause, changed = changed.join(", "), "the new configuration runs");
                }
                ReloadResult {
                    at,
                    cause,
                    changed,
                    is_same,
                    error: None,
                }
            }
            Err(error) => {
                let problems = error.trim_end();
                tracing::error!(
                    "{cause}: the new configuration does not run, the old one runs on:\n{problems}"
                );
                ReloadResult {
                    at,
                    cause,
                    changed: Vec::new(),
                    is_same: false,
                    error: Some(error),
                }
            }
        };
        self.shared.reloads.note(result.clone());
        answers.give(&result);
        self.finish(running).await;
        telemetry.end_gauges(&removed, &running.paths());
    }

    /// Lets replaced components end. Logs it once if another reload waits long for that.
    async fn finish(&self, running: &mut Running) {
        let limit = self.drain();
        let mut finished = std::pin::pin!(running.finish(limit));
        let waits = async {
            let cause = self.shared.reloads.asked().await;
            tokio::time::sleep(LONG_WAIT).await;
            cause
        };
        tokio::select! {
            () = &mut finished => return,
            cause = waits => tracing::info!(
                cause,
                ?limit,
                "a reload waits: components that the last one replaced or removed still send what they hold"
            ),
        }
        finished.await;
    }

    /// Applies the difference. The result says too whether there is none.
    async fn apply(
        &mut self,
        mut loaded: Loaded,
        clashes: &[[String; 2]],
        running: &mut Running,
    ) -> Result<(Changes, bool), String> {
        let applied = running.reload(&self.loaded.plan, &loaded.plan, clashes).await;
        let mut changes = applied.map_err(|error| match error {
            ReloadError::Build(errors) => loaded.build_failed_text(errors),
            error => error.to_string(),
        })?;
        loaded.build_warned(std::mem::take(&mut changes.warnings));
        loaded.log_warnings();
        let config = std::mem::take(&mut loaded.shown);
        let overview = &self.shared.overview;
        let last = overview.get();
        // Components change for other reasons too: a changed secret is masked, and a file of rules has another text.
        let is_same = lines(&changes).is_empty() && last.as_ref().is_some_and(|last| last.config == config);
        let built = last.map_or_else(SystemTime::now, |last| last.built);
        overview.set(loaded.plan.overview(config, running.metrics().clone(), built));
        *self.loaded = loaded;
        Ok((changes, is_same))
    }
}

/// One line for each change.
fn lines(changes: &Changes) -> Vec<String> {
    let named = [
        ("added", &changes.added),
        ("rebuilt", &changes.rebuilt),
        ("removed", &changes.removed),
    ];
    let lines = named.into_iter().flat_map(|(what, paths)| {
        let line = move |path: &Arc<str>| format!("{what} {path}");
        paths.iter().map(line)
    });
    lines.collect()
}

/// Records the result of the start or of the last reload in the gateway's own metrics.
pub(super) fn record(succeeded: bool, at: SystemTime) {
    metrics::gauge!("tidegate_config_reload_success").set(if succeeded { 1.0 } else { 0.0 });
    if succeeded {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        metrics::gauge!("tidegate_config_reload_timestamp_seconds").set(since.as_secs_f64());
    }
}

/// Logs which files `watch` reads. It may itself run before the log does.
pub(super) fn log_watch(files: &[PathBuf]) {
    if files.is_empty() {
        tracing::warn!("`--watch-config` has nothing to watch: no `--config` is a file");
        return;
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    tracing::info!(
        files = files.join(", "),
        interval = ?LOOK,
        "watching the files of the configuration"
    );
}

/// Asks for a reload whenever the contents of a file change. It compares contents: a mounted ConfigMap changes by links.
pub(super) async fn watch(files: Vec<PathBuf>, shared: Arc<Shared>) {
    let mut known = read(&files).await;
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let now = read(&files).await;
        if now == known {
            continue;
        }
        // Half-written files: the next look must find the same contents.
        tokio::time::sleep(LOOK / 4).await;
        let again = read(&files).await;
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

/// The contents of the files; `None` for one that can't be read.
async fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    for file in files {
        contents.push(tokio::fs::read(file).await.ok());
    }
    contents
}
