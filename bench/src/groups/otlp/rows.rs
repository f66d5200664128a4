// SPDX-License-Identifier: Apache-2.0

//! Figures of a job: those of each subject, and tidegate against each of the others.

use super::jobs::{Job, Limit};
use super::turns::{LoadWindow, SubjectMeasurement};
use crate::BenchError;
use crate::report::{Budget, Row};
use crate::stats::Samples;
use crate::subject::SubjectRole;

/// With so much of its core, the load is what limits the points a second, %.
const BOUND_BY_LOAD: f64 = 95.0;

/// The subject that budgets are for.
const TIDEGATE: &str = "tidegate";

pub(in crate::groups) fn rows(job: &Job, measured: &[SubjectMeasurement<'_>]) -> Vec<Row> {
    let mut rows: Vec<Row> = measured.iter().flat_map(|one| own(job, one)).collect();
    if let Some(tidegate) = measured.iter().find(|one| one.subject.name == TIDEGATE) {
        let others = measured
            .iter()
            .filter(|one| one.subject.role != SubjectRole::Ours);
        rows.extend(against(job, tidegate, &others.collect::<Vec<_>>()));
    }
    rows.into_iter().map(|row| row.of(job.name)).collect()
}

/// The configurations of subjects, and the subjects that were omitted.
pub(in crate::groups) fn notes(
    job: &Job,
    measured: &[SubjectMeasurement<'_>],
    omitted: Vec<String>,
) -> Result<Vec<Row>, BenchError> {
    let mut notes = Vec::new();
    for SubjectMeasurement { subject, .. } in measured {
        let mut note = format!(
            "{}: `{}`",
            subject.version(),
            subject.command_line(&subject.config(job.task)?)?
        );
        if let Some(remark) = subject.remark(job.task) {
            note += &format!(" ({remark})");
        }
        notes.push(Row::note(subject.name.clone(), note).of(job.name));
    }
    let omitted = omitted
        .into_iter()
        .map(|why| Row::note("omitted", why).of(job.name));
    notes.extend(omitted);
    Ok(notes)
}

/// Figures of one subject.
fn own(job: &Job, measured: &SubjectMeasurement<'_>) -> Vec<Row> {
    let name = &measured.subject.name;
    let is_tidegate = name == TIDEGATE;
    let place = |row: Row, column: &'static str| row.placed(name, column);
    let column = |of: fn(&LoadWindow) -> f64| Samples::new(measured.windows.iter().map(of));
    let row = |what: &str, samples, unit| Row::median(format!("{}, {name}: {what}", job.name), samples, unit);
    let one = |what: &str, value, unit| Row::value(format!("{}, {name}: {what}", job.name), value, unit);
    let limit = |row: Row, of: fn(&Limit) -> Option<f64>| match job.limits.iter().find_map(of) {
        Some(limit) if is_tidegate => row.budget(Budget::AtMost(limit)),
        _ => row,
    };
    let share = column(|window| window.load_share);
    let rate_unit = if share.median() >= BOUND_BY_LOAD {
        "/s, bound by the load"
    } else {
        "/s"
    };
    let cpu = row("processor time a point", column(|window| window.cpu_ns), "ns");
    let cpu = limit(cpu, |limit| match limit {
        Limit::Cpu(limit) => Some(*limit),
        _ => None,
    });
    let peak = limit(
        one("peak memory", measured.peak_mib, "MiB"),
        |limit| match limit {
            Limit::Peak(limit) => Some(*limit),
            _ => None,
        },
    );
    let lost = one("points lost", measured.lost, "");
    let lost = if is_tidegate {
        lost.budget(Budget::AtMost(0.0))
    } else {
        lost
    };
    let mut rows = vec![
        place(cpu, "ns a point"),
        place(
            row("points a second", column(|window| window.rate), rate_unit),
            "points a second",
        ),
        place(
            row("share of its core that the load took", share, "%"),
            "load's core",
        ),
        place(one("memory when idle", measured.idle_mib, "MiB"), "idle"),
        place(peak, "peak"),
    ];
    if !measured.ages.is_empty() {
        let age = |of: fn(&(f64, f64)) -> f64| Samples::new(measured.ages.iter().map(of));
        let p50 = row("age at half that rate, p50", age(|ages| ages.0), "ms");
        let p99 = row("age at half that rate, p99", age(|ages| ages.1), "ms");
        rows.extend([place(p50, "age p50"), place(p99, "age p99")]);
    }
    let paced = measured.paced_peak_mib;
    rows.extend(paced.map(|peak| one("peak memory with half load behind it", peak, "MiB")));
    rows.push(place(lost, "lost"));
    let refused = one(
        "requests refused and sent again",
        measured.totals.refused as f64,
        "",
    );
    rows.push(place(refused, "refused"));
    if measured.totals.failed > 0 {
        rows.push(one("requests that failed", measured.totals.failed as f64, ""));
    }
    rows
}

/// Processor time of tidegate against each of the others.
fn against(job: &Job, tidegate: &SubjectMeasurement<'_>, others: &[&SubjectMeasurement<'_>]) -> Vec<Row> {
    let named = |other: &SubjectMeasurement<'_>| {
        let limits = job.limits.iter();
        let mut limits = limits.filter_map(|limit| match limit {
            Limit::Against(name, limit) if *name == other.subject.name => Some(*limit),
            _ => None,
        });
        let name = format!(
            "{}, tidegate against {}: processor time",
            job.name, other.subject.name
        );
        let row = Row::median(name, ratios(tidegate, other), "x");
        match limits.next() {
            Some(limit) => row.budget(Budget::AtMost(limit)),
            None => row,
        }
    };
    let mut rows: Vec<Row> = others.iter().map(|other| named(other)).collect();
    let best = job.limits.iter().find_map(|limit| match limit {
        Limit::AgainstBestRust(limit) => Some(*limit),
        _ => None,
    });
    if let Some((limit, best)) = best.zip(best_rust(others)) {
        let name = format!(
            "{}, tidegate against the best peer in Rust, {}: processor time",
            job.name, best.subject.name
        );
        let row = Row::median(name, ratios(tidegate, best), "x");
        rows.push(row.budget(Budget::AtMost(limit)));
    }
    rows
}

fn best_rust<'a>(others: &[&'a SubjectMeasurement<'a>]) -> Option<&'a SubjectMeasurement<'a>> {
    let peers = others
        .iter()
        .filter(|other| other.subject.role == SubjectRole::Peer && other.subject.is_rust);
    let cost =
        |one: &SubjectMeasurement<'_>| Samples::new(one.windows.iter().map(|window| window.cpu_ns)).median();
    peers.copied().min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// Processor time of one against another's.
fn ratios(one: &SubjectMeasurement<'_>, other: &SubjectMeasurement<'_>) -> Samples {
    Samples::ratios(&one.windows, &other.windows, |window| window.cpu_ns)
}
