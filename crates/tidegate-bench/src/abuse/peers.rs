//! The attacks that are made with OTLP alone, against the OpenTelemetry Collector where it is on PATH: what it takes and
//! what it refuses, with no verdict.

use std::path::Path;

use super::attacks::Attack;
use super::field::{Role, Size};
use super::judge::{self, Verdict};
use crate::Error;
use crate::subject::on_path;

const NAMES: [&str; 2] = ["otelcol-contrib", "otelcol"];

/// Makes them, and prints a table.
pub(super) fn run<'a>(attacks: impl Iterator<Item = &'a Attack>, output: &Path) -> Result<(), Error> {
    let Some((name, binary)) = NAMES.iter().find_map(|name| Some((name, on_path(name)?))) else {
        println!("no peer: neither {} is on PATH", NAMES.join(" nor "));
        return Ok(());
    };
    let mut verdicts = Vec::new();
    // What only the gateway's own processors can be told, it is not told.
    for attack in attacks.filter(|attack| attack.is_otlp && attack.setup.http.is_empty()) {
        println!("{}: {}", attack.name, attack.about);
        verdicts.push(
            match super::attacked(&binary, output, Role::Collector, attack, Size::Full) {
                Ok(verdict) => verdict,
                Err(error) => Verdict::failed(attack.name, &error),
            },
        );
    }
    let table = judge::table(&verdicts);
    println!("\n{name}:\n\n{table}");
    std::fs::create_dir_all(output)?;
    std::fs::write(output.join(format!("{name}.md")), table)?;
    Ok(())
}
