// SPDX-License-Identifier: Apache-2.0

//! The Prometheus names of an OTLP stream, made once and cached while the stream is in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tidegate_engine::{Data, Key, Series as Stream, Temporality};

use super::generations::{Generations, SERIES_BYTES};
use super::series::{Family, Identity, Kind, Label, NAME};
use super::translate::TargetInfo;
use crate::name::Spelling;
use tidegate_pipeline::component::Reason;
use tidegate_pipeline::component::collisions::Starts;

/// Streams by the key of what identifies them.
pub(super) type Cache = Generations<StreamNames>;

/// The names of a stream.
#[derive(Debug)]
pub(super) struct StreamNames {
    pub(super) data: Data,
    /// The reason why Prometheus's model can't express it.
    pub(super) refused: Option<(Reason, String)>,
    /// The origin of its name.
    pub(super) spelling: Spelling,
    pub(super) family: Arc<Family>,
    /// The runs of its series.
    pub(super) starts: Arc<Starts>,
    /// A hash that is equal for all series that may share one of its names and labels.
    pub(super) group: u64,
    /// The encoded form of its resource.
    pub(super) target: Option<Arc<TargetInfo>>,
    base: Box<[Label]>,
    /// Its series at the last send.
    parts: Vec<StreamSeries>,
}

/// One series of a stream.
#[derive(Debug)]
struct StreamSeries {
    suffix: &'static str,
    /// One more label, the value by its bits.
    more: Option<(&'static str, u64)>,
    identity: Arc<Identity>,
}

impl StreamNames {
    /// A stream that has this name and these labels.
    pub(super) fn new(
        data: Data,
        family: Family,
        labels: Vec<Label>,
        target: Option<Arc<TargetInfo>>,
    ) -> Self {
        let group = group(&family.name, &labels);
        Self {
            data,
            refused: None,
            spelling: Spelling::default(),
            family: Arc::new(family),
            group,
            starts: Arc::default(),
            target,
            base: labels.into(),
            parts: Vec::new(),
        }
    }

    /// A stream that can't be expressed.
    pub(super) fn refused(stream: &Stream, reason: Reason, why: impl Into<String>) -> Self {
        let family = Family {
            name: stream.metric.name.clone(),
            kind: Kind::Unknown,
            help: "".into(),
            unit: "".into(),
        };
        Self {
            refused: Some((reason, why.into())),
            ..Self::new(stream.metric.data, family, Vec::new(), None)
        }
    }

    /// The series at `at` of the stream's series, with this suffix and one more label.
    pub(super) fn part(
        &mut self,
        at: usize,
        suffix: &'static str,
        more: Option<(&'static str, f64)>,
    ) -> Arc<Identity> {
        let bits = more.map(|(name, value)| (name, value.to_bits()));
        if let Some(part) = self.parts.get(at)
            && part.suffix == suffix
            && part.more == bits
        {
            return part.identity.clone();
        }
        let name: Arc<str> = format!("{}{suffix}", self.family.name).into();
        let more = more.map(|(label, value)| (label.into(), number(value).into()));
        let own = [(NAME.into(), name)].into_iter().chain(more);
        let identity = Arc::new(Identity::new(own.chain(self.base.iter().cloned())));
        self.parts.truncate(at);
        self.parts.push(StreamSeries {
            suffix,
            more: bits,
            identity: identity.clone(),
        });
        identity
    }

    /// Forgets the series after the first `parts`.
    pub(super) fn truncate(&mut self, parts: usize) {
        self.parts.truncate(parts);
    }

    /// The approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let labels = self.base.iter();
        let labels: usize = labels.map(|(name, value)| name.len() + value.len()).sum();
        let said = self.family.name.len() + self.family.help.len() + self.family.unit.len();
        SERIES_BYTES + labels + said + self.bytes_of_parts()
    }

    /// The part of that for its series. They share most texts of their labels.
    pub(super) fn bytes_of_parts(&self) -> usize {
        self.parts.len() * (SERIES_BYTES + size_of::<Label>() * self.base.len())
    }

    /// All its series.
    pub(super) fn all(&self) -> Vec<Arc<Identity>> {
        self.parts.iter().map(|part| part.identity.clone()).collect()
    }
}

/// The runs of series, by name and labels, as long as a stream that is known has them.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: HashMap<Key, Weak<Starts>>,
    /// The number of used entries at the last count.
    used: usize,
}

/// The number of runs that are kept beyond twice the used ones.
const SPARE: usize = 1024;

impl Runs {
    /// The runs of this series.
    pub(super) fn of(&mut self, known: &StreamNames) -> Arc<Starts> {
        let key = Key::of_value(&(&known.family.name, &known.base));
        if let Some(starts) = self.runs.get(&key).and_then(Weak::upgrade) {
            return starts;
        }
        if self.runs.len() > 2 * self.used + SPARE {
            self.runs.retain(|_, starts| starts.strong_count() > 0);
            self.used = self.runs.len();
        }
        let starts = Arc::<Starts>::default();
        self.runs.insert(key, Arc::downgrade(&starts));
        starts
    }
}

/// Whether points of this kind are totals, as Prometheus has them.
pub(super) fn check(data: Data) -> Result<(), (Reason, &'static str)> {
    match data {
        Data::Gauge | Data::Summary => Ok(()),
        data if data.is_falling_delta() => Err((
            Reason::Unsupported,
            "a sum of deltas that may fall: put an `aggregate` processor before the exporter",
        )),
        data => match data.temporality() {
            Temporality::Cumulative => Ok(()),
            Temporality::Delta => Err((Reason::Unsupported, "a delta: set `temporality: cumulative`")),
            Temporality::Unspecified => Err((Reason::Invalid, "its temporality is unspecified")),
        },
    }
}

/// The suffixes of a metric's series.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Labels that distinguish the series of a point.
const OWN: [&str; 2] = ["le", "quantile"];

/// A hash of what all series of a point have in common, made so that it is a function of each series alone: whatever
/// other point makes a series of the same name and labels gets the same.
pub(super) fn group(family: &str, labels: &[Label]) -> u64 {
    let mut stem = family;
    while let Some(shorter) = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)) {
        stem = shorter;
    }
    let mut labels: Vec<_> = labels
        .iter()
        .filter(|(name, _)| !OWN.contains(&&**name))
        .collect();
    labels.sort_unstable();
    // Without random keys, so that the next process assigns the same series to the same shards.
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&(stem, labels), &mut hasher);
    std::hash::Hasher::finish(&hasher)
}

/// A bound as Prometheus's own writers spell it: no exponent, no needless point.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}
