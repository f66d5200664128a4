// SPDX-License-Identifier: Apache-2.0

//! Start-up and idle memory.

use std::path::Path;
use std::time::Duration;

use super::agents;
use crate::BenchError;
use crate::gateway::Gateway;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const RUNS: usize = 11;
/// After this time, the work that the start left running has ended.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let directory = agents::directory()?;
    let config = agents::config(directory.path());
    let mut starts = Vec::new();
    for _ in 0..RUNS {
        let took = Gateway::start(binary, &config)?.first_scrape()?;
        starts.push(took.as_secs_f64() * 1e3);
    }
    let gateway = agents::gateway(binary, directory.path())?;
    std::thread::sleep(SETTLE);
    let (resident, _) = gateway.process().memory_mib()?;
    let before = gateway.process().cpu()?;
    std::thread::sleep(SETTLE);
    let idle = (gateway.process().cpu()? - before).as_secs_f64() / SETTLE.as_secs_f64();
    Ok(vec![
        Row::median("start to first answered scrape", Samples::new(starts), "ms")
            .budget(Budget::AtMost(50.0)),
        Row::value("resident memory, idle", resident, "MiB").budget(Budget::AtMost(15.0)),
        Row::value("processor, idle, of one core", idle * 100.0, "%"),
    ])
}
