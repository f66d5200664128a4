// SPDX-License-Identifier: Apache-2.0

//! The windows of a composite as sub-windows: for other processes, and for the next run of this one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::group::WindowOrigin;
use super::sub_window::SubWindow;
use super::window::{Cut, Window};
use super::{Composite, Declaration, Function};
use crate::chunks::lock;
use crate::{Attributes, UnixNanos, clock};

/// The reason why a composite can't be put together from the windows of several processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unshareable {
    /// It has a value for each series.
    #[error(
        "`{0}`: `across` needs the series of all processes: compute the composite where these series are"
    )]
    BySeries(Arc<str>),
    /// It is PromQL.
    #[error("`{0}`: `expr` needs the series of all processes: compute the composite where these series are")]
    Expression(Arc<str>),
    /// It is the newest value.
    #[error("`{0}`: `function: last` is not defined across processes: use `avg`, `min` or `max`")]
    Last(Arc<str>),
}

impl Declaration {
    /// Whether the windows of several processes make one.
    ///
    /// # Errors
    /// The declaration needs more than the observations in a window.
    pub fn check_shareable(&self) -> Result<(), Unshareable> {
        let name = || self.name.clone();
        if self.expression.is_some() {
            return Err(Unshareable::Expression(name()));
        }
        if self.is_by_series() {
            return Err(Unshareable::BySeries(name()));
        }
        match self.function {
            Function::Last => Err(Unshareable::Last(name())),
            _ => Ok(()),
        }
    }
}

impl Composite {
    /// Shows the observations of this run as sub-windows of at most about 1 s, in ascending order in each group: those
    /// that begin at `since` or later and have values, and always the current one. So an idle group is known too.
    /// Returns the number of groups that are omitted because they hold a gauge.
    ///
    /// Borders and ends are by the wall clock. After the wall clock was set (see [`clock::steps`]), equal borders mean
    /// other times. Begin a new run then: claim a new epoch, and pass the time as `since` from there on.
    ///
    /// # Errors
    /// The windows of several processes do not make one.
    pub fn export(
        &self,
        now: UnixNanos,
        since: UnixNanos,
        each: &mut dyn FnMut(&Attributes, SubWindow),
    ) -> Result<usize, Unshareable> {
        self.declaration.check_shareable()?;
        let mut omitted = 0;
        for group in self.groups() {
            let mut group = lock(&group);
            let group = &mut *group;
            if group.has_level() {
                omitted += 1;
                continue;
            }
            let attributes = group.series.attributes.clone();
            let cut = self.cut.shared();
            let pool = group.pool(self.declaration.is_sketched());
            for (start, sub_window) in sub_windows(pool, cut, 0, now) {
                let is_current = start + cut.part_ns() > now;
                if start >= since && (is_current || !sub_window.is_empty()) {
                    each(&attributes, sub_window);
                }
            }
        }
        Ok(omitted)
    }

    /// Shows the pooled observations in the window as finely as they are held: those of this run in sub-windows that end
    /// after `since`, and with `since` = 0 those of earlier runs too. `each` gets where a sub-window begins by our clock: the wall
    /// clock may be set. The next run takes them by [`Self::restore`].
    pub(super) fn save(
        &self,
        since: UnixNanos,
        now: UnixNanos,
        each: &mut dyn FnMut(&Attributes, UnixNanos, SubWindow, WindowOrigin),
    ) {
        if !self.has_pool() {
            return;
        }
        for group in self.groups() {
            let mut group = lock(&group);
            let attributes = group.series.attributes.clone();
            for (window, origin) in group.windows() {
                if origin == WindowOrigin::EarlierRuns && since > 0 {
                    continue;
                }
                sub_windows(window, self.cut, since, now)
                    .filter(|(_, part)| !part.is_empty())
                    .for_each(|(start, part)| each(&attributes, start, part, origin));
            }
        }
    }

    /// Whether a saved sub-window still lies in the window, and the composite has a pool for it.
    pub(super) fn holds(&self, saved: &SubWindow, now: UnixNanos) -> bool {
        let start = clock::steady(saved.start);
        self.has_pool() && start >= self.cut.begin(now) && start <= now && saved.is_countable()
    }

    fn has_pool(&self) -> bool {
        self.declaration.expression.is_none() && !self.declaration.is_by_series()
    }

    /// Takes a sub-window that an earlier run saved. Answers count its values until they leave the window, and
    /// [`Self::export`] leaves them out: the earlier run has exported them. Returns whether it lies in the window and there
    /// is memory for it. [`Self::without_memory`] counts those that found none.
    pub(super) fn restore(&self, attributes: &Attributes, saved: &SubWindow, now: UnixNanos) -> bool {
        if !self.holds(saved, now) {
            return false;
        }
        let start = clock::steady(saved.start);
        let is_sketched = self.declaration.is_sketched();
        let (_, has_room) = self.within(attributes, |group| group.restore(start, saved, is_sketched, now));
        if has_room {
            self.inputs.restored_until.fetch_max(saved.end, Relaxed);
            self.version.fetch_add(1, Relaxed);
        } else {
            self.room.note_point_without_room(now);
        }
        has_room
    }
}

/// The sub-windows of `cut`, each with its start by our clock.
fn sub_windows(
    window: &mut Window,
    cut: Cut,
    since: UnixNanos,
    now: UnixNanos,
) -> impl Iterator<Item = (UnixNanos, SubWindow)> {
    let length = cut.part_ns();
    window
        .joined(cut, since, now)
        .map(move |(start, moments, sketch)| {
            // The distance of the clocks need not be a multiple of the length.
            let border = clock::wall(start).saturating_add(length / 2) / length * length;
            let end = border + length.min(now.saturating_sub(start));
            (start, SubWindow::new(border, end, &moments, sketch.as_ref()))
        })
}
