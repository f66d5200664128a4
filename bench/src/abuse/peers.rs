// SPDX-License-Identifier: Apache-2.0

//! The attacks that are made with OTLP alone, on the gateway and on the OpenTelemetry Collector, where it is on PATH, in
//! turn. Both have the same limits; the Collector is judged by what can be seen of it from outside.

use std::path::Path;

use super::attacks::Attack;
use super::field::{AttackedProgram, GO_MEMORY};
use super::{AbuseOptions, keep, run_attack, table};
use crate::progress::LongTask;
use crate::subject::{on_path, version};
use crate::{BenchError, machine};

const NAMES: [&str; 2] = ["otelcol-contrib", "otelcol"];

/// Makes them, and prints a table of both.
pub(super) fn run(
    binary: &Path,
    output: &Path,
    attacks: &[&Attack],
    asked: &AbuseOptions<'_>,
) -> Result<(), BenchError> {
    let Some(collector) = NAMES.iter().find_map(|name| on_path(name)) else {
        println!("no peer: neither {} is on PATH", NAMES.join(" nor "));
        return Ok(());
    };
    let sides = [
        (binary, AttackedProgram::Tidegate),
        (&*collector, AttackedProgram::Collector),
    ];
    let mut pairs = Vec::new();
    // Only the gateway gets the option of OTLP/HTTP that such an attack is on.
    let attacks: Vec<&Attack> = attacks
        .iter()
        .copied()
        .filter(|attack| attack.is_otlp && attack.setup.http.is_empty())
        .collect();
    for (index, attack) in attacks.iter().enumerate() {
        let task = LongTask::new(format!("abuse {} beside the Collector", attack.name));
        let _progress = task.step(index + 1, attacks.len()).begin(String::new);
        pairs.push(sides.map(|(binary, role)| run_attack(binary, output, role, attack, asked.size)));
    }
    let report = format!(
        "{}; {}, `GOMEMLIMIT={GO_MEMORY}`.\n\n{}",
        machine::describe()?,
        version(&collector, &["--version"]),
        table::beside(&pairs)
    );
    println!("\n{report}");
    let part = asked.publish.then_some("results beside the Collector");
    keep(&output.join("beside.md"), &report, part)
}
