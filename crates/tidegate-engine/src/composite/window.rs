// SPDX-License-Identifier: Apache-2.0

//! A sliding window made of sub-windows, each with the statistics of its values.

use std::time::Duration;

use super::sketch::Sketch;
use crate::UnixNanos;
use crate::lease::nanos;

/// Sub-windows of windows up to 10 s.
const FINE_NS: u64 = 100_000_000;

/// The number of sub-windows of a longer window.
const COARSE_PARTS: u64 = 100;

/// The longest sub-window that processes exchange, if the window has shorter ones (1 s).
#[cfg(feature = "tables")]
const SHARED_NS: u64 = 1_000_000_000;

/// The fewest sub-windows that processes exchange, if the window has as many.
#[cfg(feature = "tables")]
const MIN_SHARED: u64 = 10;

/// Statistics of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: f64,
    pub(crate) sum: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) last: f64,
}

impl Moments {
    pub(crate) const NONE: Self = Self {
        count: 0.0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        last: 0.0,
    };

    pub(crate) fn of(value: f64) -> Self {
        Self {
            count: 1.0,
            sum: value,
            min: value,
            max: value,
            last: value,
        }
    }

    /// A value that is no smaller than the smallest and no larger than the largest. Outside data may say that the
    /// smallest is larger than the largest.
    pub(super) fn bound(&self, value: f64) -> f64 {
        value.max(self.min).min(self.max)
    }

    /// Adds later values.
    pub(super) fn add(&mut self, later: &Self) {
        self.count += later.count;
        self.sum += later.sum;
        // Extremes may come in after the values were counted.
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        if later.count > 0.0 {
            self.last = later.last;
        }
    }
}

/// The division of a window into sub-windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    part_ns: u64,
    parts: u64,
}

impl Cut {
    pub(crate) fn of(window: Duration) -> Self {
        let window_ns = nanos(window).max(1);
        let part_ns = FINE_NS.max(window_ns.div_ceil(COARSE_PARTS));
        Self {
            part_ns,
            parts: window_ns.div_ceil(part_ns),
        }
    }

    /// The division in which processes exchange the window: as many whole sub-windows as fit into 1 s and into a tenth
    /// of the window, and that divide it evenly.
    #[cfg(feature = "tables")]
    pub(crate) fn shared(self) -> Self {
        let most = (SHARED_NS / self.part_ns).min(self.parts / MIN_SHARED).max(1);
        let joined = (1..=most).rev().find(|joined| self.parts.is_multiple_of(*joined));
        let joined = joined.unwrap_or(1);
        Self {
            part_ns: self.part_ns * joined,
            parts: self.parts / joined,
        }
    }

    /// The length of a sub-window in nanoseconds.
    #[cfg(feature = "tables")]
    pub(crate) fn part_ns(self) -> u64 {
        self.part_ns
    }

    /// The bytes of a window with this division, while its sketches are empty.
    pub(crate) fn bytes(self, has_sketches: bool) -> usize {
        let sketch = if has_sketches { size_of::<Sketch>() } else { 0 };
        size_of::<Window>() + self.parts as usize * (size_of::<Moments>() + sketch)
    }

    /// The sub-window that `time` falls into, counted from the epoch.
    pub(crate) fn part(self, time: UnixNanos) -> u64 {
        time / self.part_ns
    }

    /// The beginning of the window that ends at `now`: its oldest sub-window is whole, its newest the current one.
    pub(crate) fn begin(self, now: UnixNanos) -> UnixNanos {
        (self.part(now) + 1).saturating_sub(self.parts) * self.part_ns
    }

    /// The seconds that the window that ends at `now` covers; at least one sub-window.
    pub(crate) fn covered_s(self, now: UnixNanos) -> f64 {
        let covered = now.saturating_sub(self.begin(now));
        covered.max(self.part_ns) as f64 / 1e9
    }
}

/// The ring of sub-windows.
#[derive(Debug)]
pub(crate) struct Window {
    cut: Cut,
    parts: Box<[Moments]>,
    /// One a part, where quantiles are asked for.
    sketches: Box<[Sketch]>,
    /// The bytes that they have allocated. A sketch keeps them when it is cleared.
    sketched: usize,
    newest: u64,
}

impl Window {
    pub(crate) fn new(cut: Cut, has_sketches: bool) -> Self {
        let sketches = if has_sketches { cut.parts as usize } else { 0 };
        Self {
            cut,
            parts: vec![Moments::NONE; cut.parts as usize].into(),
            sketches: vec![Sketch::default(); sketches].into(),
            sketched: 0,
            newest: 0,
        }
    }

    /// The bytes that its sketches have allocated.
    pub(crate) fn bytes_of_sketches(&self) -> usize {
        self.sketched
    }

    /// The bytes of it all.
    pub(crate) fn bytes(&self) -> usize {
        self.cut.bytes(!self.sketches.is_empty()) + self.sketched
    }

    /// Adds values at `time`, unless that is before the window.
    pub(crate) fn add(&mut self, time: UnixNanos, moments: &Moments) {
        let part = self.cut.part(time);
        self.advance(part);
        if part + self.cut.parts > self.newest {
            self.parts[(part % self.cut.parts) as usize].add(moments);
        }
    }

    /// Lets `add` add to the sketch of the values at `time`, where one is asked for and it is not too late.
    pub(super) fn sketch(&mut self, time: UnixNanos, add: impl FnOnce(&mut Sketch)) {
        let part = self.cut.part(time);
        self.advance(part);
        let is_within = part + self.cut.parts > self.newest;
        let sketch = self.sketches.get_mut((part % self.cut.parts) as usize);
        if let Some(sketch) = sketch.filter(|_| is_within) {
            let before = sketch.bytes();
            add(sketch);
            self.sketched = self.sketched + sketch.bytes() - before;
        }
    }

    /// The distribution of the values in the window that ends at `now`, as far as it is sketched.
    pub(super) fn distribution(&mut self, now: UnixNanos) -> Sketch {
        self.advance(self.cut.part(now));
        let mut all = Sketch::default();
        let filled = self.sketches.iter().filter(|sketch| !sketch.is_empty());
        filled.for_each(|sketch| all.merge(sketch));
        all
    }

    /// The statistics of the window that ends at `now`.
    pub(crate) fn read(&mut self, now: UnixNanos) -> Moments {
        self.advance(self.cut.part(now));
        let mut all = Moments::NONE;
        for part in self.newest + 1..=self.newest + self.cut.parts {
            all.add(&self.parts[(part % self.cut.parts) as usize]);
        }
        all
    }

    /// The sub-windows of `cut` in the window that ends at `now`, without those that end at `since` or earlier: where each
    /// begins, its statistics, and its distribution as far as it is sketched. `cut` joins sub-windows of this window.
    #[cfg(feature = "tables")]
    pub(super) fn joined(
        &mut self,
        cut: Cut,
        since: UnixNanos,
        now: UnixNanos,
    ) -> impl Iterator<Item = (UnixNanos, Moments, Option<Sketch>)> {
        self.advance(self.cut.part(now));
        let (joined, newest) = (cut.part_ns / self.cut.part_ns, self.newest);
        let last = newest / joined;
        let places = (last + 1..=last + cut.parts).filter_map(move |at| at.checked_sub(cut.parts));
        let places = places.filter(move |at| (at + 1) * cut.part_ns > since);
        places.map(move |at| {
            let mut moments = Moments::NONE;
            let mut sketch = (!self.sketches.is_empty()).then(Sketch::default);
            for part in (at * joined..(at + 1) * joined).filter(|part| *part <= newest) {
                let slot = (part % self.cut.parts) as usize;
                moments.add(&self.parts[slot]);
                if let (Some(all), Some(part)) = (&mut sketch, self.sketches.get(slot)) {
                    all.merge(part);
                }
            }
            (at * cut.part_ns, moments, sketch)
        })
    }

    /// Empties the sub-windows between the newest and `part`.
    fn advance(&mut self, part: u64) {
        if part <= self.newest {
            return;
        }
        let fresh = (part - self.newest).min(self.cut.parts);
        for at in part - fresh + 1..=part {
            self.parts[(at % self.cut.parts) as usize] = Moments::NONE;
            if let Some(sketch) = self.sketches.get_mut((at % self.cut.parts) as usize) {
                sketch.clear();
            }
        }
        self.newest = part;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_are_cut_as_documented() {
        let cut = |seconds| Cut::of(Duration::from_secs_f64(seconds));
        assert_eq!(
            cut(10.0),
            Cut {
                part_ns: FINE_NS,
                parts: 100
            }
        );
        assert_eq!(
            cut(0.25),
            Cut {
                part_ns: FINE_NS,
                parts: 3
            }
        );
        assert_eq!(
            cut(60.0),
            Cut {
                part_ns: 600_000_000,
                parts: 100
            }
        );
    }

    #[cfg(feature = "tables")]
    #[test]
    fn shared_sub_windows_are_long_enough_and_divide_the_window() {
        let shared = |seconds| {
            let cut = Cut::of(Duration::from_secs_f64(seconds)).shared();
            (cut.part_ns / 1_000_000, cut.parts)
        };
        let windows = [0.05, 1.0, 9.7, 10.0, 15.0, 60.0, 300.0];
        let expected = [
            (100, 1),
            (100, 10),
            (100, 97),
            (1000, 10),
            (750, 20),
            (600, 100),
            (3000, 100),
        ];
        assert_eq!(windows.map(shared), expected);
    }

    #[test]
    fn the_weight_of_sketches_is_known_without_a_walk() {
        let second: u64 = 1_000_000_000;
        let mut window = Window::new(Cut::of(Duration::from_secs(10)), true);
        let mut now = 1_700_000_000 * second;
        for step in 0..300 {
            now += second / 20 * (step % 7);
            let late = now - second * (step % 13);
            window.sketch(late, |sketch| {
                (0..step).for_each(|n| sketch.add(1.1_f64.powi(n as i32), 1.0));
            });
            let walked: usize = window.sketches.iter().map(Sketch::bytes).sum();
            assert_eq!(window.bytes_of_sketches(), walked);
        }
        assert!(window.bytes_of_sketches() > 10_000);
    }

    #[cfg(feature = "tables")]
    proptest! {
        #[test]
        fn joined_sub_windows_match_the_list_of_all_values(
            steps in prop::collection::vec((0u64..3_000_000_000, -100i32..100), 1..12),
            window_ms in 100u64..20_000,
        ) {
            let cut = Cut::of(Duration::from_millis(window_ms));
            let mut window = Window::new(cut, true);
            let mut all: Vec<(u64, f64)> = Vec::new();
            let mut now = 1_700_000_000_000_000_000;
            for (step, value) in steps {
                now += step;
                let value = f64::from(value);
                window.add(now, &Moments::of(value));
                window.sketch(now, |sketch| sketch.add(value, 1.0));
                all.push((now, value));
                now += step / 2;
                for joined in [cut, cut.shared()] {
                    let parts: Vec<_> = window.joined(joined, 0, now).collect();
                    prop_assert_eq!(parts[0].0, joined.begin(now));
                    for (start, moments, sketch) in parts {
                        let inside = all.iter().filter(|(at, _)| (start..start + joined.part_ns).contains(at));
                        let (mut truth, mut distribution) = (Moments::NONE, Sketch::default());
                        for (_, value) in inside {
                            truth.add(&Moments::of(*value));
                            distribution.add(*value, 1.0);
                        }
                        prop_assert_eq!((moments, sketch), (truth, Some(distribution)));
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_window_matches_the_list_of_all_values(
            steps in prop::collection::vec((0u64..3_000_000_000, -100i32..100), 1..80),
            window_ms in 100u64..20_000,
        ) {
            let cut = Cut::of(Duration::from_millis(window_ms));
            let mut window = Window::new(cut, false);
            let mut all: Vec<(u64, f64)> = Vec::new();
            let mut now = 1_700_000_000_000_000_000;
            for (step, value) in steps {
                now += step;
                window.add(now, &Moments::of(f64::from(value)));
                all.push((now, f64::from(value)));
                let later = now + step / 2;
                let inside: Vec<f64> = all.iter().filter(|(at, _)| *at >= cut.begin(later)).map(|(_, v)| *v).collect();
                let mut copy = Window { cut, parts: window.parts.clone(), sketches: Box::default(), sketched: 0, newest: window.newest };
                let read = copy.read(later);
                prop_assert_eq!(read.count, inside.len() as f64);
                prop_assert_eq!(read.sum, inside.iter().sum::<f64>());
                if let Some(last) = inside.last() {
                    prop_assert_eq!(read.last, *last);
                    prop_assert_eq!(read.min, inside.iter().copied().fold(f64::INFINITY, f64::min));
                    prop_assert_eq!(read.max, inside.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                }
            }
        }
    }
}
