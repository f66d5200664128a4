// SPDX-License-Identifier: Apache-2.0

//! Which of several series of the same name and labels is shown.
//!
//! Pages and queries keep their own lists of series, and each asks the same rule here, which depends only on facts that
//! all read: the times of the series in their table and what [`Senders`](super::Senders) knows of their resources. So
//! a page and a query of one moment show the same series, whichever of them looked first.
//!
//! Lists of contests stay apart too. The names that make a place depend on the format and style of a page, and each reader
//! numbers its series in its own way. One list would also make scrapes and queries wait for one lock.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use tidegate_engine::{Key, UnixNanos};

use super::{KeyMap, Senders};

/// When a series lived, and its rank among those that want the same place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// When its latest value was true, by the sender's clock.
    pub time: UnixNanos,
    /// When it was last heard of, by our clock.
    pub seen: UnixNanos,
    /// How long it may be silent and still lives, in nanoseconds.
    pub lease: u64,
    /// Since when its sender counts; 0: not known.
    pub began: UnixNanos,
    /// The lower rank keeps the place while both live.
    pub rank: Rank,
    /// Its resource, where the gateway watches that.
    pub sender: Option<Key>,
}

/// The order in which series came: that of their resources, of their tables, of their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The number of the resource: see [`Senders`](super::Senders).
    pub resource: u64,
    /// The number of the table.
    pub table: u64,
    /// The place in it.
    pub place: u64,
}

impl Lifetime {
    /// Whether it still reports.
    pub fn is_alive(&self, now: UnixNanos) -> bool {
        now.saturating_sub(self.seen) <= self.lease
    }

    /// Whether it reports beside `owner`, which has its name and labels. A series that reported last before the owner's
    /// sender started is its predecessor, and hides nothing.
    pub fn collides_with(&self, owner: &Self, now: UnixNanos) -> bool {
        self.is_alive(now) && owner.is_alive(now) && owner.began <= self.time
    }
}

/// How a series is: `None` where it has no value now.
pub type LastLifetime = Option<Lifetime>;

/// Which of these has the place: of those that report the one of the lowest rank. A series whose successor started after
/// its last value does not count as reporting, and its resource is behind the successor's from then on. Where none
/// reports, the one that was heard of last. `None`: none has a value.
pub fn owner<M: Copy>(lives: &[(M, LastLifetime)], senders: &Senders, now: UnixNanos) -> Option<M> {
    let valued = || {
        lives
            .iter()
            .filter_map(|(member, lifetime)| Some((*member, (*lifetime)?)))
    };
    let alive = || valued().filter(|(_, lifetime)| lifetime.is_alive(now));
    let latest_start = alive().map(|(_, lifetime)| lifetime.began).max().unwrap_or(0);
    let current = alive().filter(|(_, lifetime)| lifetime.time >= latest_start);
    let first = |a: &(M, Lifetime), b: &(M, Lifetime)| a.1.rank.cmp(&b.1.rank);
    let last = |(_, lifetime): &(M, Lifetime)| (lifetime.seen, Reverse(lifetime.rank));
    if let Some((member, found)) = current.min_by(first) {
        let replaced =
            valued().filter(|(_, lifetime)| lifetime.time < latest_start && lifetime.rank < found.rank);
        let replaced = replaced.filter_map(|(_, lifetime)| lifetime.sender);
        replaced.for_each(|sender| senders.rank_last(sender, latest_start));
        return Some(member);
    }
    // Clocks that differ may make each the other's predecessor: then all that report count.
    let found = alive().min_by(first).or_else(|| valued().max_by_key(last));
    found.map(|(member, _)| member)
}

/// The places that several series of one reader want. Most series want a place of their own: those are not here.
#[derive(Debug)]
pub struct Contests<M> {
    places: KeyMap<Contest<M>>,
    /// The number of the present look.
    pass: u64,
}

#[derive(Debug)]
struct Contest<M> {
    owner: M,
    others: BTreeSet<M>,
    /// The look of the last judgement, and how the owner lived then.
    judged: Option<(u64, LastLifetime)>,
}

/// The owner of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContestOutcome<M> {
    /// The series that has it.
    pub owner: M,
    /// When that one lived.
    pub lifetime: Lifetime,
}

impl<M> Default for Contests<M> {
    fn default() -> Self {
        Self {
            places: HashMap::with_hasher(RandomState::default()),
            pass: 0,
        }
    }
}

impl<M: Copy + Ord> Contests<M> {
    /// A look begins: places are judged again, each once.
    pub fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// Adds a series that wants the place of `owner`.
    pub fn add_contender(&mut self, place: Key, owner: M, other: M) {
        let contest = self.places.entry(place).or_insert_with(|| Contest {
            owner,
            others: BTreeSet::new(),
            judged: None,
        });
        let before = std::mem::replace(&mut contest.owner, owner);
        let is_known = before == owner && contest.others.contains(&other);
        if !is_known {
            contest.others.extend([before, other]);
            contest.others.remove(&owner);
            contest.judged = None;
        }
    }

    /// Removes a series that does not want the place any more.
    pub fn remove_contender(&mut self, place: Key, member: M) {
        if let Entry::Occupied(mut contest) = self.places.entry(place)
            && !contest.get_mut().lose(|known| known == member)
        {
            contest.remove();
        }
    }

    /// Whether no place is contested.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The owner of the place at the last judgement; `None`: no other series wants it.
    pub fn owner(&self, place: Key) -> Option<M> {
        self.places.get(&place).map(|contest| contest.owner)
    }

    /// Decides which series has the place now. `standing` says how a series lives; `None`: it has gone. The answer is
    /// `None` where no series has a value, or no series contests the place.
    pub fn resolve(
        &mut self,
        place: Key,
        (senders, now): (&Senders, UnixNanos),
        mut standing: impl FnMut(M) -> Option<LastLifetime>,
    ) -> Option<ContestOutcome<M>> {
        let pass = self.pass;
        let contest = self.places.get_mut(&place)?;
        if let Some((_, lifetime)) = contest.judged.filter(|(judged, _)| *judged == pass) {
            let owner = contest.owner;
            return lifetime.map(|lifetime| ContestOutcome { owner, lifetime });
        }
        let members = std::iter::once(contest.owner).chain(contest.others.iter().copied());
        let lives: Vec<(M, LastLifetime)> = members
            .filter_map(|member| Some((member, standing(member)?)))
            .collect();
        let found = owner(&lives, senders, now);
        contest.owner = found.unwrap_or(contest.owner);
        let others = lives.iter().map(|(member, _)| *member);
        contest.others = others.filter(|member| *member != contest.owner).collect();
        let is_over = contest.others.is_empty();
        let lifetime = lives.into_iter().find(|(member, _)| Some(*member) == found);
        let lifetime = lifetime.and_then(|(_, lifetime)| lifetime);
        contest.judged = Some((pass, lifetime));
        if is_over {
            self.places.remove(&place);
        }
        found
            .zip(lifetime)
            .map(|(owner, lifetime)| ContestOutcome { owner, lifetime })
    }

    /// Forgets what such series have or want.
    pub fn forget(&mut self, is_gone: impl Fn(M) -> bool) {
        self.places.retain(|_, contest| contest.lose(&is_gone));
    }
}

impl<M: Copy + Ord> Contest<M> {
    /// Forgets such members. `false`: at most one is left, which contests nothing.
    fn lose(&mut self, is_gone: impl Fn(M) -> bool) -> bool {
        let count = self.others.len();
        self.others.retain(|member| !is_gone(*member));
        let has_lost = self.others.len() < count || is_gone(self.owner);
        if is_gone(self.owner)
            && let Some(next) = self.others.pop_first()
        {
            self.owner = next;
        }
        if has_lost {
            self.judged = None;
        }
        !self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: u64 = 10;

    fn lifetime(rank: u64, began: u64, seen: u64) -> Option<Lifetime> {
        Some(Lifetime {
            time: seen,
            seen,
            lease: LEASE,
            began,
            sender: None,
            rank: Rank {
                resource: rank,
                ..Rank::default()
            },
        })
    }

    #[test]
    fn the_first_of_those_that_report_has_the_place() {
        let of = |lives: &[Option<Lifetime>], now| {
            let lives: Vec<_> = lives.iter().copied().enumerate().collect();
            owner(&lives, &Senders::default(), now)
        };
        assert_eq!(
            of(&[lifetime(2, 0, 100), lifetime(1, 0, 95)], 100),
            Some(1),
            "both report"
        );
        assert_eq!(
            of(&[lifetime(2, 0, 100), lifetime(1, 0, 89)], 100),
            Some(0),
            "the first is quiet"
        );
        assert_eq!(
            of(&[lifetime(1, 0, 95), lifetime(2, 96, 97)], 100),
            Some(1),
            "a successor"
        );
        assert_eq!(
            of(&[lifetime(1, 0, 96), lifetime(2, 96, 97)], 100),
            Some(0),
            "it reported after the start"
        );
        let three = [lifetime(1, 0, 95), lifetime(2, 50, 99), lifetime(3, 96, 97)];
        assert_eq!(
            of(&three, 100),
            Some(1),
            "the third replaces the first, and the second was before it"
        );
        assert_eq!(
            of(&[lifetime(1, 0, 50), lifetime(2, 0, 60)], 100),
            Some(1),
            "the last that was heard of"
        );
        assert_eq!(of(&[None, lifetime(2, 0, 60)], 100), Some(1));
        assert_eq!(of(&[None, None], 100), None);
        let skewed = [lifetime(1, 99, 95), lifetime(2, 97, 96)];
        assert_eq!(of(&skewed, 100), Some(0), "clocks that differ");
    }

    proptest! {
        /// The order in which a reader met the series, and how often it judged, make no difference.
        #[test]
        fn the_owner_depends_on_the_facts_alone(
            facts in prop::collection::vec((0u64..4, 0u64..30, 0u64..30, any::<bool>()), 2..5).prop_shuffle(),
            judged in prop::collection::vec(0u64..40, 0..4),
            now in 20u64..45,
        ) {
            let (place, senders) = (Key::of_value(&1), Senders::default());
            let of = |member: usize| {
                let (rank, began, seen, has_value) = facts[member];
                Some(lifetime(rank * 8 + member as u64, began, seen).filter(|_| has_value))
            };
            let mut one = Contests::default();
            (1..facts.len()).for_each(|member| one.add_contender(place, 0, member));
            let mut two = Contests::default();
            for (at, member) in (0..facts.len() - 1).rev().enumerate() {
                two.add_contender(place, two.owner(place).unwrap_or(facts.len() - 1), member);
                if let Some(at) = judged.get(at) {
                    two.begin_pass();
                    two.resolve(place, (&senders, *at), of);
                }
            }
            two.begin_pass();
            let after = |contests: &mut Contests<usize>| {
                contests.resolve(place, (&senders, now), of).map(|found| found.owner)
            };
            prop_assert_eq!(after(&mut one), after(&mut two));
        }
    }
}
