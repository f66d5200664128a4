// SPDX-License-Identifier: Apache-2.0

//! The owner of a name and labels that several series have.

use std::sync::Arc;

use tidegate_engine::{LookupResult, UnixNanos};
use tidegate_promql::Selection;

use super::super::{ContestOutcome, LastLifetime, Lifetime, Senders, Times};
use super::entry::{Key, SeriesEntry, ViewPass};
use super::state::{SourceContent, ViewSource, ViewState};

impl ViewState {
    /// Gives each series the contested names of another one, if the rule says so.
    pub(super) fn resolve_contests(&mut self, pass: ViewPass<'_>) {
        let (senders, now) = (pass.senders, pass.now);
        let mut losers: Vec<(Key, Option<ContestOutcome<Key>>)> = Vec::new();
        let mut claims = std::mem::take(&mut self.shared.claims);
        claims.dedup();
        for key in claims {
            let Some(entry) = self.entry(key).filter(|entry| !entry.numbers.is_empty()) else {
                continue;
            };
            let Some(blocker) = self.shared.blocker(entry, key) else {
                continue;
            };
            // A series of another type, or with only one of the names, waits until the owner ends.
            let place = entry.identity();
            if self.entry(blocker).is_none_or(|owner| owner.identity() != place) {
                let lifetime = lifetime_now(&self.sources, senders, blocker, now).flatten();
                let owner = blocker;
                losers.push((key, lifetime.map(|lifetime| ContestOutcome { owner, lifetime })));
                continue;
            }
            self.shared.contests.add_contender(place, blocker, key);
            let (sources, contests) = (&self.sources, &mut self.shared.contests);
            let outcome = contests.resolve(place, (senders, now), |member| {
                lifetime_now(sources, senders, member, now)
            });
            let Some(outcome) = outcome else { continue };
            if outcome.owner != blocker {
                self.hand_over(blocker, outcome.owner, pass);
            }
            losers.extend([(key, Some(outcome)), (blocker, Some(outcome))]);
        }
        // The last outcome for a place counts.
        for (loser, outcome) in losers {
            let is_shown = self.entry(loser).is_none_or(|entry| entry.is_shown);
            let collides = |outcome| self.collides(loser, outcome, pass);
            if !is_shown && outcome.is_some_and(collides) {
                _ = self.shared.contested.insert(loser);
            } else {
                _ = self.shared.contested.remove(&loser);
            }
        }
    }

    fn collides(&self, loser: Key, outcome: ContestOutcome<Key>, pass: ViewPass<'_>) -> bool {
        // The other one is its own copy in a later `aggregate` table.
        let is_copy = self.is_composite(loser) || self.is_composite(outcome.owner);
        let lifetime = lifetime_now(&self.sources, pass.senders, loser, pass.now).flatten();
        !is_copy && lifetime.is_some_and(|lifetime| lifetime.collides_with(&outcome.lifetime, pass.now))
    }

    /// The series that a selection asks for, that are not seen, and that report beside the series that is.
    pub(super) fn contested(&self, selection: &Selection) -> Vec<Key> {
        let contested = &self.shared.contested;
        match selection.name().filter(|_| !contested.is_empty()) {
            None => contested.iter().copied().collect(),
            Some(name) => {
                let asked = self.keys(name, selection);
                asked.filter(|key| contested.contains(key)).collect()
            }
        }
    }

    fn is_composite(&self, (number, _): Key) -> bool {
        let source = self.sources.get(number as usize).and_then(Option::as_ref);
        source.is_some_and(|source| matches!(source.of, SourceContent::Composite { .. }))
    }

    fn hand_over(&mut self, owner: Key, to: Key, pass: ViewPass<'_>) {
        // Taken out, so that both can be changed.
        let Some(mut old) = slot_of(&mut self.sources, owner).and_then(Option::take) else {
            return;
        };
        if let Some(Some(new)) = slot_of(&mut self.sources, to) {
            old.hand_over(new, (owner, to), pass.time, &mut self.shared);
        }
        if let Some(slot) = slot_of(&mut self.sources, owner) {
            *slot = Some(old);
        }
    }
}

fn slot_of(sources: &mut [Option<ViewSource>], (number, at): Key) -> Option<&mut Option<SeriesEntry>> {
    let source = sources.get_mut(number as usize)?.as_mut()?;
    source.entries.get_mut(at as usize)
}

/// The standing of a series; `None`: it has gone.
fn lifetime_now(
    sources: &[Option<ViewSource>],
    senders: &Senders,
    (number, at): Key,
    now: UnixNanos,
) -> Option<LastLifetime> {
    let source = sources.get(number as usize)?.as_ref()?;
    let entry = source.entries.get(at as usize)?.as_ref()?;
    if entry.numbers.is_empty() {
        return Some(None);
    }
    let resource = &entry.series.resource;
    match (&source.of, entry.place) {
        (SourceContent::Table { table, .. }, Some(place)) => {
            let table = table.upgrade()?;
            // Read again: the others of the place may have been read at another time.
            let times = match table.series_reader().at(place) {
                LookupResult::Shown(reading) => Times::of(&reading),
                LookupResult::Hidden(_) => None,
                LookupResult::Gone => return None,
            };
            let lifetime = |times| senders.lifetime(resource, times, &table, place.to_bits());
            Some(times.map(lifetime))
        }
        _ => {
            let address = Arc::as_ptr(&entry.series).addr() as u64;
            Some(Some(Lifetime::of_composite(now, address)))
        }
    }
}
