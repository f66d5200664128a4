// SPDX-License-Identifier: Apache-2.0

//! The contents of a table as batches, for exporters that can't read tables.

use tidegate_engine::{Data, Point, Reading, Table, UnixNanos, clock};

use super::{Batch, Points};

/// The points of a batch: enough to share its costs, few enough to be queued whole.
const BATCH_POINTS: usize = 8192;

/// The current contents of a table.
pub fn snapshot(table: &Table, now: UnixNanos) -> impl Iterator<Item = Batch> + use<> {
    let mut batches: Vec<Vec<Point>> = Vec::new();
    table.read(now, &mut |reading| {
        let full = batches.last().is_none_or(|batch| batch.len() >= BATCH_POINTS);
        if full {
            batches.push(Vec::new());
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(point(reading, now));
        }
    });
    let owner = table.owner().clone();
    batches.into_iter().map(move |points| Batch {
        snapshot_of: Some(owner.clone()),
        is_snapshot: true,
        ..Batch::new(Points {
            points: points.into(),
        })
    })
}

fn point(reading: Reading<'_>, now: UnixNanos) -> Point {
    // A total is valid until now, whenever it last grew; a gauge was valid when it was measured.
    let time = match reading.series.metric.data {
        Data::Gauge => reading.time,
        _ => clock::wall(now).max(reading.time),
    };
    Point {
        series: reading.series.clone(),
        start: reading.start,
        time,
        value: reading.value.clone(),
        exemplars: reading.exemplars.to_vec(),
    }
}
