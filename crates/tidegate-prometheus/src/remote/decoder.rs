// SPDX-License-Identifier: Apache-2.0

//! Decodes remote write requests to points. A series is translated to OTLP once, and cached by the bytes of
//! its labels.
//!
//! | series | OTLP |
//! | --- | --- |
//! | counter | cumulative monotonic sum |
//! | gauge, unknown | gauge |
//! | info, state set | cumulative sum that may fall |
//! | `_bucket`, `_sum`, `_count` of histograms and summaries | cumulative monotonic sums, named as they are |
//! | quantiles, other parts of those | gauges, named as they are |
//! | native histogram | exponential histogram; with custom buckets a histogram with explicit bounds |
//! | the mark of the end | no recorded value |
//! | `target_info` | attributes of the resource |
//!
//! Parts of classic histograms come in whatever requests the sender deals them out to, so they are never joined: what
//! they become would depend on the sender's shards. The metric's `prometheus.type` says what they are parts of.

mod family;
mod resolve;
mod resource;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tidegate_engine::{
    AttributesBuilder, Exemplar, Future, FutureAction, Key, KeyHasher, Point, Rejection, Resource,
    Series as Stream, UnixNanos, Value, clock,
};

use super::Version;
use super::generations::{Generations, SERIES_BYTES, most};
use super::read::{Metadata, ReadError, SeriesIn, Visitor, read};
use super::series::Kind;
use crate::model::{MAX_LABELS, MAX_TEXT_BYTES, NAME, exemplar, is_stale, nanos, number};
use family::Families;
use resolve::SampleShape;
use resource::{ResourceSlot, Resources};
use tidegate_pipeline::component::collisions::Starts;
use tidegate_pipeline::component::{Account, Reason, unix_now};

/// Parts of the cache, so that requests side by side do not wait for each other.
const SHARDS: usize = 16;
/// Points that one request may become.
const MAX_POINTS: usize = 1_000_000;

/// Decodes remote write requests, and keeps the translations of series between them.
///
/// Requests decode concurrently: the cache has `SHARDS` locks, and a request holds one of them at a time.
#[derive(Default)]
pub struct RemoteWriteDecoder {
    /// The limit of this account bounds the cache.
    memory: Arc<Account>,
    future: Future,
    known: [Mutex<Generations<CachedSeries>>; SHARDS],
    families: Families,
    resources: Resources,
}

/// The OTLP form of a series.
#[derive(Clone, Debug)]
enum CachedSeries {
    /// Points of this stream, as long as its resource has not changed.
    Stream {
        stream: Arc<Stream>,
        place: Arc<ResourceSlot>,
        version: u64,
        /// The runs of the series.
        starts: Arc<Starts>,
    },
    /// The series describes this resource.
    Info {
        place: Arc<ResourceSlot>,
        told: Arc<Resource>,
    },
    /// The series can't be expressed.
    Refused(Reason, &'static str),
}

/// The points of a request, with counts for the answer.
#[derive(Debug, Default)]
pub struct DecodedRequest {
    /// The points, each with its resource and scope.
    pub points: Vec<Point>,
    /// Samples, native histograms and exemplars in the points, or in the attributes of a resource.
    pub samples: usize,
    /// Native histograms in the points.
    pub histograms: usize,
    /// Exemplars in the points.
    pub exemplars: usize,
    /// Samples and native histograms that are not: why, how many, and more about the first.
    pub dropped: Vec<(Reason, usize, String)>,
    /// Exemplars that are not.
    pub lost_exemplars: usize,
    /// Series of which two runs were found to be alive.
    pub colliding: Vec<Arc<Stream>>,
    /// Series that were forgotten to make room for others.
    pub evicted: usize,
}

impl RemoteWriteDecoder {
    /// An empty decoder. The limit of this account bounds its cache.
    pub fn within(memory: Arc<Account>) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// Sets the action on samples with a time too far ahead.
    pub fn with_future(self, future: Future) -> Self {
        Self { future, ..self }
    }

    /// Decodes a request. On an error nothing of it is kept.
    ///
    /// # Errors
    /// Those of [`read`].
    pub fn decode(&self, version: Version, request: &[u8]) -> Result<DecodedRequest, ReadError> {
        let now = unix_now();
        let mut request_decoder = RequestDecoder {
            decoder: self,
            arrived: clock::wall(now),
            latest: self.future.latest(now),
            most: most(&self.memory) / SHARDS,
            version,
            builder: AttributesBuilder::default(),
            keys: Vec::new(),
            orphans: Vec::new(),
            decoded: DecodedRequest::default(),
            former: None,
        };
        read(version, request, &mut request_decoder)?;
        request_decoder.adopt();
        Ok(request_decoder.decoded)
    }

    fn shard(&self, key: Key) -> &Mutex<Generations<CachedSeries>> {
        let mut hasher = KeyHasher::default();
        std::hash::Hash::hash(&key, &mut hasher);
        &self.known[hasher.finish() as usize % SHARDS]
    }
}

/// The state of one request that is being decoded.
struct RequestDecoder<'a> {
    decoder: &'a RemoteWriteDecoder,
    /// The arrival of the request, by the wall clock.
    arrived: UnixNanos,
    /// The latest time that a sample may have.
    latest: UnixNanos,
    /// The most bytes of a part of the cache.
    most: usize,
    version: Version,
    builder: AttributesBuilder,
    /// The keys of every point's labels.
    keys: Vec<Key>,
    /// Exemplars that came without a sample, and the key of their series' labels.
    orphans: Vec<(Key, Exemplar)>,
    decoded: DecodedRequest,
    /// The current series under its previous resource.
    former: Option<Arc<Stream>>,
}

impl<'r> Visitor<'r> for RequestDecoder<'_> {
    fn metadata(&mut self, metadata: Metadata<'r>) {
        self.decoder.families.record(&metadata);
    }

    fn absurd(&mut self, series: &SeriesIn<'r>) {
        let samples = series.samples.len() + series.histograms.len();
        self.decoded.lost_exemplars += series.exemplars.len();
        self.drop_samples(Reason::Limit, samples, || {
            /// The shown part of a name, which may be as long as the request.
            const SHOWN_BYTES: usize = 64;
            let name = name(series);
            let shown = &name[..name.floor_char_boundary(SHOWN_BYTES)];
            let kib = MAX_TEXT_BYTES >> 10;
            format!("`{shown}`: a series has at most {MAX_LABELS} labels and {kib} KiB of text")
        });
    }

    fn series(&mut self, series: &mut SeriesIn<'r>) {
        let labels = labels_key(&series.labels);
        let before = self.decoded.points.len();
        if !series.samples.is_empty() {
            self.numbers(series, &labels);
        }
        if !series.histograms.is_empty() {
            self.histograms(series, &labels);
        }
        if series.exemplars.is_empty() {
            return;
        }
        let exemplars = series.each_exemplar().filter_map(|(found, labels)| {
            let time = nanos(found.time)?;
            Some(exemplar(
                labels.iter().copied(),
                found.value,
                time,
                &mut self.builder,
            ))
        });
        let exemplars: Vec<Exemplar> = exemplars.collect();
        self.decoded.lost_exemplars += series.exemplars.len() - exemplars.len();
        match self
            .decoded
            .points
            .get_mut(before..)
            .and_then(<[Point]>::last_mut)
        {
            Some(point) => {
                self.decoded.exemplars += exemplars.len();
                point.exemplars = exemplars;
            }
            None => {
                let key = labels.key();
                self.orphans
                    .extend(exemplars.into_iter().map(|exemplar| (key, exemplar)));
            }
        }
    }
}

/// Shows the labels to a hasher.
fn labels_key(labels: &[(&str, &str)]) -> KeyHasher {
    let mut hasher = KeyHasher::default();
    for (name, value) in labels {
        hasher.write(name.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(value.as_bytes());
        hasher.write_u8(0xff);
    }
    hasher
}

impl RequestDecoder<'_> {
    fn numbers(&mut self, series: &SeriesIn<'_>, labels: &KeyHasher) {
        let known = self.known(series, labels, SampleShape::Number);
        // A stale `target_info` says nothing about the present attributes of the resource.
        if let CachedSeries::Info { place, told } = &known
            && series.samples.last().is_some_and(|last| !is_stale(last.value))
        {
            place.replace(told);
        }
        for sample in &series.samples {
            let times = (sample.time, sample.start);
            let is_taken = self.push(&known, series, labels, times, number(sample.value));
            self.decoded.samples += usize::from(is_taken);
        }
    }

    fn histograms(&mut self, series: &mut SeriesIn<'_>, labels: &KeyHasher) {
        for mut native in std::mem::take(&mut series.histograms) {
            let times = (native.timestamp, native.start_timestamp);
            match native.read() {
                Ok((value, data)) => {
                    let known = self.known(series, labels, SampleShape::of(data));
                    let is_taken = self.push(&known, series, labels, times, value);
                    self.decoded.histograms += usize::from(is_taken);
                }
                Err(unfit) => {
                    let reason = if unfit.is_broken() {
                        Reason::Invalid
                    } else {
                        Reason::Unsupported
                    };
                    self.drop_samples(reason, 1, || format!("`{}`: {unfit}", name(series)));
                }
            }
        }
    }

    /// Makes a point; false: it is dropped.
    fn push(
        &mut self,
        known: &CachedSeries,
        series: &SeriesIn<'_>,
        labels: &KeyHasher,
        (time, start): (i64, i64),
        value: Value,
    ) -> bool {
        let former = self.former.take();
        let (stream, starts) = match known {
            CachedSeries::Stream { stream, starts, .. } => (stream, starts),
            CachedSeries::Info { .. } => return true,
            CachedSeries::Refused(reason, why) => {
                self.drop_samples(*reason, 1, || format!("`{}`: {why}", name(series)));
                return false;
            }
        };
        let Some(time) = nanos(time) else {
            self.drop_samples(Reason::Invalid, 1, || {
                format!("`{}`: a time before 1970", name(series))
            });
            return false;
        };
        let Some(time) = self.apply_future(time) else {
            self.drop_samples(Reason::Future, 1, || {
                format!("`{}`: {}", name(series), Rejection::Future)
            });
            return false;
        };
        if self.decoded.points.len() >= MAX_POINTS {
            self.drop_samples(Reason::Limit, 1, || {
                format!("a request has at most {MAX_POINTS} samples")
            });
            return false;
        }
        // The series under its previous resource has ended, so its lease does not have to end first.
        if let Some(series) = former {
            self.keys.push(labels.key());
            self.decoded.points.push(Point {
                series,
                start: 0,
                time: time.saturating_sub(1),
                value: Value::NoRecordedValue,
                exemplars: Vec::new(),
            });
        }
        let start = nanos(start).filter(|start| *start <= time).unwrap_or(0);
        if starts.note(start, time, self.latest) {
            self.decoded.colliding.push(stream.clone());
        }
        self.keys.push(labels.key());
        self.decoded.points.push(Point {
            series: stream.clone(),
            start,
            time,
            value,
            exemplars: Vec::new(),
        });
        true
    }

    /// The time of a sample in the table; `None`: it is too far ahead. With its own time, all points of its series
    /// until then would be late.
    fn apply_future(&self, time: UnixNanos) -> Option<UnixNanos> {
        match (time > self.latest, self.decoder.future.action) {
            (false, _) => Some(time),
            (true, FutureAction::Arrival) => Some(self.arrived),
            (true, FutureAction::Refuse) => None,
        }
    }

    /// The OTLP form of the series.
    fn known(&mut self, series: &SeriesIn<'_>, labels: &KeyHasher, shape: SampleShape) -> CachedSeries {
        let decoder = self.decoder;
        let mut hasher = labels.clone();
        hasher.write_u8(shape as u8);
        match &series.metadata {
            Some(said) => {
                hasher.write_u8(said.kind as u8);
                hasher.write(said.unit.as_bytes());
                hasher.write_u8(0xff);
                hasher.write(said.help.as_bytes());
            }
            None => hasher.write_u64(decoder.families.version()),
        }
        let key = hasher.key();
        let mut shard = decoder.shard(key).lock();
        let make = || {
            let said = match self.version {
                Version::Two => series
                    .metadata
                    .map(family::FamilyMetadata::of)
                    .unwrap_or_default(),
                Version::One => decoder.families.metadata(name(series)),
            };
            Some(resolve::resolve(
                &series.labels,
                &said,
                shape,
                &decoder.resources,
                &mut self.builder,
            ))
        };
        let weigh = |_: &CachedSeries| SERIES_BYTES + 2 * series.extent.text;
        self.decoded.evicted += shard.take_evicted();
        let mut found = shard.get(key, self.most, weigh, make);
        if let Some(known) = &mut found
            && let CachedSeries::Stream {
                stream,
                place,
                version,
                ..
            } = known
            && *version != place.version.load(Relaxed)
        {
            let (resource, now) = place.resource();
            *version = now;
            let new = Arc::new(Stream {
                resource,
                ..(**stream).clone()
            });
            self.former = Some(std::mem::replace(stream, new));
        }
        // `make` always makes something.
        found.map_or(CachedSeries::Refused(Reason::Invalid, "unknown"), |known| {
            known.clone()
        })
    }

    fn drop_samples(&mut self, reason: Reason, samples: usize, why: impl FnOnce() -> String) {
        match self
            .decoded
            .dropped
            .iter_mut()
            .find(|(known, _, _)| *known == reason)
        {
            Some((_, all, _)) => *all += samples,
            None => self.decoded.dropped.push((reason, samples, why())),
        }
    }

    /// Gives exemplars that came by themselves to the last point of their series in this request.
    fn adopt(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let points: std::collections::HashMap<Key, usize> = self.keys.iter().copied().zip(0..).collect();
        for (key, exemplar) in self.orphans.drain(..) {
            match points.get(&key).and_then(|at| self.decoded.points.get_mut(*at)) {
                Some(point) => {
                    point.exemplars.push(exemplar);
                    self.decoded.exemplars += 1;
                }
                None => self.decoded.lost_exemplars += 1,
            }
        }
    }
}

/// The name of the metric.
fn name<'r>(series: &SeriesIn<'r>) -> &'r str {
    let found = series.labels.iter().find(|(name, _)| *name == NAME);
    found.map_or("", |(_, value)| value)
}
