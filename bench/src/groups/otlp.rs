// SPDX-License-Identifier: Apache-2.0

//! OTLP in, OTLP out, through tidegate, through hops that know nothing of it and through peers: processor time a point,
//! points a second, memory, age and loss. Gateways have one core, the load and the sinks the other.

pub(super) mod jobs;
pub(super) mod rows;
pub(super) mod turns;

use std::path::Path;
use std::time::Duration;

use jobs::{JOBS, Job};
use turns::LoadTimes;

use crate::BenchError;
use crate::report::Row;
use crate::selection::{self, Selection};
use crate::subject;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let asked = selection::get();
    let (mut subjects, missing) = subject::all(binary)?;
    subjects.retain(|subject| asked.has_subject(&subject.name));
    let mut rows = Vec::new();
    let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
    if let Some(unknown) = asked.jobs("otlp").find(|job| !names.contains(job)) {
        return Err(format!("no job `{unknown}`; there are: {}", names.join(", ")).into());
    }
    let jobs: Vec<&Job> = JOBS
        .iter()
        .filter(|job| asked.has_job("otlp", job.name))
        .collect();
    let times = times(asked, jobs.len());
    for (index, &job) in jobs.iter().enumerate() {
        super::note_job(job.name, index, jobs.len());
        let (measured, omitted) = super::runtime()?.block_on(turns::measure(job, &subjects, times))?;
        println!("  {}", job.name);
        for one in &measured {
            println!("    {one}");
        }
        let omitted = missing.iter().cloned().chain(omitted).collect();
        rows.extend(rows::notes(job, &measured, omitted)?);
        rows.extend(rows::rows(job, &measured));
    }
    Ok(rows)
}

/// Many short windows, so that what the host does for a while falls on all alike; more of them for a job by itself.
fn times(asked: &Selection, jobs: usize) -> LoadTimes {
    LoadTimes {
        window: asked.window.unwrap_or(Duration::from_millis(400)),
        rounds: asked.rounds.unwrap_or(if jobs == 1 { 25 } else { 9 }),
        paced_rounds: 2,
    }
}
