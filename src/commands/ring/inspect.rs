// SPDX-License-Identifier: Apache-2.0

//! `ring inspect`: everything in a file, without moving anything in it.

use std::path::{Path, PathBuf};

use tidegate_ring::{Batch, KINDS, KNOWN_KINDS, MpStore, Options, Poll, Reader, inspect};

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
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
}

/// Shows a ring or a store.
pub(super) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    if MpStore::is_store_name(&name) {
        show_store(&args.file)
    } else {
        show_ring(args)
    }
}

fn show_ring(args: &InspectArgs) -> Result<(), Failure> {
    let found = inspect(&args.file)?;
    let header = &found.header;
    match found.verdict {
        Ok(ring) => print_line!("verdict:          a ring, version {}", ring.layout.label()),
        Err(reject) => print_line!("verdict:          not a ring: {reject}"),
    }
    print_line!(
        "file:             {} ({} bytes, uid {})",
        args.file.display(),
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
    let ring = found
        .verdict
        .map_err(|reject| Failure::Message(format!("not a ring: {reject}")))?;
    print_line!(
        "layout:           {} ({} bytes an event)",
        ring.layout.label(),
        ring.layout.event_size()
    );
    let waiting = found.readable();
    let full = if waiting == ring.capacity - 1 {
        ", FULL: newer events are being lost"
    } else {
        ""
    };
    print_line!("waiting:          {waiting} of {}{full}", ring.capacity - 1);
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

fn show_store(path: &Path) -> Result<(), Failure> {
    let store = MpStore::open(path)?;
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
