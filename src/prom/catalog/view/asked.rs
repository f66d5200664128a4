//! A query that is being computed over the view, and what its readers must know of the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use tidegate_engine::UnixNanos;
use tidegate_engine::query::{NAME, Selection};

use super::super::differing;
use super::View;
use super::entry::Key;
use super::state::State;
use crate::config::nearest;

/// Metrics that one answer names in a kind of warning; the rest is counted.
const NAMED: usize = 10;

/// Samples for one query. It notes what the query has met.
pub struct Asked<'a> {
    pub(super) view: &'a View,
    notes: Mutex<Notes>,
}

/// What the readers of an answer must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// By metric: the living series that others of the same name and labels hide, and in what the first of them differs.
    hidden: BTreeMap<String, (BTreeSet<Key>, String)>,
    /// Metrics that are known nowhere, with the nearest name that is known.
    unknown: BTreeMap<String, Option<String>>,
}

impl Notes {
    /// What is missing in the answer because living series collide; `None`: nothing.
    pub fn collision(&self) -> Option<String> {
        let hidden: Vec<String> = self.hidden().collect();
        (!hidden.is_empty()).then(|| hidden.join("; "))
    }

    /// The metrics that are known nowhere.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.keys().map(String::as_str)
    }

    fn hidden(&self) -> impl Iterator<Item = String> {
        self.hidden.iter().take(NAMED).map(|(name, (series, differ))| {
            let series = series.len();
            let (are, they) = match series {
                1 => ("1 series is", "it differs"),
                _ => ("", "they differ"),
            };
            let mut text = match series {
                1 => format!("metric \"{name}\": {are} left out: another living series has the same name and labels"),
                _ => format!("metric \"{name}\": {series} series are left out: other living series have the same names and labels"),
            };
            if !differ.is_empty() {
                let _ = write!(text, "; {they} in {differ}: make one of these a label");
            }
            text
        })
    }

    /// All of it, for people.
    pub fn warnings(&self) -> Vec<String> {
        let unknown = self.unknown.iter().take(NAMED).map(|(name, near)| {
            let mut text =
                format!("metric \"{name}\" is not known: no series of this name is here or was here lately");
            if let Some(near) = near {
                let _ = write!(text, "; did you mean \"{near}\"?");
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
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            notes: Mutex::default(),
        }
    }

    /// What the query has met until now.
    pub fn notes(&self) -> Notes {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, state: &State, selection: &Selection) {
        let unknown = selection.name().filter(|name| !self.view.is_known(state, name));
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = unknown {
            let near = nearest(name, state.metrics()).map(str::to_owned);
            notes.unknown.insert(name.to_owned(), near);
        }
        for key in &state.books.contested {
            let Some(entry) = state.entry(*key) else { continue };
            let contested = entry
                .numbers
                .iter()
                .filter(|number| number.is_shadowed && number.is_contested);
            let Some(first) = contested.clone().find(|number| selection.accepts(&number.labels)) else {
                continue;
            };
            let owner = state.books.owner(&first.labels);
            let owner = owner.and_then(|owner| state.entry(owner));
            let known = notes
                .hidden
                .entry(first.labels.get(NAME).to_owned())
                .or_insert_with(|| {
                    let differ = owner.map(|owner| differing(&owner.series, &entry.series));
                    (BTreeSet::new(), differ.unwrap_or_default())
                });
            known.0.insert(*key);
        }
    }
}

impl View {
    /// What the readers of an answer to these selections must know.
    pub fn notes(&self, now: UnixNanos, selections: &[Selection]) -> Notes {
        self.refresh(now, selections);
        let asked = self.recall();
        let state = self.state();
        selections
            .iter()
            .for_each(|selection| asked.note(&state, selection));
        drop(state);
        asked.notes()
    }

    /// Whether a metric of this name is here, was here, or is that of a declared composite.
    fn is_known(&self, state: &State, name: &str) -> bool {
        state.books.gone.contains_key(name)
            || state.named(name).any(|entry| entry.may_be(name))
            || self.composites.list().iter().any(|composite| {
                let names = self.names_of_gauge(&composite.declaration().name);
                names.iter().any(|known| known == name)
            })
    }

    /// The names of the metrics that it knows.
    pub fn metrics(&self) -> BTreeSet<String> {
        self.state().metrics().map(str::to_owned).collect()
    }
}
