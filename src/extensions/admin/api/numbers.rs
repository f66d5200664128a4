// SPDX-License-Identifier: Apache-2.0

//! The numbers of a query for an autoscaler, or the reason why it must not act on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use tidegate_engine::{Answer as Composed, Attributes, Freshness, UnixNanos, clock};
use tidegate_promql::{Instant, Options, Patience, Query, QueryError, Selection};

use super::{Api, MAX_LIGHT, SAMPLE_BYTES};
use crate::component::account::SenderKey;
use crate::component::{Ceiling, unix_now};
use crate::extensions::admin::queues::{NotComputed, QueryKind};
use crate::prom::catalog::{Level, millis};
use crate::watch::Watched;

/// The longest wait of an autoscaler for an answer, including its turn. In tests, longer than any answer takes on a machine
/// under load.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 10 });

/// The most incomplete gauges that the warnings of an answer name.
const MOST_LEVELS: usize = 10;

/// The numbers of a query for an autoscaler.
pub(in crate::extensions::admin) struct Numbers {
    pub(in crate::extensions::admin) values: Vec<f64>,
    /// The reason why they are incomplete; `None`: they are complete.
    pub(in crate::extensions::admin) partial: Option<Partial>,
}

/// The groups of a composite that a query asks for.
struct Groups {
    watched: Arc<Watched>,
    answers: Vec<Composed>,
}

/// The reason why a query gives an autoscaler no numbers.
#[derive(Debug, thiserror::Error)]
pub(in crate::extensions::admin) enum NoNumbers {
    /// A composite that the query names has a group without a value, or no source of a gauge reports.
    #[error("{0}")]
    Missing(String),
    /// The query looks at more than it may.
    #[error("{0}")]
    TooMuch(String),
    /// The query took longer than it may.
    #[error("the query exceeded its time limit")]
    Timeout,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// The reason why a value is incomplete.
pub(in crate::extensions::admin) enum Partial {
    /// Living series are omitted because others have their name and labels.
    Collision(String),
    /// Some sources don't report.
    Sources(String),
}

impl NoNumbers {
    fn failed(why: impl ToString) -> Self {
        Self::Failed(why.to_string())
    }
}

impl Api {
    /// The numbers that a query gives now, for an autoscaler: a group of a composite that it selects and that is null,
    /// stale or absent is an error, whatever the composite's `on_stale` shows. So is a gauge whose sources are all overdue, or
    /// whose scrapes all fail.
    pub(in crate::extensions::admin) async fn numbers(
        self: Arc<Self>,
        query: String,
        client: Option<SenderKey>,
        kind: QueryKind,
    ) -> Result<Numbers, NoNumbers> {
        let deadline = Clock::now() + PATIENCE.min(self.limits.timeout);
        // A large query goes to the heavy queue, so that one autoscaler delays no other.
        let attempt = async |kind, most| {
            let patience = Patience::until(deadline);
            let (api, query, waits) = (self.clone(), query.clone(), patience.clone());
            let work = move || api.compute(&query, patience, most);
            self.queues.compute(kind, client, waits, work).await
        };
        let computed = async {
            match attempt(kind, MAX_LIGHT).await {
                Ok(Err(NoNumbers::TooMuch(_))) if self.shared.memory.is_over(Ceiling::Soft) => {
                    Err(self.queues.refused(NotComputed::Memory))
                }
                Ok(Err(NoNumbers::TooMuch(_))) if MAX_LIGHT < self.max_samples() => {
                    attempt(QueryKind::Heavy, self.max_samples()).await
                }
                computed => computed,
            }
        };
        let numbers = match tokio::time::timeout_at(deadline.into(), computed).await {
            Ok(Ok(computed)) => computed,
            Ok(Err(why)) => Err(NoNumbers::failed(why)),
            Err(_) => Err(NoNumbers::Timeout),
        };
        if let Err(NoNumbers::Timeout) = numbers {
            self.queues.refused(NotComputed::Timeout);
        }
        numbers
    }

    fn compute(&self, query: &str, patience: Patience, most: usize) -> Result<Numbers, NoNumbers> {
        let query = Query::parse(query).map_err(NoNumbers::failed)?;
        let no_memory = || NoNumbers::failed(self.queues.refused(NotComputed::Memory));
        let (wanted, patience) = if most > MAX_LIGHT {
            (self.max_bytes(), self.while_memory_lasts(patience))
        } else {
            (0, patience)
        };
        let grant = self.memory.take(wanted).ok_or_else(no_memory)?;
        let is_limited = grant.bytes() < wanted;
        let most = if is_limited {
            grant.bytes() / SAMPLE_BYTES
        } else {
            most
        };
        let options = Options {
            patience,
            max_samples: most.min(self.max_samples()),
            ..Options::default()
        };
        let now = unix_now();
        let asked = self.view.ask(now, &self.view.selections_with_sources(&query));
        let value = query.instant_with(&asked, millis(clock::wall(now)), &options);
        let (value, _) = value.map_err(|error| match error {
            QueryError::TooMuch(_) if is_limited => no_memory(),
            QueryError::TooMuch(why) => NoNumbers::TooMuch(why),
            QueryError::Timeout => NoNumbers::Timeout,
            QueryError::Memory => no_memory(),
            error => NoNumbers::failed(error),
        })?;
        let groups = self.groups_of(&query, now);
        if !query.handles_absence() {
            check_groups(&groups)?;
        }
        let levels = self.view.levels(&query, now);
        check_levels(&levels)?;
        let values = match value {
            Instant::Scalar(number) => vec![number],
            Instant::Vector(vector) => {
                let numbers = vector.iter().map(|(_, value)| value.float());
                let numbers: Option<_> = numbers.collect();
                numbers
                    .ok_or_else(|| NoNumbers::failed("it gives native histograms, which are not numbers"))?
            }
            Instant::String(_) | Instant::Matrix(_) => {
                return Err(NoNumbers::failed("it gives neither a number nor a vector"));
            }
        };
        Ok(Numbers {
            values,
            partial: match asked.query_warnings().collision() {
                Some(collision) => Some(Partial::Collision(collision)),
                None => partial(&groups).or_else(|| levels.iter().find_map(Partial::of_level)),
            },
        })
    }

    /// The incomplete composites that the query names, with the reasons.
    pub(super) fn partial_composites(
        &self,
        query: &Query,
        now: UnixNanos,
        patience: &Patience,
    ) -> Vec<String> {
        let selections = query.selections();
        let partial = self.composites_of(query).into_iter().filter_map(|watched| {
            let mut answers = watched.composite().answers(now);
            answers.retain(|answer| answer.state == Freshness::Partial);
            let mut asked = answers.iter().filter(|answer| {
                let labels = self.view.labels_of_group(watched.composite(), &answer.attributes);
                let accepts = |selection: &Selection| labels.iter().any(|labels| selection.accepts(labels));
                // After the client has left, the result does not matter.
                patience.check().is_err() || selections.iter().any(accepts)
            });
            Partial::of(&watched.declaration().name, asked.next()?).map(|partial| partial.why().to_owned())
        });
        partial.collect()
    }

    /// The incomplete gauges that a query selects, because scrapes of their targets fail, with the reasons.
    pub(super) fn partial_levels(&self, query: &Query, now: UnixNanos) -> BTreeSet<String> {
        let levels = self.view.levels_of_failed(query, now);
        let partial = levels.iter().filter_map(Partial::of_level);
        let reasons: BTreeSet<String> = partial.map(|partial| partial.why().to_owned()).collect();
        reasons.into_iter().take(MOST_LEVELS).collect()
    }

    /// The composites that a query names, each with the groups that its selectors accept.
    fn groups_of(&self, query: &Query, now: UnixNanos) -> Vec<Groups> {
        let selections = query.selections();
        let groups = |watched: Arc<Watched>| {
            let mut answers = watched.composite().read(now);
            // One that has nothing to say at all may yet get the group that is asked for.
            if !answers.iter().all(|answer| answer.state.is_unusable()) {
                answers.retain(|answer| {
                    let mut selections = selections.iter();
                    let is_asked = selections.any(|asked| self.accepts(asked, &watched, &answer.attributes));
                    // An error of the declaration is that of all groups.
                    is_asked || answer.error.is_some()
                });
            }
            Groups { watched, answers }
        };
        self.composites_of(query).into_iter().map(groups).collect()
    }

    fn accepts(&self, selection: &Selection, watched: &Watched, group: &Attributes) -> bool {
        let labels = self.view.labels_of_group(watched.composite(), group);
        labels.iter().any(|labels| selection.accepts(labels))
    }

    /// Whether all that a query selects is groups of composites whose targets have left discovery.
    pub(in crate::extensions::admin) fn has_left(&self, query: &str) -> bool {
        let Ok(query) = Query::parse(query) else {
            return false;
        };
        let (now, selections) = (unix_now(), query.selections());
        !selections.is_empty()
            && selections
                .iter()
                .all(|selection| self.has_selected_left(selection, now))
    }

    fn has_selected_left(&self, selection: &Selection, now: UnixNanos) -> bool {
        let Some(name) = selection.name() else {
            return false;
        };
        let composites = self.composites_named(&[name.to_owned()]);
        let has_left = |watched: &Arc<Watched>| {
            // The query was computed a moment ago, and its composites with it.
            let answers = watched.composite().answers(now);
            let asked = |group: &Attributes| self.accepts(selection, watched, group);
            let mut there = answers.iter().filter(|answer| asked(&answer.attributes));
            let any = there.clone().any(is_gone) || watched.composite().left().iter().any(asked);
            any && there.all(|answer| answer.state == Freshness::Absent)
                && answers.iter().all(|answer| answer.error.is_none())
        };
        !composites.is_empty() && composites.iter().all(has_left)
    }
}

/// A group without a value is missing in what a query adds up: no autoscaler may act by the rest.
fn check_groups(all: &[Groups]) -> Result<(), NoNumbers> {
    for Groups { watched, answers } in all {
        let name = &watched.declaration().name;
        if let Some(error) = answers.iter().find_map(|answer| answer.error.as_deref()) {
            return Err(NoNumbers::Failed(format!(
                "the composite `{name}` has no value: {error}"
            )));
        }
        // Groups whose targets have left count only without other groups.
        let mut there: Vec<&Composed> = answers.iter().filter(|answer| !is_gone(answer)).collect();
        if there.is_empty() {
            there = answers.iter().collect();
        }
        let is_null = |answer: &&&Composed| answer.state.is_unusable() || answer.value.is_none();
        if let Some(null) = there.iter().find(is_null) {
            let group = if null.attributes.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", null.attributes)
            };
            return Err(NoNumbers::Missing(format!(
                "the composite `{name}{group}` is {} and has no value, so the query has no value now; check that its \
                 sources run and reach the gateway",
                null.state.name()
            )));
        }
    }
    Ok(())
}

/// A gauge keeps its last level for minutes after its sources have gone, or has none while its scrapes fail. No autoscaler
/// may act by either, and no part of a query gives another value for it.
fn check_levels(all: &[Level]) -> Result<(), NoNumbers> {
    match all.iter().find(|level| level.reporting == 0) {
        None => Ok(()),
        Some(Level { name, expected, .. }) => Err(NoNumbers::Missing(format!(
            "the gauge `{name}` is stale and has no value: 0 of {expected} sources report; check that they run and reach \
             the gateway"
        ))),
    }
}

/// The reason why the answer to a query is incomplete; `None`: it is complete.
fn partial(all: &[Groups]) -> Option<Partial> {
    let partials = all.iter().flat_map(|Groups { watched, answers }| {
        let name = &watched.declaration().name;
        answers.iter().filter_map(|answer| Partial::of(name, answer))
    });
    // A collision weighs more.
    partials.reduce(|one, other| match one {
        Partial::Collision(_) => one,
        Partial::Sources(_) => other,
    })
}

/// Whether all targets of a group have left discovery.
fn is_gone(answer: &Composed) -> bool {
    answer.value.is_none() && answer.has_left
}

impl Partial {
    /// The reason why the value of a group is incomplete; `None`: it is complete, or missing.
    pub(in crate::extensions::admin) fn of(composite: &str, answer: &Composed) -> Option<Self> {
        if answer.state != Freshness::Partial {
            return None;
        }
        Some(match &answer.collision {
            Some(collision) => {
                Self::Collision(format!("the composite `{composite}` is partial: {collision}"))
            }
            None => {
                let (reporting, expected) = (answer.sources_reporting, answer.sources_expected);
                let why = if reporting < expected {
                    format!("{reporting} of {expected} sources report")
                } else {
                    "its window is not covered yet, or lacks data".to_owned()
                };
                Self::Sources(format!("the composite `{composite}` is partial: {why}"))
            }
        })
    }

    /// The reason why a gauge is incomplete; `None`: it is complete.
    fn of_level(level: &Level) -> Option<Self> {
        let Level {
            name,
            expected,
            reporting,
        } = level;
        (reporting < expected).then(|| {
            Self::Sources(format!(
                "the gauge `{name}` is partial: {reporting} of {expected} sources report"
            ))
        })
    }

    /// For people.
    pub(in crate::extensions::admin) fn why(&self) -> &str {
        match self {
            Self::Collision(why) | Self::Sources(why) => why,
        }
    }
}

#[cfg(test)]
mod tests;
