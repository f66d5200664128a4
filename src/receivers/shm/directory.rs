// SPDX-License-Identifier: Apache-2.0

//! One directory: it is read, compared with the sent values, and its changes are sent.
//!
//! A directory is one source. Its lease says whether one of its processes lives: so the silence of a living process means that
//! nothing has changed. All series are sent again at an interval, because exporters drop series that they do not receive.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cells::{Directory, FamilySpec, FamilyValues, Follower, Problem, Refused, Value as Cell};
use tidegate_engine::{Attributes, Lease, Point, Series, Value};

use super::MOST_LINES;
use super::config::ShmConfig;
use super::repeats::{Repeats, SeriesPosition};
use super::series;
use super::starts::{SentState, Start, Starts};
use crate::batch::{Batch, Points};
use crate::component::{Entry, unix_now, wall_now};
use crate::receivers::kept::{self, Kept};
use crate::receivers::pods;
use crate::receivers::printable::{printable, printable_path};

/// A refused push is tried again after this at the earliest; the cells keep the values meanwhile.
const REFUSED_RETRY: Duration = Duration::from_millis(20);

/// Points of a push.
pub(super) const PUSH_POINTS: usize = 4096;

/// The shortest time after which a directory that nobody reads any more does not count as alive.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// The merges, one after the other, for which another process has the lock, until the log says so. Other readers have it for some
/// milliseconds.
pub(super) const BUSY_FOLDS: usize = 10;

/// The polls that a lease lasts for at least.
pub(super) const LEASE_POLLS: u32 = 3;

/// An open directory.
pub(super) struct Cells {
    path: PathBuf,
    receiver: Arc<str>,
    follower: Follower,
    /// Whether one of its processes lives. The receiver before a reload had the same lease.
    lease: Arc<Lease>,
    term: Duration,
    is_alive: bool,
    /// Whether its path shows the pod that owns it.
    is_of_pod: bool,
    repeats: Repeats,
    /// By the numbers of families and series in what the follower has merged.
    known: Vec<Vec<KnownSeries>>,
    /// The names that several families have, with the forms of these.
    conflicts: BTreeMap<String, Vec<String>>,
    /// The series to send.
    due: BTreeSet<SeriesPosition>,
    /// Series that have gone, of which that is still to be said.
    ended: Vec<Arc<Series>>,
    /// The start time of the values, from the first look that finds counts.
    start: Start,
    /// What this receiver has sent, also before a reload.
    sent: Arc<SentState>,
    /// See [`Cells::finished`]. `None`: it has changed since the last time.
    finished: Option<u64>,
    retry: Option<Instant>,
    problems: BTreeMap<PathBuf, String>,
    /// The memory of the series and of the problems, in bytes.
    of_series: usize,
    of_problems: usize,
    /// The last error of the merge. A repeated one is logged once.
    last_error: Option<String>,
    /// The merges, one after the other, for which another process had the lock.
    busy_folds: usize,
    /// The files that the log may name until the next scan, and those that it has not named since the last one.
    lines_left: usize,
    unnamed: usize,
}

/// A series, and the part of it that the pipelines have accepted.
struct KnownSeries {
    series: Arc<Series>,
    sent: Option<Cell>,
    /// Whether it was due when the numbers of the series changed.
    was_due: bool,
    /// A series of an earlier family has the same identity, so this one is not sent.
    is_hidden: bool,
    /// The pipelines have refused it permanently the last time.
    is_refused: bool,
}

/// Counts over all directories of a receiver.
#[derive(Default)]
pub(super) struct DirectoryStats {
    pub(super) alive: usize,
    pub(super) dead: usize,
    pub(super) series: usize,
    pub(super) problems: usize,
    pub(super) refused: Refused,
    pub(super) without_room: usize,
    pub(super) without_files: usize,
    pub(super) locked: usize,
}

impl DirectoryStats {
    pub(super) fn add(&mut self, cells: &Cells) {
        for process in cells.follower.processes() {
            if process.alive {
                self.alive += 1;
            } else {
                self.dead += 1;
            }
            self.refused.series = self.refused.series.saturating_add(process.refused.series);
            self.refused.room = self.refused.room.saturating_add(process.refused.room);
            self.refused.invalid = self.refused.invalid.saturating_add(process.refused.invalid);
        }
        self.series += cells.known.iter().map(Vec::len).sum::<usize>();
        self.problems += cells.problems.len();
        self.without_room += cells.follower.without_room();
        self.without_files += cells.follower.without_files();
        self.locked += usize::from(cells.busy_folds >= BUSY_FOLDS);
    }
}

/// The memory of a directory without files, in bytes.
pub(super) fn empty(path: &Path) -> usize {
    /// The overhead without paths.
    const DIRECTORY: usize = 1024;
    DIRECTORY + 2 * kept::note(path)
}

impl Cells {
    pub(super) fn new(directory: Directory, config: &ShmConfig, receiver: Arc<str>, starts: &Starts) -> Self {
        let path = directory.path().to_owned();
        let term = LEASE.max(config.poll_interval.saturating_mul(LEASE_POLLS));
        let sent = starts.sent(&path, &receiver);
        Self {
            receiver,
            follower: Follower::new(directory),
            lease: sent.lease(term),
            sent,
            finished: None,
            term,
            is_alive: false,
            is_of_pod: !pods::attributes_of(&path).is_empty(),
            repeats: Repeats::new(config.refresh),
            known: Vec::new(),
            conflicts: BTreeMap::new(),
            due: BTreeSet::new(),
            ended: Vec::new(),
            start: starts.of(&path),
            retry: None,
            problems: BTreeMap::new(),
            of_series: 0,
            of_problems: 0,
            last_error: None,
            busy_folds: 0,
            lines_left: MOST_LINES,
            unnamed: 0,
            path,
        }
    }

    /// The approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        empty(&self.path) + self.follower.bytes() + self.of_series + self.of_problems
    }

    /// The attributes of its source. `None`: it has no series.
    pub(super) fn source(&self) -> Option<&Attributes> {
        let known = self.known.iter().flatten().next()?;
        Some(&known.series.resource.attributes)
    }

    /// Some of the metrics on whose form its processes disagree, for people.
    pub(super) fn conflicts(&self) -> impl Iterator<Item = String> {
        /// Metrics of a directory, and forms of a metric.
        const MOST: usize = 5;
        self.conflicts.iter().take(MOST).map(move |(name, forms)| {
            let forms: Vec<_> = forms.iter().take(MOST).map(String::as_str).collect();
            let path = self.path.display();
            printable(&format!(
                "{path}: `{name}` is {}: the values are not added up, and one series may hide another. Let all processes \
                 of the directory use one instrument, mode and unit, or other names",
                forms.join(", and ")
            ))
        })
    }

    /// The number of these metrics.
    pub(super) fn conflicting_families(&self) -> usize {
        self.conflicts.len()
    }

    /// Sends what has changed, and at intervals also what has not. It accepts new series of the files as far as there is room.
    pub(super) fn poll(&mut self, entry: &Entry, now: Instant, kept: &mut Kept) {
        self.follower.limit_files(kept.share_of_a_file());
        let changes = self.follower.look_within(&mut |bytes| kept.take(bytes, now));
        self.report(changes.problems);
        if changes.all || !changes.series.is_empty() {
            self.finished = None;
        }
        let was_alive = self.is_alive;
        let mut has_news = false;
        if changes.all {
            self.is_alive = self.follower.processes().iter().any(|process| process.alive);
            has_news = self.match_series();
        } else {
            self.due.extend(changes.series);
        }
        let is_first = !self.repeats.has_begun();
        let before = self.sent.finished();
        // The receiver before a reload has sent just this.
        let is_sent =
            is_first && !self.is_alive && self.is_of_pod && before != 0 && before == self.contents();
        if self.is_alive {
            self.extend_lease(was_alive);
        } else if !was_alive && has_news && !is_sent && (!is_first || before != 0) {
            self.show_last_counts();
        }
        if is_sent {
            // As for repeats, the pod may have been deleted.
            self.mark_all_sent();
        }
        if self.retry.is_none_or(|at| now >= at) {
            if !self.is_alive && self.is_of_pod {
                // The pod may have been deleted. `k8sattributes` would give its series other identities, whose totals count
                // again.
                self.repeats.pause(now);
            } else {
                self.repeats.add(now, &self.known, &mut self.due);
            }
            self.retry = self.send(entry).err().map(|delay| now + delay);
        }
        let finished = self.finished();
        self.sent.set_finished(finished);
    }

    /// The hash of its contents, if it is of a pod, its processes are dead, and the pipelines have taken all that they have
    /// counted; else 0.
    fn finished(&mut self) -> u64 {
        let is_sent = self.due.is_empty() && self.ended.is_empty();
        if self.is_alive || !self.is_of_pod || !is_sent || !self.is_read_whole() {
            return 0;
        }
        if let Some(known) = self.finished {
            return known;
        }
        let is_refused = self.known.iter().flatten().any(|known| known.is_refused);
        let finished = if is_refused { 0 } else { self.contents() };
        self.finished = Some(finished);
        finished
    }

    /// Whether all files and series were read.
    fn is_read_whole(&self) -> bool {
        self.problems.is_empty() && self.follower.without_room() == 0 && self.follower.without_files() == 0
    }

    /// A hash over all series that are shown and their values, in any order; not 0.
    fn contents(&self) -> u64 {
        let mut contents = 0u64;
        for (family_at, family) in self.known.iter().enumerate() {
            for (series_at, known) in family.iter().enumerate() {
                if let Some((spec, cell)) = self.found(family_at, series_at)
                    && !known.is_hidden
                {
                    contents = contents.wrapping_add(series::hash(&known.series, cell, &spec.kind));
                }
            }
        }
        contents.max(1)
    }

    /// A process has come, counted and gone between two looks. Composites take its counts from a living source only.
    fn show_last_counts(&mut self) {
        if self.lease.is_ended() {
            self.lease = self.sent.renew_lease(self.term);
        } else if self.lease.is_dead() {
            self.lease.touch(unix_now());
        }
    }

    /// A process of the directory lives.
    fn extend_lease(&mut self, was_alive: bool) {
        if !was_alive {
            if self.lease.is_ended() {
                self.lease = self.sent.renew_lease(self.term);
            }
            // Components may have forgotten the source, and its values may be as before.
            self.repeats.restart();
        }
        self.lease.touch(unix_now());
    }

    /// Notes whether the directory is gone, and its source with it.
    pub(super) fn note_whether_gone(&self) {
        let is_gone = !self.is_alive && !self.path.try_exists().unwrap_or(true);
        if is_gone && !self.lease.is_ended() {
            self.lease.end();
        }
    }

    /// Whether its directory is gone, and all is said about it. A directory that comes there again is another one.
    pub(super) fn is_over(&self) -> bool {
        let is_said = self.due.is_empty() && self.ended.is_empty() && self.known.iter().all(Vec::is_empty);
        self.lease.is_ended() && is_said && !self.path.try_exists().unwrap_or(true)
    }

    /// Notes in the series that they are due, because their numbers change. Those that the round has not reached are due too.
    fn note_due(&mut self) {
        self.repeats.add_rest(&self.known, &mut self.due);
        for (family, series) in std::mem::take(&mut self.due) {
            let known = self.known.get_mut(family).and_then(|all| all.get_mut(series));
            known.into_iter().for_each(|known| known.was_due = true);
        }
    }

    /// Takes over what dead processes have counted.
    pub(super) fn fold(&mut self, grace: Duration, kept: &mut Kept) {
        let is_someone_dead = self.follower.processes().iter().any(|process| !process.alive);
        if !is_someone_dead && !self.follower.is_start_due() {
            self.busy_folds = 0;
            return;
        }
        let receiver = &*self.receiver;
        // The merge frees memory, because files of dead processes are removed.
        let mut room = |bytes| kept.take_in_any_case(bytes);
        match self.follower.fold_within(grace, &mut room) {
            Ok(folded) => {
                self.last_error = None;
                self.busy_folds = if folded.busy { self.busy_folds + 1 } else { 0 };
                if self.busy_folds == BUSY_FOLDS {
                    tracing::warn!(
                        receiver,
                        directory = %printable_path(&self.path),
                        "another process keeps the lock of the merge"
                    );
                }
                for process in &folded.processes {
                    tracing::info!(
                        receiver,
                        directory = %printable_path(&self.path),
                        %process,
                        "merged the counts of a dead process"
                    );
                }
                metrics::counter!("tidegate_shm_folded_processes_total", "receiver" => self.receiver.clone())
                    .increment(folded.processes.len() as u64);
            }
            Err(error) => {
                let error = printable(&error.to_string());
                if self.last_error.as_ref() != Some(&error) {
                    tracing::warn!(
                        receiver,
                        directory = %printable_path(&self.path),
                        %error,
                        "the files of dead processes could not be merged"
                    );
                    self.last_error = Some(error);
                }
            }
        }
    }

    /// Lets the log name further files that are not read.
    pub(super) fn renew_lines(&mut self) {
        if self.unnamed > 0 {
            tracing::warn!(
                receiver = &*self.receiver,
                directory = %printable_path(&self.path),
                others = self.unnamed,
                "further files are not read"
            );
        }
        (self.lines_left, self.unnamed) = (MOST_LINES, 0);
    }

    /// Says of each file once why it is not read, up to a number of lines.
    fn report(&mut self, problems: Vec<Problem>) {
        let found: BTreeMap<_, _> = problems
            .into_iter()
            .map(|problem| (problem.path, problem.why))
            .collect();
        for (path, why) in &found {
            if self.problems.get(path) == Some(why) {
                continue;
            }
            if self.lines_left == 0 {
                self.unnamed += 1;
                continue;
            }
            self.lines_left -= 1;
            tracing::warn!(receiver = &*self.receiver, file = %printable_path(path), why, "not read");
        }
        let bytes = found.iter().map(|(path, why)| kept::note(path) + why.len());
        self.of_problems = bytes.sum();
        self.problems = found;
    }

    /// Finds the series of what is merged now among those that are known. Returns whether a value is not the one that was sent.
    fn match_series(&mut self) -> bool {
        let found = || self.follower.start_ns(wall_now());
        if let Some(start) = self.start.get().copied().or_else(found) {
            // The first one stays, whatever files come later: with another one, an `aggregate` counts the totals again.
            let start = *self.start.get_or_init(|| start);
            self.follower.keep_start(start);
        }
        let resource = series::resource(&self.path, self.follower.resource());
        self.note_due();
        let is_same_resource = |known: &KnownSeries| known.series.resource.attributes == resource.attributes;
        let mut before: HashMap<_, KnownSeries> = HashMap::new();
        let known = std::mem::take(&mut self.known).into_iter().flatten();
        for known in known.filter(|known| !known.is_hidden) {
            if is_same_resource(&known) {
                _ = before.insert(series::key(&known.series), known);
            } else {
                self.ended.push(known.series);
            }
        }
        self.conflicts = series::conflicts(&self.follower.merged().families);
        // Equal series can only be those of families with one name.
        let mut shown = HashSet::new();
        let (mut bytes, mut has_news) = (0, false);
        for (family_at, family) in self.follower.merged().families.iter().enumerate() {
            let metric = series::metric(&family.spec);
            let is_contested = self.conflicts.contains_key(&family.spec.name);
            let mut all = Vec::with_capacity(family.series.len());
            for (series_at, found) in family.series.iter().enumerate() {
                let series = series::series(&resource, &metric, &found.labels);
                let is_hidden = is_contested && !shown.insert(series::key(&series));
                let before = if is_hidden {
                    None
                } else {
                    before.remove(&series::key(&series))
                };
                let was_due = before.as_ref().is_some_and(|before| before.was_due);
                let is_refused = before.as_ref().is_some_and(|before| before.is_refused);
                let (series, sent) = match before {
                    Some(before) if before.series.metric == series.metric => (before.series, before.sent),
                    // It has another help text.
                    Some(before) => (series, before.sent),
                    None => (series, None),
                };
                let known = KnownSeries {
                    series,
                    sent,
                    was_due: false,
                    is_hidden,
                    is_refused,
                };
                let is_new = !is_hidden && known.sent.as_ref() != Some(&found.value);
                if is_new || was_due {
                    self.due.insert((family_at, series_at));
                }
                has_news |= is_new;
                bytes += series::bytes(&known.series, &family.spec.kind);
                all.push(known);
            }
            self.known.push(all);
        }
        self.of_series = bytes;
        self.forget_ends_of_known();
        self.ended.extend(before.into_values().map(|known| known.series));
        has_news
    }

    /// Series whose end the pipelines have refused may be there again. Their end must not come after their values.
    fn forget_ends_of_known(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let known = self.known.iter().flatten().filter(|known| !known.is_hidden);
        let known: HashMap<_, _> = known
            .map(|known| (series::key(&known.series), &known.series))
            .collect();
        self.ended.retain(|ended| {
            let known = known.get(&series::key(ended));
            known.is_none_or(|known| known.resource.attributes != ended.resource.attributes)
        });
    }

    /// `Err` is the time to wait: due points stay due.
    fn send(&mut self, entry: &Entry) -> Result<(), Duration> {
        if self.is_alive {
            self.send_ends(entry)?;
            return self.send_due(entry);
        }
        // Composites take its last counts from a living source only. A query that finds no gauge must find a dead source.
        self.send_due(entry)?;
        if !self.lease.is_dead() {
            self.lease.suspend();
        }
        self.send_ends(entry)
    }

    fn send_ends(&mut self, entry: &Entry) -> Result<(), Duration> {
        while !self.ended.is_empty() {
            let some = self.ended.len().min(PUSH_POINTS);
            let ends = self.ended.iter().take(some);
            let points = ends.map(|series| self.point(series, Value::NoRecordedValue));
            push(entry, points.collect(), &self.lease)?;
            self.ended.drain(..some);
        }
        Ok(())
    }

    fn send_due(&mut self, entry: &Entry) -> Result<(), Duration> {
        while !self.due.is_empty() {
            let some: Vec<_> = self.due.iter().take(PUSH_POINTS).copied().collect();
            let points: Vec<_> = some.iter().filter_map(|place| self.newest(*place)).collect();
            let is_taken = points.is_empty() || push(entry, points, &self.lease)?;
            self.finished = None;
            for place in some {
                self.due.remove(&place);
                self.mark_sent(place, is_taken);
            }
        }
        Ok(())
    }

    fn newest(&self, (family, series): SeriesPosition) -> Option<Point> {
        let known = self.known.get(family)?.get(series)?;
        if known.is_hidden {
            return None;
        }
        let (spec, cell) = self.found(family, series)?;
        Some(self.point(&known.series, series::value(cell, &spec.kind)))
    }

    fn found(&self, family: usize, series: usize) -> Option<(&Arc<FamilySpec>, &Cell)> {
        let FamilyValues { spec, series: all } = self.follower.merged().families.get(family)?;
        Some((spec, &all.get(series)?.value))
    }

    fn mark_all_sent(&mut self) {
        for position in std::mem::take(&mut self.due) {
            self.mark_sent(position, true);
        }
    }

    /// `is_taken`: the pipelines have not refused it permanently.
    fn mark_sent(&mut self, (family, series): SeriesPosition, is_taken: bool) {
        let cell = self.found(family, series).map(|(_, cell)| cell.clone());
        let known = self.known.get_mut(family).and_then(|all| all.get_mut(series));
        if let Some(known) = known {
            (known.sent, known.is_refused) = (cell, !is_taken);
        }
    }

    fn point(&self, series: &Arc<Series>, value: Value) -> Point {
        let is_gauge = matches!(series.metric.data, tidegate_engine::Data::Gauge);
        Point {
            series: series.clone(),
            start: self.start.get().copied().filter(|_| !is_gauge).unwrap_or(0),
            time: wall_now(),
            value,
            exemplars: Vec::new(),
        }
    }
}

/// Whether the pipelines take the points, or refuse them permanently. `Err` is the time to wait. The entry counts points that are
/// refused permanently. The receiver offers them again when it sends all series again, or when they change.
fn push(entry: &Entry, points: Vec<Point>, lease: &Arc<Lease>) -> Result<bool, Duration> {
    let batch = Batch {
        lease: Some(lease.clone()),
        ..Batch::new(Points {
            points: points.into(),
        })
    };
    match entry.push(batch) {
        Ok(_) => Ok(true),
        Err(refused) => match refused.retry_after {
            Some(delay) => Err(delay.max(REFUSED_RETRY)),
            None => {
                tracing::error!(
                    why = refused.reason,
                    "the pipelines refuse these cells permanently"
                );
                Ok(false)
            }
        },
    }
}
