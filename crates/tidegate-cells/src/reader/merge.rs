// SPDX-License-Identifier: Apache-2.0

//! Merges the values of many processes.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
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
    /// Different bounds, if it is a histogram.
    bounds: Vec<Arc<[f64]>>,
    by_bounds: HashMap<Bounds, usize, foldhash::fast::RandomState>,
}

/// Bounds of a histogram, as a key. They are finite.
#[derive(Debug)]
pub(super) struct Bounds(pub(super) Arc<[f64]>);

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bounds {}

impl Hash for Bounds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Both zeros are equal.
        self.0
            .iter()
            .for_each(|bound| (bound + 0.0).to_bits().hash(state));
    }
}

#[derive(Debug)]
struct MergedSeries {
    labels: Labels,
    overflowed: u64,
    /// One each for different bounds, in the order of their numbers.
    values: Vec<(usize, Value)>,
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
        let bounds = source.families.iter().zip(&families).map(|(spec, at)| {
            let merged = self.families.get_mut(*at);
            merged.map_or(0, |merged| merged.bounds(&spec.kind))
        });
        let bounds: Vec<_> = bounds.collect();
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
                let bounds = bounds.get(series.family as usize).copied().unwrap_or_default();
                self.parts.push(Part {
                    identity: source.header.identity,
                    slot: *slot,
                    family,
                    series: merged.add(labels, (&spec.kind, bounds), value, uses),
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
                    bounds: Vec::new(),
                    by_bounds: HashMap::default(),
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
    /// The number of the bounds of a histogram; 0 for all else.
    fn bounds(&mut self, kind: &Kind) -> usize {
        let Kind::Histogram { bounds } = kind else {
            return 0;
        };
        let next = self.bounds.len();
        let at = *self.by_bounds.entry(Bounds(bounds.clone())).or_insert(next);
        if at == next {
            self.bounds.push(bounds.clone());
        }
        at
    }

    /// Takes in a value of this kind, with the number of its bounds. Returns which series it is of.
    fn add(&mut self, labels: Labels, (kind, bounds): (&Kind, usize), value: Value, uses: u64) -> usize {
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
        match series.values.binary_search_by_key(&bounds, |(number, _)| *number) {
            Ok(found) => {
                let existing = series.values.get_mut(found);
                existing
                    .into_iter()
                    .for_each(|(_, existing)| existing.merge(&value, kind));
            }
            Err(next) => series.values.insert(next, (bounds, value)),
        }
        at
    }

    fn finish(self) -> FamilyValues {
        let common = self.common_bounds();
        let is_of_spec = match (&common, &self.spec.kind) {
            (Some(common), Kind::Histogram { bounds }) => common == bounds,
            _ => true,
        };
        let spec = match &common {
            Some(bounds) if !is_of_spec => Arc::new(FamilySpec {
                kind: Kind::Histogram {
                    bounds: bounds.clone(),
                },
                ..FamilySpec::clone(&self.spec)
            }),
            _ => self.spec,
        };
        let bounds = self.bounds;
        let series = self.series.into_iter().filter_map(|series| {
            let mut values = series.values.into_iter().map(|(number, value)| {
                let of_value = bounds.get(number).zip(common.as_ref());
                match of_value {
                    Some((bounds, common)) => narrowed(value, bounds, common),
                    None => value,
                }
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

    /// The bounds that all values have. `None`: they are no histograms.
    fn common_bounds(&self) -> Option<Arc<[f64]>> {
        let mut is_used = vec![false; self.bounds.len()];
        for (number, _) in self.series.iter().flat_map(|series| &series.values) {
            is_used
                .get_mut(*number)
                .into_iter()
                .for_each(|is_used| *is_used = true);
        }
        let all = self.bounds.iter().zip(is_used);
        let mut all = all.filter(|(_, is_used)| *is_used).map(|(bounds, _)| bounds);
        let first = all.next()?;
        let mut common: Option<Vec<f64>> = None;
        for bounds in all {
            // They ascend.
            let is_there = |bound: &f64| {
                let order = |other: &f64| other.partial_cmp(bound).unwrap_or(Ordering::Less);
                bounds.binary_search_by(order).is_ok()
            };
            common.get_or_insert_with(|| first.to_vec()).retain(is_there);
        }
        Some(common.map_or_else(|| first.clone(), Into::into))
    }
}

/// A histogram of these bounds as one of the same or fewer.
pub(crate) fn narrowed(value: Value, bounds: &[f64], to: &[f64]) -> Value {
    match value {
        Value::Histogram { buckets, sum } if bounds != to => Value::Histogram {
            buckets: rebucket(&buckets, bounds, to),
            sum,
        },
        value => value,
    }
}
