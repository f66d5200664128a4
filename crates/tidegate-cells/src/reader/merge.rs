// SPDX-License-Identifier: Apache-2.0

//! Merges the values of many processes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::process::{Source, SourceSeries};
use super::value::rebucket;
use crate::layout::{Identity, Role};
use crate::record::SeriesRole;
use crate::spec::{FamilySpec, GaugeMode, Kind};
use crate::value::{FamilyValues, Labels, SeriesValue, Snapshot, Value};

/// The label of gauges that every process keeps for itself.
const PID: &str = "pid";

/// The properties that two processes must agree in, so that their series add up: name, unit, instrument and mode. Bounds of
/// histograms may differ.
type Key = (String, String, &'static str, Option<GaugeMode>);

#[derive(Debug, Default)]
pub(crate) struct Merger {
    families: Vec<Merged>,
    by_key: HashMap<Key, usize, foldhash::fast::RandomState>,
    /// By process id, the process that owns the label: a living one, or else the one started last.
    youngest: HashMap<u32, (bool, Identity)>,
    /// The position of each part in the merged values.
    pub(crate) parts: Vec<Part>,
}

/// A value of one file, and the place it has in the whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The file.
    pub(crate) identity: Identity,
    /// The series in it.
    pub(crate) slot: u64,
    /// The family in the merged values.
    pub(crate) family: usize,
    /// The series in that family.
    pub(crate) series: usize,
}

#[derive(Debug)]
struct Merged {
    spec: Arc<FamilySpec>,
    series: Vec<MergedSeries>,
    by_labels: HashMap<Labels, usize, foldhash::fast::RandomState>,
}

#[derive(Debug)]
struct MergedSeries {
    labels: Labels,
    overflowed: u64,
    /// One each for different bounds, with the first of them.
    values: Vec<(Kind, Value)>,
}

impl Merger {
    /// Says which processes there are, before their values are added.
    pub(crate) fn announce(&mut self, source: &Source) {
        let of_dead = source.series.values().filter_map(|series| match series.role {
            SeriesRole::Of(identity) => Some((false, identity)),
            _ => None,
        });
        let own = (source.alive, source.header.identity);
        let own = (source.header.role == Role::Process).then_some(own);
        for (alive, identity) in of_dead.chain(own) {
            let youngest = self.youngest.entry(identity.pid).or_insert((alive, identity));
            *youngest = (*youngest).max((alive, identity));
        }
    }

    /// Takes in a file.
    pub(crate) fn add(&mut self, source: &Source) {
        let families: Vec<_> = source.families.iter().map(|spec| self.family(spec)).collect();
        for (slot, series) in &source.series {
            let spec = source.families.get(series.family as usize);
            let family = families.get(series.family as usize).copied();
            let merged = family.and_then(|at| Some((at, self.families.get_mut(at)?)));
            let (Some(spec), Some((family, merged))) = (spec, merged) else {
                continue; // never: checked when it was read
            };
            let forgotten = !source.alive && spec.kind.gauge_mode().is_some_and(GaugeMode::is_live);
            if let Some((value, uses)) = source.value(series, &spec.kind).filter(|_| !forgotten) {
                let labels = labels(source, series, spec, &self.youngest);
                self.parts.push(Part {
                    identity: source.header.identity,
                    slot: *slot,
                    family,
                    series: merged.add(labels, &spec.kind, value, uses),
                });
            }
        }
    }

    fn family(&mut self, spec: &Arc<FamilySpec>) -> usize {
        let mode = spec.kind.gauge_mode();
        let next = self.families.len();
        let key = (spec.name.clone(), spec.unit.clone(), spec.kind.name(), mode);
        match self.by_key.entry(key) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(place) => {
                self.families.push(Merged {
                    spec: spec.clone(),
                    series: Vec::new(),
                    by_labels: HashMap::default(),
                });
                *place.insert(next)
            }
        }
    }

    /// The whole; families and series are where the parts say.
    pub(crate) fn finish(self) -> Snapshot {
        let families = self.families.into_iter().map(Merged::finish);
        Snapshot {
            families: families.collect(),
        }
    }
}

fn labels(
    source: &Source,
    series: &SourceSeries,
    spec: &FamilySpec,
    youngest: &HashMap<u32, (bool, Identity)>,
) -> Labels {
    let identity = match series.role {
        SeriesRole::Of(identity) => identity,
        _ if source.header.role == Role::Process => source.header.identity,
        _ => return series.labels.clone(),
    };
    let is_per_process = spec.kind.gauge_mode().is_some_and(GaugeMode::is_per_process);
    if !is_per_process {
        return series.labels.clone();
    }
    let has_it = youngest
        .get(&identity.pid)
        .is_none_or(|(_, other)| *other == identity);
    let pid = if has_it {
        identity.pid.to_string()
    } else {
        identity.to_string()
    };
    let pid = (Arc::from(PID), Box::from(pid));
    series.labels.iter().cloned().chain([pid]).collect()
}

impl Merged {
    /// Returns which series it is of.
    fn add(&mut self, labels: Labels, kind: &Kind, value: Value, uses: u64) -> usize {
        let next = self.series.len();
        let at = *self.by_labels.entry(labels.clone()).or_insert(next);
        if at == next {
            self.series.push(MergedSeries {
                labels,
                overflowed: 0,
                values: Vec::new(),
            });
        }
        let Some(series) = self.series.get_mut(at) else {
            return at; // never: it is there or was just pushed
        };
        series.overflowed = series.overflowed.wrapping_add(uses);
        let addable = |other: &Kind| match (other, kind) {
            (Kind::Histogram { bounds: a }, Kind::Histogram { bounds: b }) => a == b,
            _ => true,
        };
        match series.values.iter_mut().find(|(other, _)| addable(other)) {
            Some((_, existing)) => existing.merge(&value, kind),
            None => series.values.push((kind.clone(), value)),
        }
        at
    }

    fn finish(self) -> FamilyValues {
        let kinds = self
            .series
            .iter()
            .flat_map(|series| &series.values)
            .map(|(kind, _)| kind);
        let common = common_bounds(kinds);
        let spec = match &common {
            Some(bounds) => Arc::new(FamilySpec {
                kind: Kind::Histogram {
                    bounds: bounds.clone(),
                },
                ..FamilySpec::clone(&self.spec)
            }),
            None => self.spec,
        };
        let series = self.series.into_iter().filter_map(|series| {
            let mut values = series.values.into_iter().map(|(kind, value)| match &common {
                Some(bounds) => narrowed(value, &kind, bounds),
                None => value,
            });
            let mut value = values.next()?;
            values.for_each(|other| value.merge(&other, &spec.kind));
            Some(SeriesValue {
                labels: series.labels,
                value,
                overflowed: series.overflowed,
            })
        });
        let series = series.collect();
        FamilyValues { spec, series }
    }
}

/// The bounds that all have, if they are histograms and differ.
fn common_bounds<'k>(mut kinds: impl Iterator<Item = &'k Kind>) -> Option<Arc<[f64]>> {
    let Some(Kind::Histogram { bounds: first }) = kinds.next() else {
        return None;
    };
    let mut common: Option<Vec<f64>> = None;
    for kind in kinds {
        if let Kind::Histogram { bounds } = kind
            && bounds != first
        {
            let common = common.get_or_insert_with(|| first.to_vec());
            common.retain(|bound| bounds.contains(bound));
        }
    }
    common.map(Into::into)
}

/// A histogram of these bounds as one of fewer.
pub(crate) fn narrowed(value: Value, kind: &Kind, to: &[f64]) -> Value {
    match (value, kind) {
        (Value::Histogram { buckets, sum }, Kind::Histogram { bounds }) => Value::Histogram {
            buckets: rebucket(&buckets, bounds, to),
            sum,
        },
        (value, _) => value,
    }
}
