// SPDX-License-Identifier: Apache-2.0

//! `ring inspect`: everything in a file, without moving anything in it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_ring::{Batch, Inspection, KINDS, KNOWN_KINDS, MpStore, Options, Poll, Reader, inspect};

use super::tail::{LineFormat, print};
use crate::commands::Failure;
use crate::print_line;

/// Arguments of `ring inspect`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Consumes nothing: the command opens the file read-only. The exit code is 1 if the file is not a ring or a \
store.\n\nExample:\n  \
tidegate ring inspect /run/nixl/agent_0 --events 10"
)]
pub(super) struct InspectArgs {
    /// A ring file or a multi-process store
    file: PathBuf,
    /// Largest number of waiting events to show, oldest first
    #[arg(long, default_value_t = 20)]
    events: usize,
    /// Print JSON lines: the header first, then the events. A store is one object
    #[arg(long)]
    json: bool,
}

/// Shows a ring or a store.
pub(super) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    if MpStore::is_store_name(&name) {
        show_store(args)
    } else {
        show_ring(args)
    }
}

fn show_ring(args: &InspectArgs) -> Result<(), Failure> {
    let found = inspect(&args.file)?;
    if args.json {
        print_line!("{}", header_of(&args.file, &found));
    } else {
        print_header(&args.file, &found);
    }
    let ring = found.verdict;
    ring.map_err(|reject| Failure::Message(format!("not a ring: {reject}")))?;
    let mut reader = Reader::open(
        &args.file,
        Options {
            consume: false,
            max_events: args.events.max(1),
        },
    )?;
    let mut batch = Batch::default();
    if args.events > 0
        && let Poll::Events(_) = reader.read(&mut batch)?
    {
        print(
            &batch,
            reader.names(),
            if args.json {
                LineFormat::Json
            } else {
                LineFormat::Line
            },
        );
    }
    Ok(())
}

fn print_header(file: &Path, found: &Inspection) {
    let header = &found.header;
    match found.verdict {
        Ok(ring) => print_line!("verdict:          a ring, version {}", ring.layout.label()),
        Err(reject) => print_line!("verdict:          not a ring: {reject}"),
    }
    print_line!(
        "file:             {} ({} bytes, uid {})",
        file.display(),
        found.file_size,
        found.owner_uid
    );
    print_line!(
        "version:          {} (expected_version {})",
        header.version,
        header.expected_version
    );
    print_line!("capacity:         {} (mask {:#x})", header.capacity, header.mask);
    print_line!(
        "positions:        write {} read {}",
        header.write_pos,
        header.read_pos
    );
    let Ok(ring) = found.verdict else {
        return;
    };
    print_line!(
        "layout:           {} ({} bytes an event)",
        ring.layout.label(),
        ring.layout.event_size()
    );
    let full = if is_full(found) {
        ", FULL: newer events are being lost"
    } else {
        ""
    };
    print_line!(
        "waiting:          {} of {}{full}",
        found.readable(),
        ring.capacity - 1
    );
}

/// Whether all slots of a ring that can have an event have one.
fn is_full(found: &Inspection) -> bool {
    let ring = found.verdict.ok();
    ring.is_some_and(|ring| found.readable() == ring.capacity - 1)
}

/// The header of a ring, as the first of the JSON lines.
fn header_of(file: &Path, found: &Inspection) -> Value {
    let (header, ring) = (&found.header, found.verdict.ok());
    json!({
        "is_ring": ring.is_some(),
        "reason": found.verdict.err().map(|reject| reject.to_string()),
        "file": file.display().to_string(),
        "file_size": found.file_size,
        "owner_uid": found.owner_uid,
        "version": header.version,
        "expected_version": header.expected_version,
        "capacity": header.capacity,
        "mask": header.mask,
        "write_pos": header.write_pos,
        "read_pos": header.read_pos,
        "layout": ring.map(|ring| ring.layout.label()),
        "event_size": ring.map(|ring| ring.layout.event_size()),
        "waiting": found.readable(),
        "is_full": is_full(found),
    })
}

/// A store as one JSON object.
fn store_object(path: &Path, store: &MpStore) -> Result<Value, Failure> {
    let (identity, totals) = (store.identity(), store.snapshot()?);
    let metrics = (0u16..).zip(KINDS.iter().take(KNOWN_KINDS));
    let metrics = metrics.filter_map(|(index, kind)| {
        let at = usize::from(index);
        let (total, last) = (totals.counters.get(at)?, totals.gauges.get(at)?);
        let histogram = totals.histogram(index).filter(|_| kind.histogram.is_some());
        Some(json!({
            "name": kind.name,
            "total": total,
            "last": kind.last.is_some().then_some(last),
            "observations": histogram.map(|histogram| histogram.count()),
        }))
    });
    Ok(json!({
        "file": path.display().to_string(),
        "owner_uid": store.owner_uid(),
        "agent": identity.agent_name,
        "instance": identity.instance,
        "pid": identity.pid,
        "hostname": identity.hostname,
        "local_rank": identity.local_rank,
        "alive": store.alive()?,
        "metrics": metrics.collect::<Vec<_>>(),
    }))
}

fn show_store(args: &InspectArgs) -> Result<(), Failure> {
    let path = &args.file;
    let store = MpStore::open(path)?;
    if args.json {
        print_line!("{}", store_object(path, &store)?);
        return Ok(());
    }
    let (identity, totals) = (store.identity(), store.snapshot()?);
    print_line!("file:             {} (uid {})", path.display(), store.owner_uid());
    print_line!(
        "agent:            {} (instance {}, pid {})",
        identity.agent_name,
        identity.instance,
        identity.pid
    );
    print_line!("hostname:         {}", identity.hostname);
    print_line!(
        "local rank:       {}",
        identity.local_rank.as_deref().unwrap_or("-")
    );
    print_line!("alive:            {}", store.alive()?);
    for (index, kind) in (0u16..).zip(KINDS.iter().take(KNOWN_KINDS)) {
        let at = usize::from(index);
        let (Some(total), Some(last)) = (totals.counters.get(at), totals.gauges.get(at)) else {
            continue;
        };
        let last = if kind.last.is_some() {
            format!(", last {last}")
        } else {
            String::new()
        };
        let count = totals.histogram(index).filter(|_| kind.histogram.is_some());
        let count = count
            .map(|histogram| format!(", {} observations", histogram.count()))
            .unwrap_or_default();
        print_line!("{:<32} {total}{last}{count}", kind.name);
    }
    Ok(())
}
