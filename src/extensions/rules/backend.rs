// SPDX-License-Identifier: Apache-2.0

//! The queries of rules over the live tables, and the way of their samples.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tidegate_engine::{Key, UnixNanos};
use tidegate_promql::{Millis, Options, Patience, Query, QueryError};
use tidegate_rules::{QueryAnswer, RuleBackend, RuleSample};

use super::config::StaleChoice;
use super::engine::RuleEngine;
use crate::component::{Ceiling, ReadToken, unix_now};
use crate::prom::catalog::max_samples_within;

/// Queries are evaluated this long after the time that they are asked for, in milliseconds. A sampler of the history may
/// read a series again between the read of the present and the evaluation. Its value would then be after the time of the
/// query, which would see an older sample instead.
const AHEAD_MS: Millis = 50;

/// A sender that scrapes may end the series of a target and then report the failure. Between the two, the target seems to be
/// gone: the report is awaited for this time.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// The address of a query of a rule. The group keeps it in place.
pub(super) type QueryAddress = usize;

/// The address of a query.
pub(super) fn address(query: &Query) -> QueryAddress {
    std::ptr::from_ref(query).addr()
}

/// The sources of each rule of a group: the queries of its rules, with the sources that fed them.
pub(super) type KnownSources = HashMap<QueryAddress, HashSet<Key>>;

/// Answers the queries of one evaluation of a group. All of them read the present of the same moment.
pub(super) struct LiveBackend<'a> {
    engine: &'a RuleEngine,
    now: UnixNanos,
    /// The time from the evaluation's own time to `now`, in milliseconds. Queries read so much later.
    late: Millis,
    read: ReadToken,
    /// Has an entry for each query of a rule, and none for those of templates.
    sources: &'a mut KnownSources,
    /// The time that the queries took.
    pub(super) took: HashMap<QueryAddress, Duration>,
}

impl<'a> LiveBackend<'a> {
    /// `late`: the time from the evaluation's own time to `now`, in milliseconds.
    pub(super) fn new(
        engine: &'a RuleEngine,
        (now, late): (UnixNanos, Millis),
        read: ReadToken,
        sources: &'a mut KnownSources,
    ) -> Self {
        Self {
            engine,
            now,
            late,
            read,
            sources,
            took: HashMap::new(),
        }
    }

    fn answer(&mut self, query: &Query, at: Millis) -> Result<QueryAnswer, QueryError> {
        let engine = self.engine;
        let is_watched =
            engine.config.stale == StaleChoice::Unknown && self.sources.contains_key(&address(query));
        let selections = if is_watched {
            engine.view.selections_with_sources(query)
        } else {
            query.selections()
        };
        let asked = engine.view.ask(self.now, &selections);
        let memory = engine.shared.memory.clone();
        let max_samples = max_samples_within(memory.limit());
        let patience = Patience::until(Instant::now() + engine.config.timeout);
        let options = Options {
            patience: patience.unless(move || memory.is_over(Ceiling::Hard)),
            max_samples,
            ..Options::default()
        };
        let at = at.saturating_add(self.late).saturating_add(AHEAD_MS);
        let (value, _) = query.instant_with(&asked, at, &options)?;
        let is_stale = is_watched && self.is_stale(query);
        QueryAnswer::from_instant(value, is_stale)
    }

    /// Whether all sources of the query are dead or late. A scrape target that fails loses its series, so the sources of
    /// earlier evaluations count while their scrapes fail.
    fn is_stale(&mut self, query: &Query) -> bool {
        let view = &self.engine.view;
        let known = self.sources.entry(address(query)).or_default();
        let mut found = view.sources_of(query, self.now);
        if found.sources.is_empty() && known.iter().any(|key| !found.failed.contains(key)) {
            std::thread::sleep(REPORT_DELAY);
            view.refresh(unix_now(), &view.selections_with_sources(query));
            found = view.sources_of(query, self.now);
        }
        known.retain(|key| found.failed.contains(key));
        known.extend(found.sources.iter().map(|source| source.key));
        let is_alive = found.sources.iter().any(|source| {
            let is_late = self.now.saturating_sub(source.seen) > source.lease;
            !is_late && !source.is_dead && !found.failed.contains(&source.key)
        });
        let has_dead = !known.is_empty() || self.has_dead_composite(query);
        has_dead && !is_alive
    }

    /// Whether a composite that the query names has no usable value.
    fn has_dead_composite(&self, query: &Query) -> bool {
        let names = query.names();
        let composites = self.engine.view.names_of_composites().into_iter();
        let mut named = composites.filter(|(_, name)| names.contains(name));
        named.any(|(composite, _)| {
            let answers = composite.composite().read(self.now);
            answers.iter().all(|answer| answer.state.is_unusable())
        })
    }
}

impl RuleBackend for LiveBackend<'_> {
    fn instant(&mut self, query: &Query, at: Millis) -> Result<QueryAnswer, QueryError> {
        let began = Instant::now();
        let answer = self.answer(query, at).and_then(|answer| {
            // The series of a replica that is not ready stand still.
            let checked = self.engine.shared.health.check_read(self.read);
            checked.map(|()| answer).map_err(QueryError::Execution)
        });
        *self.took.entry(address(query)).or_default() += began.elapsed();
        answer
    }

    fn append(&mut self, samples: &[RuleSample]) {
        self.engine.record(samples, self.now);
    }
}
