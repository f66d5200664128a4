// SPDX-License-Identifier: Apache-2.0

//! Reloads of the configuration while the gateway runs: on SIGHUP, `POST /-/reload`, and with `--watch-config`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::load::{self, ConfigArgs, Loaded};
use super::validate;
use super::watch::RuleContents;
use crate::component::Shared;
use crate::component::reloads::{Answers, ReloadResult};
use crate::service::Running;
use crate::service::reload::{Changes, ReloadError};
use crate::telemetry::Telemetry;
use crate::telemetry::config::Logs;

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

/// A configuration that was read again, for those that asked for it.
pub(super) struct Reread {
    cause: &'static str,
    answers: Answers,
    /// The configuration, or all problems.
    read: Result<ReadConfig, String>,
}

/// A configuration that was read again.
struct ReadConfig {
    loaded: Loaded,
    /// The paths of components that can't listen at the same time as those that run.
    clashes: Vec<[String; 2]>,
    /// `None`: nobody watches them.
    rules: Option<RuleContents>,
}

impl Reloader<'_> {
    /// The time limit of a stop, by the configuration that runs.
    pub(super) fn drain(&self) -> Duration {
        self.loaded.plan.drain_timeout
    }

    /// Reads the configuration again, and checks the addresses that it wants and that the running one does not hold. `None`: it
    /// has no source.
    ///
    /// A caller may drop the future, because a file on a dead mount is never read. Those that asked then learn that the
    /// gateway stops.
    pub(super) async fn read(&self, cause: &'static str) -> Option<Reread> {
        let answers = self.shared.reloads.take();
        let args = self.args.clone()?;
        tracing::info!(cause, "reading the configuration again");
        let listening = self.loaded.listening();
        let (level, shared) = (self.loaded.level(), self.shared.clone());
        let check = move || -> Result<_, String> {
            let mut checked = load::check_again(&args);
            let is_whole = shared.health.lacking().is_none();
            validate::check_new_listeners(&mut checked, &listening, is_whole);
            let mut loaded = checked.into_loaded()?;
            loaded.override_level(level);
            Ok(ReadConfig {
                clashes: listening.clashes(&loaded.listening()),
                rules: RuleContents::of(&loaded.plan, &shared),
                loaded,
            })
        };
        let checked = tokio::task::spawn_blocking(check).await;
        let read = checked.unwrap_or_else(|error| Err(format!("reading the configuration: {error}")));
        Some(Reread { cause, answers, read })
    }

    /// Applies the difference, and answers all that asked for it.
    pub(super) async fn reload(&mut self, read: Reread, running: &mut Running, telemetry: &Telemetry) {
        let Reread {
            cause,
            mut answers,
            read,
        } = read;
        let applied = match read {
            Ok(read) => self.apply(read, running).await,
            Err(problems) => Err(problems),
        };
        telemetry.set_graph(running.metrics().clone());
        let mut removed = Vec::new();
        if let Ok(Applied { changes, levels, .. }) = &applied {
            telemetry.begin_gauges(&changes.added);
            removed.clone_from(&changes.removed);
            if !levels.is_empty() {
                telemetry.set_log_levels(&self.loaded.plan.telemetry.logs);
            }
        }
        let at = SystemTime::now();
        record(applied.is_ok(), at);
        let (changed, is_same, error) = match applied {
            Ok(applied) => {
                let (changed, is_same) = (applied.lines(), applied.is_same);
                if is_same {
                    tracing::info!(cause, "nothing has changed");
                } else {
                    tracing::info!(cause, changed = listed(&changed), "the new configuration runs");
                }
                (changed, is_same, None)
            }
            Err(error) => {
                let problems = error.trim_end();
                let runs = self.shared.health.after_refusal();
                tracing::error!("{cause}: the new configuration does not run, {runs}:\n{problems}");
                (Vec::new(), false, Some(error))
            }
        };
        let result = ReloadResult {
            at,
            cause,
            changed,
            is_same,
            error,
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

    /// Applies the difference.
    async fn apply(&mut self, read: ReadConfig, running: &mut Running) -> Result<Applied, String> {
        let ReadConfig {
            mut loaded,
            clashes,
            rules,
        } = read;
        if let Some(rules) = rules {
            rules.watch(&self.shared);
        }
        let applied = running.reload(&self.loaded.plan, &loaded.plan, &clashes).await;
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
        let levels = changed_levels(&self.loaded.plan.telemetry.logs, &loaded.plan.telemetry.logs);
        *self.loaded = loaded;
        Ok(Applied {
            changes,
            levels,
            is_same,
        })
    }
}

/// The effect of a new configuration that runs.
struct Applied {
    changes: Changes,
    /// The options of the log that have changed.
    levels: Vec<&'static str>,
    /// Whether the configuration is the one that ran before.
    is_same: bool,
}

impl Applied {
    /// One line for each change.
    fn lines(&self) -> Vec<String> {
        let levels = self.levels.iter().map(|option| format!("changed {option}"));
        lines(&self.changes).into_iter().chain(levels).collect()
    }
}

/// The options whose change alters the levels of log lines.
fn changed_levels(from: &Logs, to: &Logs) -> Vec<&'static str> {
    let options = [
        ("service::telemetry::logs::level", from.level != to.level),
        ("service::telemetry::logs::levels", from.levels != to.levels),
    ];
    let changed = options.into_iter().filter(|(_, is_changed)| *is_changed);
    changed.map(|(option, _)| option).collect()
}

/// One line for each changed component.
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

/// Changes in a line of the log. `None`: other texts of options have the same effect, such as a default that is written out.
fn listed(changed: &[String]) -> Option<String> {
    (!changed.is_empty()).then(|| changed.join(", "))
}

/// Records the result of the start or of the last reload in the gateway's own metrics.
pub(super) fn record(succeeded: bool, at: SystemTime) {
    metrics::gauge!("tidegate_config_reload_success").set(if succeeded { 1.0 } else { 0.0 });
    if succeeded {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        metrics::gauge!("tidegate_config_reload_timestamp_seconds").set(since.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use tokio::net::TcpListener;

    use super::*;
    use crate::component::reloads::NotReloaded;
    use crate::config::Loader;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        config: ConfigArgs,
    }

    #[test]
    fn a_reload_without_an_effect_lists_no_changes() {
        let logs = |yaml: &str| crate::component::testing::options::<Logs>(yaml).unwrap();
        let levels = changed_levels(&logs("{}"), &logs("level: INFO"));
        assert_eq!(levels, [""; 0]);
        assert_eq!(listed(&[]), None);
        let changed = ["added a", "rebuilt b"].map(str::to_owned);
        assert_eq!(listed(&changed).as_deref(), Some("added a, rebuilt b"));
    }

    #[test]
    fn a_reload_reads_regular_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let [pipe, file] = ["pipe", "file"].map(|name| directory.path().join(name));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let reference = format!("receivers:\n  nop: ${{file:{}}}\n", pipe.display());
        std::fs::write(&file, reference).unwrap();
        for config in [&*pipe, &*file, Path::new("/dev/zero")] {
            let args = Line::parse_from(["tidegate", "--config", config.to_str().unwrap()]).config;
            let said = load::check_again(&args).problems.to_string();
            assert!(
                said.contains("not a regular file"),
                "{}: {said}",
                config.display()
            );
        }
    }

    /// As of a web server without an answer, or of a file on a dead mount.
    #[tokio::test]
    async fn a_read_that_hangs_can_be_dropped() {
        let yaml = "yaml: {receivers: {nop: {}}, exporters: {nop: {}}, \
service: {pipelines: {logs: {receivers: [nop], exporters: [nop]}}}}";
        let loaded = load::load_from(Loader::default().config(yaml));
        let mut loaded = loaded.unwrap_or_else(|_| panic!("{yaml} should load"));
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/gateway.yaml", server.local_addr().unwrap());
        let line = ["tidegate", "--config", &url];
        let shared = Arc::new(Shared::default());
        shared.reloads.support();
        let asking = shared.clone();
        let asked = tokio::spawn(async move { asking.reloads.ask("SIGHUP").await });
        let cause = shared.reloads.asked().await;
        let reloader = Reloader {
            args: Some(Line::parse_from(line).config),
            loaded: &mut loaded,
            shared,
        };
        let connection = tokio::select! {
            _ = reloader.read(cause) => panic!("a server without an answer was read"),
            accepted = server.accept() => accepted.unwrap(),
        };
        assert_eq!(asked.await.unwrap(), Err(NotReloaded::Stopping));
        // The runtime of the test waits for the reader, which may connect again.
        drop((server, connection));
    }
}
