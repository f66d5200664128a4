// SPDX-License-Identifier: Apache-2.0

//! The series that an exposition omits, and the reasons.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tidegate_engine::{Key, Series, UnixNanos};

/// The reason why an exposition omits a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OmissionReason {
    /// A metric of another type has the name.
    TypeClash,
    /// Another owner has a series of the same name and labels.
    DuplicateIdentity,
    /// The same owner has a series with this identity, of another resource or scope.
    AmbiguousIdentity,
    /// A series that the exporter says of a target, whose name is a metric's.
    TargetInfo,
    /// The metric's name has no exposable part.
    Nameless,
    /// The metric is a sum of unknown temporality.
    NoTemporality,
    /// The label storage is full.
    LabelsFull,
    /// The format has no word for its value.
    UnrepresentableValue,
}

impl OmissionReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::TypeClash,
        Self::DuplicateIdentity,
        Self::AmbiguousIdentity,
        Self::TargetInfo,
        Self::Nameless,
        Self::NoTemporality,
        Self::LabelsFull,
        Self::UnrepresentableValue,
    ];

    /// The label value of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::TypeClash => "type_clash",
            Self::DuplicateIdentity => "duplicate_identity",
            Self::AmbiguousIdentity => "ambiguous_identity",
            Self::TargetInfo => "target_info",
            Self::Nameless => "nameless",
            Self::NoTemporality => "no_temporality",
            Self::LabelsFull => "labels_full",
            Self::UnrepresentableValue => "unsayable_value",
        }
    }
}

/// The number of omitted series, by the number of the reason.
pub type Counts = [u64; OmissionReason::ALL.len()];

/// Series that can't be exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The kind of conflict.
    pub reason: OmissionReason,
    /// The metric that is omitted.
    pub metric: Arc<str>,
    /// The sender of the omitted series.
    pub owner: Arc<str>,
    /// The sender of the series that it collides with; `None`: none, or the same one.
    pub rival: Option<Arc<str>>,
    /// The reason, with the owner of the rival series.
    pub why: String,
    /// The number of its series.
    pub series: u64,
    /// Since when.
    pub since: UnixNanos,
}

/// A metric that is shown under the words of another one of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The family.
    pub family: Box<str>,
    /// The sender of the differing metadata.
    pub owner: Arc<str>,
    /// The sender of the shown metadata.
    pub shown: Arc<str>,
    /// In what they differ.
    pub what: &'static str,
    /// Since when.
    pub since: UnixNanos,
}

/// The reason why a metric has no family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Taken {
    /// There is nothing it could be called, or it is nothing that could be.
    Nameless(OmissionReason, &'static str),
    /// Another one has one of its names.
    By {
        sample: Box<str>,
        family: Box<str>,
        kind: &'static str,
        owner: Arc<str>,
    },
}

/// The reason why a series is omitted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// The metric has no family.
    Family(Arc<Taken>),
    /// This other owner has a living series of the same name and labels. The attributes in which they differ follow.
    Rival(Arc<str>, Arc<str>),
    /// The same owner has the place.
    Twin(Arc<str>),
    /// The label storage is full.
    Full,
}

impl Why {
    fn reason(&self) -> OmissionReason {
        match self {
            Self::Rival(..) => OmissionReason::DuplicateIdentity,
            Self::Twin(_) => OmissionReason::AmbiguousIdentity,
            Self::Full => OmissionReason::LabelsFull,
            Self::Family(taken) => match **taken {
                Taken::By { .. } => OmissionReason::TypeClash,
                Taken::Nameless(reason, _) => reason,
            },
        }
    }

    /// The owner of the place.
    fn rival(&self) -> Option<Arc<str>> {
        match self {
            Self::Rival(owner, _) => Some(owner.clone()),
            Self::Family(taken) => match &**taken {
                Taken::By { owner, .. } => Some(owner.clone()),
                Taken::Nameless(..) => None,
            },
            Self::Twin(_) | Self::Full => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(taken) => match &**taken {
                Taken::Nameless(_, why) => f.write_str(why),
                Taken::By {
                    sample,
                    family,
                    kind,
                    owner,
                } if sample == family => write!(f, "the name `{family}` is a {kind} of {owner} already"),
                Taken::By {
                    sample,
                    family,
                    kind,
                    owner,
                } => write!(f, "`{sample}` belongs to the {kind} `{family}` of {owner}"),
            },
            Self::Rival(other, differ) => {
                let cure = "send them under different names or labels";
                write!(
                    f,
                    "{other} has a series of the same name and labels that still reports"
                )?;
                write_difference(f, differ, cure)
            }
            Self::Twin(differ) => {
                let cure = "give each instance its own `service.instance.id`";
                f.write_str(
                    "another resource or scope has a series of the same name and labels that still reports",
                )?;
                write_difference(f, differ, cure)
            }
            Self::Full => f.write_str("there are 16 GiB of labels already"),
        }
    }
}

/// In what two series differ, and what to do.
fn write_difference(f: &mut fmt::Formatter<'_>, differ: &str, cure: &str) -> fmt::Result {
    match differ {
        "" => write!(f, "; {cure}"),
        differ => write!(
            f,
            "; they differ in {differ}: make one of these a label (`resource_constant_labels` copies resource attributes), or {cure}"
        ),
    }
}

/// The owner of the gateway's own series.
const OWN: &str = "the exporter itself";

/// A series that is omitted.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) source: u16,
    pub(super) place: u64,
    pub(super) owner: Arc<str>,
    pub(super) series: Arc<Series>,
    pub(super) why: Why,
    /// Since when it collides with what lives.
    pub(super) since: UnixNanos,
    /// The contested place, if another series has it.
    pub(super) contest: Option<Key>,
    /// The series that has the place.
    pub(super) rival: Option<(u16, u64)>,
    /// Whether it reports beside the owner of its place. Otherwise it is superseded, and collides with no series.
    pub(super) is_alive: bool,
    /// Whether the omission is reported.
    pub(super) is_reported: bool,
}

impl Refused {
    fn counts(&self) -> u64 {
        u64::from(self.is_alive)
    }
}

/// The most series that one page checks again, so that no page takes long for them.
const RETRIES: usize = 4096;

/// All series that are omitted now.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    refused: VecDeque<Refused>,
    /// Their numbers by reason.
    counts: Counts,
    /// The number of them, from the front, to try again because a series has ended.
    to_try: usize,
    /// The targets, if a metric has the name of their family.
    targets: Option<Conflict>,
    unreported: Unreported,
}

/// Unreported first omissions, by metric, owner and reason.
#[derive(Debug, Default)]
struct Unreported {
    list: Vec<Conflict>,
    places: HashMap<(Arc<str>, Arc<str>, OmissionReason), usize>,
}

impl Conflicts {
    /// Leaves a series out.
    pub(super) fn refuse(&mut self, mut refused: Refused) {
        let reason = refused.why.reason();
        if refused.is_alive && !refused.is_reported {
            refused.is_reported = true;
            let (metric, owner) = (&refused.series.metric.name, &refused.owner);
            self.unreported
                .add((metric.clone(), owner.clone(), reason), 1, || Conflict {
                    reason,
                    metric: metric.clone(),
                    owner: owner.clone(),
                    rival: refused.why.rival(),
                    why: refused.why.to_string(),
                    series: 0,
                    since: refused.since,
                });
        }
        self.counts[reason as usize] += refused.counts();
        self.refused.push_back(refused);
    }

    /// Adds `series` newly omitted series.
    pub(super) fn add(&mut self, conflict: &Conflict, series: u64) {
        let key = (conflict.metric.clone(), conflict.owner.clone(), conflict.reason);
        self.unreported.add(key, series, || Conflict {
            series: 0,
            ..conflict.clone()
        });
    }

    /// A series has ended, so a series that was omitted may have a place now.
    pub(super) fn try_all_again(&mut self) {
        self.to_try = self.refused.len();
    }

    /// Whether some of it may have a place now.
    pub(super) fn is_to_try(&self) -> bool {
        self.to_try > 0
    }

    /// Some of the series that were omitted: those that may have ended, or (`true`) may have a place now.
    pub(super) fn take_some(&mut self) -> Vec<(Refused, bool)> {
        let count = self.refused.len().min(RETRIES);
        let to_try = self.to_try.min(count);
        self.to_try -= to_try;
        let some: Vec<_> = self.refused.drain(..count).collect();
        for refused in &some {
            self.counts[refused.why.reason() as usize] -= refused.counts();
        }
        let some = some.into_iter().enumerate();
        some.map(|(at, refused)| (refused, at < to_try)).collect()
    }

    /// Removes and returns those that are omitted.
    pub(super) fn take_those(&mut self, members: &BTreeSet<(u16, u64)>) -> Vec<(Refused, bool)> {
        let all = std::mem::take(&mut self.refused).into_iter();
        let is_one = |refused: &Refused| members.contains(&(refused.source, refused.place));
        let (those, others): (Vec<_>, Vec<_>) = all.partition(is_one);
        self.refused = others.into();
        for refused in &those {
            self.counts[refused.why.reason() as usize] -= refused.counts();
        }
        those.into_iter().map(|refused| (refused, false)).collect()
    }

    /// Forgets the series of sources that are gone.
    pub(super) fn forget(&mut self, gone: &[u16]) {
        self.refused.retain(|refused| {
            let is_gone = gone.contains(&refused.source);
            self.counts[refused.why.reason() as usize] -= refused.counts() * u64::from(is_gone);
            !is_gone
        });
    }

    /// All targets are said.
    pub(super) fn show_targets(&mut self) {
        self.targets = None;
    }

    /// Omits the targets, because another metric has the name.
    pub(super) fn hide_targets(&mut self, name: String, taken: Taken, series: u64, now: UnixNanos) {
        let before = self.targets.take();
        let why = Why::Family(Arc::new(taken));
        let conflict = Conflict {
            reason: OmissionReason::TargetInfo,
            metric: name.into(),
            owner: OWN.into(),
            rival: why.rival(),
            why: why.to_string(),
            series,
            since: before.as_ref().map_or(now, |before| before.since),
        };
        let more = series.saturating_sub(before.map_or(0, |before| before.series));
        if more > 0 {
            self.add(&conflict, more);
        }
        self.targets = (series > 0).then_some(conflict);
    }

    /// The first omissions since the last call, by metric, owner and reason.
    pub(super) fn take_unreported(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.unreported).list
    }

    /// The number of currently omitted series.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts;
        counts[OmissionReason::TargetInfo as usize] +=
            self.targets.as_ref().map_or(0, |targets| targets.series);
        counts
    }

    /// The currently omitted series, by metric, owner and reason.
    pub(super) fn now(&self) -> Vec<Conflict> {
        let mut all: BTreeMap<_, (u64, UnixNanos)> = BTreeMap::new();
        for refused in self.refused.iter().filter(|refused| refused.is_alive) {
            let key = (&refused.series.metric.name, &refused.owner, &refused.why);
            let (series, since) = all.entry(key).or_insert((0, refused.since));
            *series += 1;
            *since = refused.since.min(*since);
        }
        let conflict =
            |((metric, owner, why), (series, since)): ((&Arc<str>, &Arc<str>, &Why), _)| Conflict {
                reason: why.reason(),
                metric: metric.clone(),
                owner: owner.clone(),
                rival: why.rival(),
                why: why.to_string(),
                series,
                since,
            };
        all.into_iter()
            .map(conflict)
            .chain(self.targets.clone())
            .collect()
    }
}

impl Unreported {
    fn add(
        &mut self,
        key: (Arc<str>, Arc<str>, OmissionReason),
        series: u64,
        make: impl FnOnce() -> Conflict,
    ) {
        let list = &mut self.list;
        let at = *self.places.entry(key).or_insert_with(|| {
            list.push(make());
            list.len() - 1
        });
        if let Some(conflict) = list.get_mut(at) {
            conflict.series += series;
        }
    }
}
