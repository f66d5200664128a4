// SPDX-License-Identifier: Apache-2.0

//! Taps: copies of the batches that enter or leave a component, for people who debug a running gateway.
//!
//! A tap never slows a push. A batch that has no room in the queue of the tap, in its memory or in the account is
//! skipped and counted. Points belong to the gateway and not to one graph, so a reload keeps the taps.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_config::Class;
use tokio::sync::mpsc;

use super::{Account, Ceiling, Held, NoRoom};
use crate::batch::{Batch, Signal};

/// The most batches that wait for the reader of a tap.
const MAX_BATCHES: usize = 64;

/// The most bytes of the batches that wait for the reader of a tap. A larger batch is copied if no other waits.
pub const MAX_TAP_BYTES: usize = 8 << 20;

/// Taps leave one of this many parts of the memory limit to data.
const SPARED: usize = 4;

/// Reserves `bytes` more for a tap. It leaves a quarter of the limit to data, because a tap must not be the reason why the
/// gateway refuses a push.
///
/// # Errors
/// The limit leaves no room for them now.
pub fn reserve(held: &mut Held, bytes: usize) -> Result<(), NoRoom> {
    let limit = held.account().limit_under(Ceiling::Soft);
    let used = held.account().used_bytes().saturating_add(bytes);
    if used > limit - limit / SPARED {
        return Err(NoRoom);
    }
    held.try_grow_quietly(bytes)
}

/// The side of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapSide {
    /// What enters the component.
    Input,
    /// What leaves the component.
    Output,
}

/// A component and its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentSide {
    /// The class of the component.
    pub class: Class,
    /// The id of the component: `batch/large`.
    pub id: Arc<str>,
    /// The side of the component.
    pub side: TapSide,
}

/// The position of a tap point in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSite {
    /// The component and the side of it that the edge is at.
    pub component: ComponentSide,
    /// The pipeline. `None`: the edge leads to all pipelines of the signal.
    pub pipeline: Option<Arc<str>>,
    /// The signal of the batches.
    pub signal: Signal,
}

/// The edges that a tap copies from, in this graph and in later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapTarget {
    /// The component and the side of it that the edges are at.
    pub component: ComponentSide,
    /// Only edges of this pipeline. Edges to all pipelines of its signal count as its edges.
    pub pipeline: Option<Arc<str>>,
}

impl TapTarget {
    fn covers(&self, site: &TapSite) -> bool {
        let is_in_pipeline = match (&self.pipeline, &site.pipeline) {
            (None, _) => true,
            (Some(wanted), Some(pipeline)) => wanted == pipeline,
            (Some(wanted), None) => wanted.split('/').next() == Some(site.signal.name()),
        };
        is_in_pipeline && self.component == site.component
    }
}

/// The part of an edge that copies batches to taps.
pub struct TapPoint {
    site: TapSite,
    /// Whether `taps` has any. Without taps, a batch costs one relaxed load.
    is_tapped: AtomicBool,
    taps: ArcSwap<Vec<Arc<Tap>>>,
}

impl TapPoint {
    fn new(site: TapSite, taps: Vec<Arc<Tap>>) -> Self {
        Self {
            site,
            is_tapped: AtomicBool::new(!taps.is_empty()),
            taps: ArcSwap::from_pointee(taps),
        }
    }

    /// Copies a batch that passes to the taps, if there are any.
    pub fn pass(&self, batch: &Batch) {
        if self.is_tapped.load(Relaxed) {
            self.copy(batch);
        }
    }

    #[cold]
    fn copy(&self, batch: &Batch) {
        for tap in self.taps.load().iter() {
            tap.offer(batch);
        }
    }

    /// Replaces the taps. The caller holds the lock of the registry.
    fn set(&self, taps: Vec<Arc<Tap>>) {
        let is_tapped = !taps.is_empty();
        self.taps.store(Arc::new(taps));
        self.is_tapped.store(is_tapped, Relaxed);
    }
}

/// One reader of copies.
struct Tap {
    target: TapTarget,
    queue: mpsc::Sender<TappedBatch>,
    memory: Arc<Account>,
    /// The bytes of the copies.
    held_bytes: Arc<AtomicUsize>,
    /// Skipped batches that the reader does not know of.
    skipped: AtomicU64,
    opened: Instant,
    /// The end of the pause, in milliseconds after `opened`.
    paused_until: AtomicU64,
}

impl Tap {
    fn offer(&self, batch: &Batch) {
        if batch.items() > 0 && !self.enqueue(batch) {
            self.skipped.fetch_add(1, Relaxed);
        }
    }

    fn enqueue(&self, batch: &Batch) -> bool {
        if self.age() < self.paused_until.load(Relaxed) {
            return false;
        }
        let Ok(permit) = self.queue.try_reserve() else {
            return false;
        };
        match self.reserve(batch) {
            Some(tapped) => {
                permit.send(tapped);
                true
            }
            None => false,
        }
    }

    fn reserve(&self, batch: &Batch) -> Option<TappedBatch> {
        let bytes = batch.bytes();
        let share = TapShare::take(&self.held_bytes, bytes)?;
        let mut held = Held::ours(self.memory.clone());
        reserve(&mut held, bytes).ok()?;
        held.fill_to(bytes);
        Some(TappedBatch {
            batch: batch.clone(),
            held,
            _share: share,
        })
    }

    /// Milliseconds since the tap was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The bytes of a copy in the memory of its tap.
struct TapShare {
    held_bytes: Arc<AtomicUsize>,
    bytes: usize,
}

impl TapShare {
    fn take(held_bytes: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        let added = |held: usize| {
            let more = held.checked_add(bytes)?;
            (held == 0 || more <= MAX_TAP_BYTES).then_some(more)
        };
        held_bytes.fetch_update(Relaxed, Relaxed, added).ok()?;
        Some(Self {
            held_bytes: held_bytes.clone(),
            bytes,
        })
    }
}

impl Drop for TapShare {
    fn drop(&mut self) {
        self.held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// A copy of a batch.
pub struct TappedBatch {
    /// The batch.
    pub batch: Batch,
    /// The reservation of its bytes. Readers add those of other forms.
    pub held: Held,
    _share: TapShare,
}

/// All points and taps of a gateway.
#[derive(Default)]
pub struct Taps(Mutex<TapLists>);

#[derive(Default)]
struct TapLists {
    /// The points of the edges of all graphs. The edges own them.
    points: Vec<Weak<TapPoint>>,
    taps: Vec<Arc<Tap>>,
}

impl TapLists {
    /// The points that edges own.
    fn points(&self) -> impl Iterator<Item = Arc<TapPoint>> {
        self.points.iter().filter_map(Weak::upgrade)
    }

    fn taps_at(&self, site: &TapSite) -> Vec<Arc<Tap>> {
        let taps = self.taps.iter();
        taps.filter(|tap| tap.target.covers(site)).cloned().collect()
    }

    /// Gives the points of a target their taps after a change.
    fn connect(&self, target: &TapTarget) {
        let points = self.points().filter(|point| target.covers(&point.site));
        points.for_each(|point| point.set(self.taps_at(&point.site)));
    }
}

impl Taps {
    /// The point of an edge. Edges of several graphs at one site share it.
    pub fn point(&self, site: TapSite) -> Arc<TapPoint> {
        let mut lists = self.0.lock();
        lists.points.retain(|point| point.strong_count() > 0);
        let known = lists.points().find(|point| point.site == site);
        if let Some(known) = known {
            return known;
        }
        let taps = lists.taps_at(&site);
        let point = Arc::new(TapPoint::new(site, taps));
        lists.points.push(Arc::downgrade(&point));
        point
    }

    /// Opens a tap, unless `max_taps` are open.
    pub fn open(
        self: &Arc<Self>,
        target: TapTarget,
        max_taps: usize,
        memory: &Arc<Account>,
    ) -> Option<TapReader> {
        let mut lists = self.0.lock();
        if lists.taps.len() >= max_taps {
            return None;
        }
        let (queue, batches) = mpsc::channel(MAX_BATCHES);
        let tap = Arc::new(Tap {
            target,
            queue,
            memory: memory.clone(),
            held_bytes: Arc::default(),
            skipped: AtomicU64::new(0),
            opened: Instant::now(),
            paused_until: AtomicU64::new(0),
        });
        lists.taps.push(tap.clone());
        lists.connect(&tap.target);
        Some(TapReader {
            tap,
            batches,
            taps: self.clone(),
        })
    }

    fn close(&self, tap: &Arc<Tap>) {
        let mut lists = self.0.lock();
        lists.taps.retain(|other| !Arc::ptr_eq(other, tap));
        lists.connect(&tap.target);
    }
}

/// The reading side of a tap. The tap closes when this is dropped.
pub struct TapReader {
    tap: Arc<Tap>,
    batches: mpsc::Receiver<TappedBatch>,
    taps: Arc<Taps>,
}

impl TapReader {
    /// Waits for the next copy.
    pub async fn next(&mut self) -> Option<TappedBatch> {
        self.batches.recv().await
    }

    /// The number of batches that were skipped since the last call.
    pub fn take_skipped(&self) -> u64 {
        self.tap.skipped.swap(0, Relaxed)
    }

    /// Counts a batch that the reader does not show, or shows only in part.
    pub fn skip(&self) {
        self.tap.skipped.fetch_add(1, Relaxed);
    }

    /// Copies nothing for a time. Batches that pass meanwhile are skipped.
    pub fn pause(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let end = self.tap.age().saturating_add(time);
        self.tap.paused_until.store(end, Relaxed);
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.taps.close(&self.tap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::testing::opaque;

    fn component(id: &str, side: TapSide) -> ComponentSide {
        ComponentSide {
            class: Class::Processor,
            id: id.into(),
            side,
        }
    }

    fn site(id: &str, pipeline: Option<&str>, side: TapSide) -> TapSite {
        TapSite {
            component: component(id, side),
            pipeline: pipeline.map(Into::into),
            signal: Signal::Logs,
        }
    }

    fn target(id: &str, pipeline: Option<&str>) -> TapTarget {
        TapTarget {
            component: component(id, TapSide::Output),
            pipeline: pipeline.map(Into::into),
        }
    }

    fn one() -> Batch {
        opaque(Signal::Logs, b"x", 1)
    }

    async fn take(reader: &mut TapReader) -> usize {
        reader.next().await.unwrap().batch.items()
    }

    #[test]
    fn a_target_covers_the_edges_of_its_component_side_and_pipeline() {
        let output = TapSide::Output;
        assert!(target("a", None).covers(&site("a", Some("logs/x"), output)));
        assert!(target("a", Some("logs/x")).covers(&site("a", Some("logs/x"), output)));
        assert!(target("a", Some("logs/x")).covers(&site("a", None, output)));
        assert!(!target("a", Some("metrics")).covers(&site("a", None, output)));
        assert!(!target("a", Some("logs")).covers(&site("a", Some("logs/x"), output)));
        assert!(!target("b", None).covers(&site("a", None, output)));
        assert!(!target("a", None).covers(&site("a", None, TapSide::Input)));
        let mut connector = site("a", None, output);
        connector.component.class = Class::Connector;
        assert!(!target("a", None).covers(&connector));
    }

    #[tokio::test]
    async fn a_tap_stays_attached_to_the_points_of_the_next_graph() {
        let (taps, memory) = (Arc::<Taps>::default(), Arc::default());
        let output = || site("a", Some("logs"), TapSide::Output);
        let point = taps.point(output());
        point.pass(&one());
        let mut reader = taps.open(target("a", None), 1, &memory).unwrap();
        point.pass(&one());
        assert_eq!(take(&mut reader).await, 1);
        assert!(
            Arc::ptr_eq(&point, &taps.point(output())),
            "graphs share the point"
        );
        drop(point);
        let next = taps.point(output());
        next.pass(&one());
        assert_eq!(take(&mut reader).await, 1);
        assert_eq!(reader.take_skipped(), 0);
        assert!(taps.open(target("a", None), 1, &memory).is_none());
        drop(reader);
        assert!(!next.is_tapped.load(Relaxed));
        assert!(taps.open(target("a", None), 1, &memory).is_some());
    }

    #[tokio::test]
    async fn a_tap_leaves_a_part_of_the_memory_to_data() {
        let (taps, memory) = (Arc::<Taps>::default(), Arc::<Account>::default());
        memory.set_default_limit(64 << 20);
        let point = taps.point(site("a", None, TapSide::Output));
        let mut reader = taps.open(target("a", None), 1, &memory).unwrap();
        point.pass(&one());
        assert_eq!(take(&mut reader).await, 1);
        let limit = memory.limit_under(Ceiling::Soft);
        memory.hold(limit - limit / SPARED);
        point.pass(&one());
        assert_eq!(reader.take_skipped(), 1);
        let mut data = Held::new(memory.clone());
        assert_eq!(data.try_grow(1 << 10), Ok(()));
    }

    #[tokio::test]
    async fn what_has_no_room_is_skipped_and_counted() {
        let (taps, memory) = (Arc::<Taps>::default(), Arc::<Account>::default());
        let point = taps.point(site("a", None, TapSide::Output));
        let mut reader = taps.open(target("a", None), 1, &memory).unwrap();
        for _ in 0..MAX_BATCHES + 3 {
            point.pass(&one());
        }
        assert_eq!(reader.take_skipped(), 3);
        assert!(memory.reserved_bytes() > 0);
        for _ in 0..MAX_BATCHES {
            take(&mut reader).await;
        }
        assert_eq!(memory.reserved_bytes(), 0);
        point.pass(&opaque(Signal::Logs, vec![b'x'; MAX_TAP_BYTES].leak(), 1));
        point.pass(&one());
        assert_eq!(reader.take_skipped(), 1, "only the first one has room");
        take(&mut reader).await;
        reader.pause(Duration::from_secs(3600));
        point.pass(&one());
        assert_eq!(reader.take_skipped(), 1);
    }
}
