// SPDX-License-Identifier: Apache-2.0

//! Points to series: names and labels as the exposition has them, values as the protocol wants them.
//!
//! | OTLP | series |
//! | --- | --- |
//! | gauge, sum | one |
//! | histogram | `_bucket` by `le`, `_sum`, `_count`; or one native histogram with custom buckets |
//! | exponential histogram | one native histogram |
//! | summary | one by `quantile`, `_sum`, `_count` |
//! | no recorded value | the mark of the end on every series that the stream had |
//! | resource | `target_info`, once a job and instance |

mod contributions;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tidegate_engine::{Data, Exemplar, Future, Key, PointSample, Series as Stream, UnixNanos};

use super::generations::most;
use super::histogram::Native;
use super::known::{Cache, Runs, StreamNames};
use super::series::{self, Family, Group, Identity, Series};
use crate::labels::LabelSources;
use crate::name::{Naming, Spelling};
use crate::render::exemplar;
use contributions::{counts, exemplar_of};
use tidegate_pipeline::batch::wire::points::{PointVisitor, WirePoint};
use tidegate_pipeline::batch::{Batch, Encoded, Payload, convert, wire};
use tidegate_pipeline::component::{Account, Reason, unix_now};

/// The settings of the translation.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The rules for making names.
    pub naming: Naming,
    /// The sources of labels besides a point's own attributes.
    pub sources: LabelSources,
    /// Labels of every series that has none of that name.
    pub external: Vec<(String, String)>,
    /// Whether `target_info` describes resources.
    pub target_info: bool,
    /// Histograms with explicit bounds become native ones with custom buckets.
    pub custom_buckets: bool,
}

/// Translates batches, one after another.
pub struct Translator {
    settings: Settings,
    /// The account whose limit bounds the cache.
    memory: Arc<Account>,
    state: Mutex<TranslatorState>,
}

#[derive(Default)]
struct TranslatorState {
    cache: Cache,
    /// The runs of each series, by its name and labels. Several streams may share one series.
    starts: Runs,
    /// The last `target_info` of a resource in milliseconds, by job and instance.
    targets: HashMap<Key, (Arc<Identity>, i64)>,
}

/// The translation of batches.
#[derive(Debug, Default)]
pub struct Translation {
    /// The outgoing groups. All points of a group are sent together or not at all.
    pub groups: Vec<Group>,
    /// The dropped points: the reason, their number, and details about the first one.
    pub dropped: Vec<(Reason, usize, String)>,
    /// Metrics of series of which two runs were found to be alive.
    pub colliding: Vec<Arc<str>>,
    /// Series that were forgotten to make room for others.
    pub evicted: usize,
}

/// The interval between two descriptions of a resource, in milliseconds.
const TARGET_INTERVAL_MS: i64 = 15_000;
/// A description further ahead than this comes from a wrong clock. In milliseconds.
const TARGET_PATIENCE_MS: i64 = 600_000;
/// The most resources that are remembered as described. Beyond it, all are described again.
const MAX_TARGETS: usize = 100_000;

impl Translator {
    /// Creates a translator that has described nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// Bounds the cache by the limit of this account.
    pub fn within(self, memory: Arc<Account>) -> Self {
        Self { memory, ..self }
    }

    /// Series of batches, in the order of their arrival.
    pub fn translate(&self, batches: &[Batch]) -> Translation {
        let mut state = self.state.lock();
        let mut building = Building {
            settings: &self.settings,
            most: most(&self.memory),
            latest: Future::default().latest(unix_now()),
            state: &mut state,
            index: HashMap::default(),
            targets: Vec::new(),
            target_index: HashMap::default(),
            points: 0,
            parts: Vec::new(),
            out: Translation::default(),
        };
        for batch in batches {
            building.batch(&batch.payload);
        }
        building.finish()
    }
}

/// The contribution of a point to a series.
enum Contribution {
    Number(f64),
    Native(Box<Native>),
}

/// Batches under translation.
struct Building<'a> {
    settings: &'a Settings,
    /// The most bytes of the cache.
    most: usize,
    /// Later points say nothing of collisions.
    latest: UnixNanos,
    state: &'a mut TranslatorState,
    /// The index of a group, by its hash.
    index: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// Resources to describe with their last use, and their index by job and instance.
    targets: Vec<(Arc<TargetInfo>, i64)>,
    target_index: HashMap<Key, usize, foldhash::fast::RandomState>,
    points: u32,
    /// The series of the current point, the contribution to each, and the upper bound of its exemplars.
    parts: Vec<(Arc<Identity>, Contribution, f64)>,
    out: Translation,
}

/// The encoded form of a resource.
#[derive(Debug)]
pub(super) struct TargetInfo {
    /// The key of job and instance.
    key: Key,
    group: u64,
    identity: Arc<Identity>,
    family: Arc<Family>,
}

impl Building<'_> {
    fn batch(&mut self, payload: &Payload) {
        match payload {
            Payload::Encoded(encoded) => self.encoded(encoded),
            Payload::Points(points) => points.points.iter().for_each(|point| self.own(point)),
            Payload::Events(events) => {
                convert::events_to_points(events)
                    .iter()
                    .for_each(|point| self.own(point));
            }
        }
    }

    fn encoded(&mut self, encoded: &Encoded) {
        let before = self.seen();
        // Unreadable data ends the walk.
        let _ = wire::points::visit(encoded, self);
        let unread = encoded.items().saturating_sub(self.seen() - before);
        self.drop_points(Reason::Invalid, unread, || "it can't be read".to_owned());
    }

    /// Points so far, translated or not.
    fn seen(&self) -> usize {
        let dropped = self.out.dropped.iter().map(|(_, items, _)| items);
        self.points as usize + dropped.sum::<usize>()
    }

    fn own(&mut self, point: &tidegate_engine::Point) {
        let sample = PointSample {
            start: point.start,
            time: point.time,
            value: &point.value,
            exemplars: &point.exemplars,
        };
        let series = || Some(point.series.clone());
        self.take(Key::of(&point.series), sample, &point.series.metric.name, &series);
    }

    fn take(
        &mut self,
        key: Key,
        sample: PointSample<'_>,
        name: &str,
        stream: &dyn Fn() -> Option<Arc<Stream>>,
    ) {
        let settings = self.settings;
        let TranslatorState { cache, starts, .. } = &mut *self.state;
        let make = || {
            let stream = stream()?;
            let mut known = settings.know(&stream);
            known.starts = starts.of(&known);
            Some(known)
        };
        let Some(known) = cache.get(key, self.most, StreamNames::bytes, make) else {
            return self.drop_points(Reason::Invalid, 1, || format!("`{name}` can't be read"));
        };
        let (group, family, target) = (known.group, known.family.clone(), known.target.clone());
        let before = known.bytes_of_parts();
        let refusal = match &known.refused {
            Some(refused) => Err(refused.clone()),
            None => settings.add_contributions(known, &sample, &mut self.parts),
        };
        let grown = known.bytes_of_parts().saturating_sub(before);
        if let Err((reason, why)) = refusal {
            cache.grow(grown);
            self.parts.clear();
            return self.drop_points(reason, 1, || format!("`{name}`: {why}"));
        }
        let (data, spelling) = (known.data, known.spelling);
        if counts(data) && known.starts.note(sample.start, sample.time, self.latest) {
            self.out.colliding.push(family.name.clone());
        }
        cache.grow(grown);
        let time = millis(sample.time);
        if let Some(target) = target {
            self.record_target(target, time);
        }
        self.add(group, &family, (data, spelling), &sample);
    }

    /// Puts what the point says into its group.
    fn add(
        &mut self,
        group: u64,
        family: &Arc<Family>,
        (data, spelling): (Data, Spelling),
        sample: &PointSample<'_>,
    ) {
        let (time, point) = (millis(sample.time), self.points);
        let start = if counts(data) && sample.start <= sample.time {
            millis(sample.start)
        } else {
            0
        };
        self.points += 1;
        let group = group_of(&mut self.index, &mut self.out.groups, group);
        group.points += 1;
        let mut below = f64::NEG_INFINITY;
        for (at, (identity, said, bound)) in self.parts.drain(..).enumerate() {
            let series = series_of(group, at, identity, family);
            match said {
                Contribution::Number(value) => series.samples.push(series::Sample {
                    time,
                    start,
                    value,
                    point,
                }),
                Contribution::Native(mut native) => {
                    (native.timestamp, native.start_timestamp) = (time, start);
                    series.histograms.push((*native, point));
                }
            }
            if bound > below {
                let within = |exemplar: &&Exemplar| {
                    exemplar::value(exemplar).is_some_and(|value| value > below && value <= bound)
                };
                let naming = &self.settings.naming;
                let exemplars = sample.exemplars.iter().filter(within);
                let exemplars =
                    exemplars.filter_map(|exemplar| exemplar_of(exemplar, time, naming, spelling));
                series.exemplars.extend(exemplars);
                below = bound;
            }
        }
    }

    /// Records the use of a resource.
    fn record_target(&mut self, target: Arc<TargetInfo>, time: i64) {
        let new = self.targets.len();
        let at = *self.target_index.entry(target.key).or_insert(new);
        match self.targets.get_mut(at) {
            Some((_, last)) => *last = time.max(*last),
            None => self.targets.push((target, time)),
        }
    }

    fn drop_points(&mut self, reason: Reason, points: usize, why: impl FnOnce() -> String) {
        if points == 0 {
            return;
        }
        match self.out.dropped.iter_mut().find(|(known, _, _)| *known == reason) {
            Some((_, all, _)) => *all += points,
            None => self.out.dropped.push((reason, points, why())),
        }
    }

    fn finish(mut self) -> Translation {
        self.out.evicted = self.state.cache.take_evicted();
        self.finish_targets();
        let mut lost = 0;
        for group in &mut self.out.groups {
            lost += order(group);
        }
        self.drop_points(Reason::Conflict, lost, || {
            "another point of the same series and time came later".to_owned()
        });
        self.out.groups.retain(|group| !group.series.is_empty());
        self.out
    }

    /// Tells the resources whose turn it is, later each time.
    fn finish_targets(&mut self) {
        if self.state.targets.len() > MAX_TARGETS {
            self.state.targets.clear();
        }
        let mut due = Vec::new();
        for (target, time) in std::mem::take(&mut self.targets) {
            if let Some((identity, last)) = self.state.targets.get(&target.key) {
                // A resource that was ahead of its time is not silent until then.
                let waits = last.saturating_sub(TARGET_PATIENCE_MS)..last.saturating_add(TARGET_INTERVAL_MS);
                if *identity == target.identity && waits.contains(&time) {
                    continue;
                }
            }
            self.state
                .targets
                .insert(target.key, (target.identity.clone(), time));
            let mut series = Series::new(target.identity.clone(), target.family.clone());
            series.samples.push(series::Sample {
                time,
                start: 0,
                value: 1.0,
                point: u32::MAX,
            });
            due.push(Group {
                hash: target.group,
                points: 0,
                series: SmallVec::from_buf([series]),
            });
        }
        // The reader of the request knows the resource before the first series.
        self.out.groups.splice(0..0, due);
    }
}

impl PointVisitor for Building<'_> {
    fn wants(&mut self, _: &str) -> bool {
        true
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        self.take(point.key, point.sample, point.name, point.series);
        true
    }
}

fn group_of<'g>(
    index: &mut HashMap<u64, usize, foldhash::fast::RandomState>,
    groups: &'g mut Vec<Group>,
    hash: u64,
) -> &'g mut Group {
    let at = *index.entry(hash).or_insert_with(|| {
        groups.push(Group {
            hash,
            points: 0,
            series: SmallVec::new(),
        });
        groups.len() - 1
    });
    &mut groups[at]
}

/// The series in a group. The series of the last point most likely has the same index.
fn series_of<'g>(
    group: &'g mut Group,
    at: usize,
    identity: Arc<Identity>,
    family: &Arc<Family>,
) -> &'g mut Series {
    let is_it = |series: &Series| Arc::ptr_eq(&series.identity, &identity) || series.identity == identity;
    let found = match group.series.get(at) {
        Some(series) if is_it(series) => Some(at),
        _ => group.series.iter().position(is_it),
    };
    let at = found.unwrap_or_else(|| {
        group.series.push(Series::new(identity.clone(), family.clone()));
        group.series.len() - 1
    });
    &mut group.series[at]
}

/// Sorts the samples of every series by time. Of two equal times the later sample stays, and the point of the
/// other is removed completely. Returns the number of removed points.
fn order(group: &mut Group) -> usize {
    let mut lost: Vec<u32> = Vec::new();
    for series in &mut group.series {
        series.exemplars.sort_by_key(|exemplar| exemplar.time);
        series.samples.sort_by_key(|sample| sample.time);
        series.histograms.sort_by_key(|(native, _)| native.timestamp);
        let samples = series.samples.windows(2);
        lost.extend(
            samples
                .filter(|pair| pair[0].time == pair[1].time)
                .map(|pair| pair[0].point),
        );
        let natives = series.histograms.windows(2);
        lost.extend(
            natives
                .filter(|pair| pair[0].0.timestamp == pair[1].0.timestamp)
                .map(|pair| pair[0].1),
        );
    }
    if lost.is_empty() {
        return 0;
    }
    lost.sort_unstable();
    lost.dedup();
    let stays = |point: u32| lost.binary_search(&point).is_err();
    for series in &mut group.series {
        series.samples.retain(|sample| stays(sample.point));
        series.histograms.retain(|(_, point)| stays(*point));
    }
    group
        .series
        .retain(|series| !series.samples.is_empty() || !series.histograms.is_empty());
    group.points -= lost.len();
    lost.len()
}

fn millis(nanos: UnixNanos) -> i64 {
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}
