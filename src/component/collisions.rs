//! Series that several processes report under one identity: counted for each component that keeps state, and named in
//! the log.

use tidegate_engine::{Collision, Table};

/// Counts the streams of a table that collide, and logs one that was found since the last call. `label` names the
/// component. Call it about once a second.
pub fn tell(table: &Table, label: &(&'static str, String)) {
    let colliding = table.stats().colliding_streams;
    for (collision, streams) in Collision::ALL.into_iter().zip(colliding) {
        let labels = [label.clone(), ("reason", collision.name().to_owned())];
        metrics::counter!("tidegate_colliding_streams_total", &labels).absolute(streams);
    }
    let Some((collision, series)) = table.take_collided() else {
        return;
    };
    tracing::warn!(
        component = label.1,
        metric = %series.metric.name,
        streams = colliding[collision as usize],
        remedy = "give each process its own service.instance.id; an aggregate rule with `without: [service.instance.id]` adds them up",
        "{}",
        said(collision)
    );
}

fn said(collision: Collision) -> &'static str {
    match collision {
        Collision::Interleaved => {
            "several processes report the same series; their start times tell them apart, so they are added up"
        }
        Collision::Indistinct => {
            "several processes seem to report the same series with the same start time or none; its total may be too high"
        }
        Collision::Forgotten => {
            "a process that was forgotten reports a series again; what it counted before is not added"
        }
    }
}
