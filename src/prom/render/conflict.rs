//! What is left out of an exposition, and why.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tidegate_engine::{Series, UnixNanos};

/// Conflicts of which the details are kept until they have been told.
const TOLD: usize = 16;

/// Series that can't be exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The metric that is left out.
    pub metric: Arc<str>,
    /// Who sends it.
    pub owner: Arc<str>,
    /// Who sends what it collides with; none where that is nobody, or the same.
    pub rival: Option<Arc<str>>,
    /// Why, with the owner of what it collides with.
    pub why: String,
    /// How many of its series.
    pub series: u64,
    /// Since when.
    pub since: UnixNanos,
}

/// A metric that is shown under the words of another one of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The family.
    pub family: Box<str>,
    /// Who sends what is described otherwise.
    pub owner: Arc<str>,
    /// Whose words are shown.
    pub shown: Arc<str>,
    /// In what they differ.
    pub what: &'static str,
    /// Since when.
    pub since: UnixNanos,
}

/// Why a metric has no family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Taken {
    /// There is nothing it could be called.
    Nameless(&'static str),
    /// Another one has one of its names.
    By {
        sample: Box<str>,
        family: Box<str>,
        kind: &'static str,
        owner: Arc<str>,
    },
}

/// Why a series is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Its metric has no family.
    Family(Arc<Taken>),
    /// This other owner has a series of the same name and labels.
    Rival(Arc<str>),
    /// The same owner has.
    Twin,
    /// Its family is full.
    Full,
}

impl Why {
    /// Whose place it is.
    fn rival(&self) -> Option<Arc<str>> {
        match self {
            Self::Rival(owner) => Some(owner.clone()),
            Self::Family(taken) => match &**taken {
                Taken::By { owner, .. } => Some(owner.clone()),
                Taken::Nameless(_) => None,
            },
            Self::Twin | Self::Full => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(taken) => match &**taken {
                Taken::Nameless(why) => f.write_str(why),
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
            Self::Rival(other) => write!(
                f,
                "{other} has a series of the same name and labels; a series has one writer only"
            ),
            Self::Twin => f.write_str(
                "another resource or scope has a series of the same name and labels; \
                 add an attribute as a label to tell them apart",
            ),
            Self::Full => f.write_str("its metric has 4 GiB of labels already"),
        }
    }
}

/// Who sends what the gateway says by itself.
const OWN: &str = "the exporter itself";

/// A series that is left out.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) source: u16,
    pub(super) place: u64,
    pub(super) owner: Arc<str>,
    pub(super) series: Arc<Series>,
    pub(super) why: Why,
    pub(super) since: UnixNanos,
}

/// All series that are left out now.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    pub(super) refused: VecDeque<Refused>,
    /// How many of them, from the front, are to be tried again because something has ended.
    pub(super) to_try: usize,
    /// The targets, where a metric has the name of what is said of them.
    targets: Option<Conflict>,
    fresh: Vec<Conflict>,
    untold: u64,
}

impl Conflicts {
    /// Leaves a series out.
    pub(super) fn refuse(&mut self, refused: Refused, is_new: bool) {
        if is_new {
            self.tell(1, || Conflict {
                metric: refused.series.metric.name.clone(),
                owner: refused.owner.clone(),
                rival: refused.why.rival(),
                why: refused.why.to_string(),
                series: 1,
                since: refused.since,
            });
        }
        self.refused.push_back(refused);
    }

    fn tell(&mut self, series: u64, conflict: impl FnOnce() -> Conflict) {
        self.untold += series;
        if self.fresh.len() < TOLD {
            self.fresh.push(conflict());
        }
    }

    /// All targets are said.
    pub(super) fn show_targets(&mut self) {
        self.targets = None;
    }

    /// So many targets are left out: another metric has the name.
    pub(super) fn hide_targets(&mut self, name: String, taken: Taken, series: u64, now: UnixNanos) {
        let before = self.targets.take();
        let why = Why::Family(Arc::new(taken));
        let conflict = Conflict {
            metric: name.into(),
            owner: OWN.into(),
            rival: why.rival(),
            why: why.to_string(),
            series,
            since: before.as_ref().map_or(now, |before| before.since),
        };
        let more = series.saturating_sub(before.map_or(0, |before| before.series));
        if more > 0 {
            self.tell(more, || conflict.clone());
        }
        self.targets = (series > 0).then_some(conflict);
    }

    /// How many were left out for the first time since the last call, and the first of them.
    pub(super) fn take_fresh(&mut self) -> (u64, Vec<Conflict>) {
        (std::mem::take(&mut self.untold), std::mem::take(&mut self.fresh))
    }

    /// What is left out now, by metric, owner and reason.
    pub(super) fn now(&self) -> Vec<Conflict> {
        let mut all: BTreeMap<_, (u64, UnixNanos)> = BTreeMap::new();
        for refused in &self.refused {
            let key = (&refused.series.metric.name, &refused.owner, &refused.why);
            let (series, since) = all.entry(key).or_insert((0, refused.since));
            *series += 1;
            *since = refused.since.min(*since);
        }
        let conflict =
            |((metric, owner, why), (series, since)): ((&Arc<str>, &Arc<str>, &Why), _)| Conflict {
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
