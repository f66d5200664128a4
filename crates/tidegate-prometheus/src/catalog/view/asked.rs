// SPDX-License-Identifier: Apache-2.0

//! A query in progress over the view, and the warnings for its readers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Weak;

use parking_lot::Mutex;
use tidegate_engine::{Metric, UnixNanos};
use tidegate_promql::{Millis, NAME, Selection};

use super::super::differing;
use super::entry::{Key, SeriesEntry};
use super::listed::holds;
use super::state::ViewState;
use super::{NamedTable, View};
use crate::Style;
use crate::flat::SUFFIXES;
use crate::render::kind::kinds;
use tidegate_config::nearest;
use tidegate_pipeline::watch::Watched;

/// Metrics that one answer names in a kind of warning; the rest is counted.
const NAMED: usize = 10;

/// Why a gateway that receives data may know no metric.
const NO_SERIES: &str =
    "; queries see no data that exporters only send on: add a `prometheus` exporter to the pipeline";

/// Samples for one query. It notes what the query has met.
pub struct Asked<'a> {
    pub(super) view: &'a View,
    /// When it began to read the present, and the number of sources that had ended before; `None`: it reads the past only.
    pub(super) began: Option<(UnixNanos, u64)>,
    warnings: Mutex<QueryWarnings>,
}

/// The warnings that come with an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryWarnings {
    /// By metric: the living series that others of the same name and labels hide, and in what the first of them differs.
    hidden: BTreeMap<String, (BTreeSet<Key>, String)>,
    /// Metrics that are known nowhere, and the names that were probably meant.
    unknown: BTreeMap<String, Option<Meant>>,
    /// Set if the query needs values from before the history.
    before_history: Option<BeforeHistory>,
}

/// A query that needs values from before the history of this gateway. Times are in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeHistory {
    /// The earliest time that the query needs.
    pub since: Millis,
    /// The earliest time of which the gateway may have a sample.
    pub begins: Millis,
}

/// The probable meaning of an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meant {
    /// Another exporter has this name for a metric that queries call so.
    Called(String),
    /// The nearest name that is known.
    Near(String),
    /// Any name: no component of the gateway keeps series.
    NoSeries,
}

impl QueryWarnings {
    /// The series missing in the answer because living series collide; `None`: none.
    pub fn collision(&self) -> Option<String> {
        let hidden: Vec<String> = self.hidden().collect();
        (!hidden.is_empty()).then(|| hidden.join("; "))
    }

    /// The metrics that are known nowhere.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.keys().map(String::as_str)
    }

    /// Takes back that a metric is not known.
    pub fn forget_unknown(&mut self, name: &str) {
        self.unknown.remove(name);
    }

    /// The time before the history that the query needs; `None`: it needs none.
    pub fn before_history(&self) -> Option<BeforeHistory> {
        self.before_history
    }

    fn note_time(&mut self, selection: &Selection, state: &ViewState) {
        let Some(begins) = state.history_begins(selection) else {
            return;
        };
        let known = self.before_history.map_or(begins, |before| before.since);
        let since = selection.since();
        if since < known {
            self.before_history = Some(BeforeHistory { since, begins });
        }
    }

    fn hidden(&self) -> impl Iterator<Item = String> {
        self.hidden.iter().take(NAMED).map(|(name, (series, differ))| {
            let series = series.len();
            let (are, they) = match series {
                1 => ("1 series is", "it differs"),
                _ => ("", "they differ"),
            };
            let mut text = match series {
                1 => format!("metric \"{name}\": {are} omitted: another living series has the same name and labels"),
                _ => format!("metric \"{name}\": {series} series are omitted: other living series have the same names and labels"),
            };
            if !differ.is_empty() {
                let _ = write!(text, "; {they} in {differ}: make one of these a label");
            }
            text
        })
    }

    /// All warnings as text.
    pub fn warnings(&self) -> Vec<String> {
        let unknown = self.unknown.iter().take(NAMED).map(|(name, near)| {
            let mut text =
                format!("metric \"{name}\" is not known: no present or recent series has this name");
            match near {
                Some(Meant::Called(name)) => {
                    let _ = write!(text, "; queries call it \"{name}\"");
                }
                Some(Meant::Near(name)) => {
                    let _ = write!(text, "; did you mean \"{name}\"?");
                }
                Some(Meant::NoSeries) => text.push_str(NO_SERIES),
                None => {}
            }
            text
        });
        let more = [&self.hidden.len(), &self.unknown.len()]
            .into_iter()
            .map(|all| all.saturating_sub(NAMED))
            .sum::<usize>();
        let more = (more > 0).then(|| format!("and {more} more metrics"));
        self.hidden().chain(unknown).chain(more).collect()
    }
}

impl<'a> Asked<'a> {
    pub(super) fn new(view: &'a View, began: Option<(UnixNanos, u64)>) -> Self {
        Self {
            view,
            began,
            warnings: Mutex::default(),
        }
    }

    /// The warnings of the query so far.
    pub fn query_warnings(&self) -> QueryWarnings {
        self.warnings.lock().clone()
    }

    pub(super) fn note(&self, state: &ViewState, selection: &Selection) {
        let unknown = selection.name().filter(|name| !self.view.is_known(state, name));
        let mut notes = self.warnings.lock();
        if let Some(name) = unknown {
            let meant = self.view.meant(state, name);
            notes.unknown.insert(name.to_owned(), meant);
        }
        notes.note_time(selection, state);
        for key in state.contested(selection) {
            let Some(entry) = state.entry(key) else { continue };
            let mut accepted = entry
                .numbers
                .iter()
                .filter(|number| selection.accepts(&number.labels));
            let Some(first) = accepted.next() else { continue };
            let owner = state.shared.blocker(entry, key);
            let owner = owner.and_then(|owner| state.entry(owner));
            let known = notes
                .hidden
                .entry(first.labels.get(NAME).to_owned())
                .or_insert_with(|| {
                    let differ = owner.map(|owner| differing(&owner.series, &entry.series));
                    (BTreeSet::new(), differ.unwrap_or_default())
                });
            known.0.insert(key);
        }
    }
}

impl View {
    /// The warnings for an answer to these selections.
    pub fn query_warnings(&self, now: UnixNanos, selections: &[Selection]) -> QueryWarnings {
        self.refresh(now, selections);
        let asked = self.recall();
        let state = self.state();
        selections
            .iter()
            .for_each(|selection| asked.note(&state, selection));
        drop(state);
        asked.query_warnings()
    }

    /// Whether a metric of this name is here, was here, or is that of a declared composite.
    fn is_known(&self, state: &ViewState, name: &str) -> bool {
        let mut ended = Vec::new();
        for entry in state.named(name).filter(|entry| entry.may_be(name)) {
            if entry.numbers.is_empty() {
                ended.push(entry);
            } else {
                return true;
            }
        }
        let (tables, composites) = self.tables_and_composites();
        state.shared.gone.contains_key(name)
            || ended.into_iter().any(|entry| !is_copy(entry, &tables))
            || self
                .names_among(&tables, composites)
                .iter()
                .any(|(_, known)| known == name)
    }

    /// The probable meaning of an unknown name.
    fn meant(&self, state: &ViewState, name: &str) -> Option<Meant> {
        if let Some(called) = self.called(state, name) {
            return Some(Meant::Called(called));
        }
        if state.metrics().next().is_none() && self.named_tables().is_empty() {
            return Some(Meant::NoSeries);
        }
        let near = nearest(name, state.metrics())?;
        let is_part = |part: &&&str| self.is_known(state, &format!("{near}{part}"));
        // A classic histogram has series only for its parts.
        match SUFFIXES.iter().find(is_part) {
            Some(part) => Some(Meant::Near(format!("{near}{part}"))),
            None => self.called(state, near).map(Meant::Near),
        }
    }

    /// The query name of the metric that an exporter shows under this name.
    fn called(&self, state: &ViewState, asked: &str) -> Option<String> {
        let styles = self.styles();
        let (tables, composites) = self.tables_and_composites();
        let is_asked = |metric: &Metric, stem: &str| {
            let mut names = styles.iter().map(|style| name_of(metric, style));
            names.any(|name| name.as_deref() == Some(stem))
        };
        let of_series = state.metrics().find_map(|known| {
            let mut entries = state.named(known);
            let entry = entries.find(|entry| entry.name.as_deref() == Some(known))?;
            let mut suffixes = SUFFIXES.iter().filter(|suffix| {
                let stem = asked.strip_suffix(**suffix).filter(|stem| *stem != known);
                stem.is_some_and(|stem| is_asked(&entry.series.metric, stem))
            });
            let name = format!("{known}{}", suffixes.next()?);
            (entry.may_be(&name) && !is_copy(entry, &tables)).then_some(name)
        });
        // A composite that says nothing now has no series.
        of_series.or_else(|| {
            let mut composites = self.names_among(&tables, composites).into_iter();
            let is_it = |composite: &Watched| {
                let names = self.names_of_gauge(&composite.declaration().name);
                names.iter().any(|name| name == asked)
            };
            let found = composites.find(|(composite, name)| name != asked && is_it(composite));
            found.map(|(_, name)| name)
        })
    }

    /// The names of the metrics that it knows.
    pub fn metrics(&self) -> BTreeSet<String> {
        self.state().metrics().map(str::to_owned).collect()
    }
}

/// Whether a series without numbers is one that counts in the table of another exporter.
fn is_copy(entry: &SeriesEntry, tables: &[NamedTable]) -> bool {
    let Some(place) = entry.place.filter(|_| entry.numbers.is_empty()) else {
        return false;
    };
    let series = &entry.series;
    let mut holders = tables.iter().filter(|named| {
        let name = name_of(&series.metric, &named.style);
        name.as_deref() == entry.name.as_deref() && holds(&named.table, place, series)
    });
    holders.any(|named| {
        let mut others = named.copied.iter().filter_map(Weak::upgrade);
        others.any(|other| other.has(series))
    })
}

fn name_of(metric: &Metric, style: &Style) -> Option<String> {
    let (kind, _) = kinds(metric.data).ok()?;
    style.naming.of(metric, kind)
}
