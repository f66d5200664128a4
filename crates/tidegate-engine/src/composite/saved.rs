// SPDX-License-Identifier: Apache-2.0

//! The windows of composites as bytes, and back: the part of a composite that must survive a restart.
//!
//! Version (1 byte), then records until the end. A composite: 1, its name, the text of its input. A group of it: 2, its
//! attributes. A sub-window of the group: 3, its run, its start by the clock of the run, start, end, count, sum, its smallest,
//! largest and newest value (each: whether there is one, and the value), its distribution.
//!
//! A run saves a sub-window again when it has more values. The later record replaces the earlier one: both begin at one time by
//! the clock of the run, which is never set.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::group::WindowOrigin;
use super::sub_window::SubWindow;
use super::{Composite, CompositeSet, Declaration};
use crate::bytes::{number, take};
use crate::saved::{load_attributes, load_text, save_attributes, save_text};
use crate::stream_tracker::LastValue;
use crate::{Attributes, Grouping, UnixNanos, Value};

const VERSION: u8 = 1;

const COMPOSITE: u8 = 1;
const GROUP: u8 = 2;
const SUB_WINDOW: u8 = 3;

/// The run number of sub-windows that this run has restored.
const EARLIER_RUNS: u64 = 0;

/// The sub-windows that earlier runs saved, by composite and group.
#[derive(Debug)]
pub struct SavedWindows {
    set: Arc<CompositeSet>,
    /// Composites of the set that have their windows already.
    kept: Vec<Arc<Composite>>,
    groups: HashMap<(usize, Attributes), BTreeMap<(u64, UnixNanos), SubWindow>>,
}

impl Declaration {
    /// The text of everything that decides which values are in the window. Windows of another input do not continue.
    fn input(&self) -> String {
        let mut text = self.metric.text().to_owned();
        for (key, pattern) in &self.attributes.0 {
            text += &format!("\n{key}={}", pattern.text());
        }
        let (name, keys): (_, &[Arc<str>]) = match &self.grouping {
            Grouping::Keep => ("keep", &[]),
            Grouping::By(keys) => ("by", keys),
            Grouping::Without(keys) => ("without", keys),
        };
        text += &format!("\n{name} {}", keys.join(","));
        if self.is_sketched() {
            text += "\nwith distributions";
        }
        text
    }
}

impl CompositeSet {
    /// The sub-windows of this run that end after `since`, as bytes for [`SavedWindows::load`]. With `since` = 0 they are
    /// all windows, also those of earlier runs. `None`: there are none.
    ///
    /// `run` is a number above 0 that no other run has. A composite keeps the number of its first save, also in other sets.
    pub fn save(&self, run: u64, since: UnixNanos, now: UnixNanos) -> Option<Vec<u8>> {
        let mut bytes = vec![VERSION];
        for composite in self.list() {
            let mut is_new = true;
            let mut last: Option<Attributes> = None;
            composite.save(since, now, &mut |group, start, sub_window, origin| {
                if std::mem::take(&mut is_new) {
                    let declaration = composite.declaration();
                    bytes.push(COMPOSITE);
                    save_text(&mut bytes, &declaration.name);
                    save_text(&mut bytes, &declaration.input());
                }
                if last.as_ref() != Some(group) {
                    bytes.push(GROUP);
                    save_attributes(&mut bytes, group);
                    last = Some(group.clone());
                }
                let run = match origin {
                    WindowOrigin::ThisRun => *composite.inputs.saved_run.get_or_init(|| run),
                    WindowOrigin::EarlierRuns => EARLIER_RUNS,
                };
                sub_window.save((run, start), &mut bytes);
            });
        }
        (bytes.len() > 1).then_some(bytes)
    }
}

impl SavedWindows {
    /// Nothing yet, for the composites of `set`.
    pub fn new(set: Arc<CompositeSet>) -> Self {
        Self {
            set,
            kept: Vec::new(),
            groups: HashMap::new(),
        }
    }

    /// Leaves out composites that have their windows already.
    #[must_use]
    pub fn without(self, kept: Vec<Arc<Composite>>) -> Self {
        Self { kept, ..self }
    }

    /// Reads what [`CompositeSet::save`] gave, in the order in which it was saved. It keeps what lies in the windows of
    /// composites with the same name and input. `None`: the bytes are invalid or of another version; the part read
    /// before stays.
    pub fn load(&mut self, mut bytes: &[u8], now: UnixNanos) -> Option<()> {
        let from = &mut bytes;
        if *take(from)? != [VERSION] {
            return None;
        }
        let mut place = None;
        let mut group = None;
        while !from.is_empty() {
            match *take(from)? {
                [COMPOSITE] => {
                    let (name, input) = (load_text(from)?, load_text(from)?);
                    place = self.set.list().iter().position(|composite| {
                        let declaration = composite.declaration();
                        let is_kept = self.kept.iter().any(|kept| Arc::ptr_eq(kept, composite));
                        !is_kept && declaration.name == name && declaration.input() == *input
                    });
                    group = None;
                }
                [GROUP] => group = Some(load_attributes(from, 0)?),
                [SUB_WINDOW] => {
                    let (key, sub_window) = SubWindow::load(from)?;
                    let group = group.as_ref()?;
                    if let Some(place) = place.filter(|place| self.set.list()[*place].holds(&sub_window, now))
                    {
                        let windows = self.groups.entry((place, group.clone())).or_default();
                        windows.insert(key, sub_window);
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Gives the windows to the composites. Returns the number of groups that continue.
    pub fn restore(self, now: UnixNanos) -> usize {
        let list = self.set.list();
        let restored = self.groups.into_iter().filter(|((place, group), windows)| {
            let composite: &Composite = &list[*place];
            let taken = windows
                .values()
                .filter(|part| composite.restore(group, part, now));
            taken.count() > 0
        });
        restored.count()
    }
}

impl SubWindow {
    /// `key`: the run, and the start by its clock.
    fn save(&self, key: (u64, UnixNanos), to: &mut Vec<u8>) {
        to.push(SUB_WINDOW);
        for number in [
            key.0,
            key.1,
            self.start,
            self.end,
            self.count.to_bits(),
            self.sum.to_bits(),
        ] {
            to.extend(number.to_le_bytes());
        }
        for value in [self.min, self.max, self.last] {
            to.push(u8::from(value.is_some()));
            to.extend(value.unwrap_or_default().to_le_bytes());
        }
        let distribution = self.distribution.clone().map(Box::new);
        let distribution = distribution.map(Value::ExponentialHistogram);
        let last = distribution.and_then(|value| LastValue::of(&value));
        last.unwrap_or_default().save(to);
    }

    fn load(from: &mut &[u8]) -> Option<((u64, UnixNanos), Self)> {
        let key = (number(from)?, number(from)?);
        let (start, end) = (number(from)?, number(from)?);
        let (count, sum) = (f64::from_bits(number(from)?), f64::from_bits(number(from)?));
        let mut value = || {
            let [is_there] = *take(from)?;
            let value = f64::from_bits(number(from)?);
            Some((is_there != 0).then_some(value))
        };
        let (min, max, last) = (value()?, value()?, value()?);
        let distribution = match LastValue::load(from)? {
            LastValue::Nothing => None,
            LastValue::Exponential(distribution) => Some(*distribution),
            _ => return None,
        };
        let sub_window = Self {
            start,
            end,
            count,
            sum,
            min,
            max,
            last,
            distribution,
        };
        Some((key, sub_window))
    }
}

#[cfg(test)]
mod tests;
