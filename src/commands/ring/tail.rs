// SPDX-License-Identifier: Apache-2.0

//! `ring tail`: events as they come.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;
use tidegate_ring::{Batch, Names, Options, Poll, Reader};

use super::until_interrupted;
use crate::commands::{Failure, output};
use crate::print_line;

/// How often an empty ring is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Arguments of `ring tail`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Consumes nothing by default: the gateway and other readers still get every event.\n\nExamples:\n  \
tidegate ring tail /run/nixl/agent_0\n  tidegate ring tail /run/nixl/agent_0 --json | jq .value"
)]
pub(super) struct TailArgs {
    /// The ring file
    file: PathBuf,
    /// Print JSON lines instead of the format of NIXL's own reader
    #[arg(long)]
    json: bool,
    /// Remove the events from the ring
    #[arg(long)]
    consume: bool,
    /// Stop when the ring is empty
    #[arg(long)]
    once: bool,
}

/// How events are printed.
#[derive(Clone, Copy)]
pub(super) enum LineFormat {
    /// As NIXL's `telemetry_reader` does.
    Nixl,
    /// A JSON object a line.
    Json,
    /// A short line.
    Line,
}

/// Prints until interrupted.
pub(super) fn run(args: &TailArgs) -> Result<(), Failure> {
    let format = if args.json {
        LineFormat::Json
    } else {
        LineFormat::Nixl
    };
    let over = until_interrupted()?;
    let mut reader = Reader::open(
        &args.file,
        Options {
            consume: args.consume,
            ..Options::default()
        },
    )?;
    announce(&reader, format);
    let mut batch = Batch::default();
    let mut read = 0;
    while !over.load(Relaxed) && !output::is_over() {
        match reader.read(&mut batch)? {
            Poll::Events(_) => {
                print(&batch, reader.names(), format);
                if output::has_failed() {
                    // The events stay in the ring.
                    break;
                }
                read += batch.len();
                reader.commit();
            }
            Poll::Gone(reason) => {
                eprintln!("tidegate: the ring no longer exists ({})", reason.reason());
                break;
            }
            Poll::Reset { reason, lost } => {
                eprintln!(
                    "tidegate: the ring was reset ({}), {lost} unread events are lost",
                    reason.reason()
                );
            }
            Poll::Idle if args.once => break,
            Poll::Idle | Poll::Settling | Poll::Unreadable(_) => std::thread::sleep(POLL),
        }
    }
    if matches!(format, LineFormat::Nixl) {
        print_line!("\nTotal events read: {read}");
    }
    Ok(())
}

fn announce(reader: &Reader, format: LineFormat) {
    if matches!(format, LineFormat::Nixl) {
        let ring = reader.geometry();
        print_line!(
            "Telemetry buffer {} (version: {})",
            reader.path().display(),
            ring.layout.version()
        );
        print_line!("Buffer capacity: {} events", ring.capacity);
    }
}

/// Prints every event of a batch.
pub(super) fn print(batch: &Batch, names: &Names, format: LineFormat) {
    let mut times = batch.timestamps_us.iter();
    for (kind, value) in batch.kinds.iter().zip(&batch.values) {
        let time = times.next();
        let (name, category) = (names.name(*kind), names.category(*kind));
        match format {
            LineFormat::Nixl => {
                print_line!("\n=== NIXL Telemetry Event ===");
                if let Some(time) = time {
                    print_line!("Timestamp: {time}\nCategory: {category}");
                }
                print_line!("Event name: {name}\nValue: {value}\n===========================");
            }
            LineFormat::Json => print_line!(
                "{}",
                json!({"timestamp_us": time, "category": category.name(), "event_name": name, "value": value,
                    "status": names.status(*kind)})
            ),
            LineFormat::Line => {
                let time = time.map(|time| format!("{time} ")).unwrap_or_default();
                print_line!("  {time}{:<12} {name} = {value}", category.name());
            }
        }
    }
}
