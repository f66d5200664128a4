// SPDX-License-Identifier: Apache-2.0

//! Removed cells free their memory, and old references find no new cell.

use super::*;
use crate::{Attributes, Data, Pattern, Rule};

const CAPS: Caps = Caps {
    series: usize::MAX,
    per_metric: usize::MAX,
    bytes: usize::MAX,
};

fn series(number: i64) -> Series {
    Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: "m".into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        }),
        attributes: [("number", number)].into_iter().collect(),
    }
}

#[test]
fn a_past_burst_leaves_no_memory_and_old_references_find_no_new_cell() {
    let cells = Cells::new(10);
    let rule = Rule::new(Pattern::Glob("*".into()));
    let add = |from: i64, now: u64| -> Vec<CellRef> {
        let numbers = from..from + 1000;
        numbers
            .map(|number| {
                cells
                    .resolve(
                        series(number),
                        CAPS,
                        |_| SeriesState::new(Data::Gauge, &rule, 0, now),
                        now,
                    )
                    .unwrap()
            })
            .collect()
    };
    let slots = || -> usize {
        (0..cells.chunks.chunks())
            .map(|chunk| cells.chunks.lock(chunk).capacity())
            .sum()
    };
    let mut old = Vec::new();
    for burst in 0..5 {
        let now = 1 + 100 * burst;
        let new = add(1000 * burst as i64, now);
        for at in &new {
            assert!(cells.cursor().get(*at).is_some() && !old.contains(at));
        }
        assert!(old.iter().all(|at| cells.cursor().get(*at).is_none()));
        old.extend(new);
        assert_eq!((cells.expire(now + 50), cells.len()), (1000, 0));
        assert!(slots() <= CHUNK as usize, "{}", slots());
    }
    assert_eq!(cells.chunks.used(), 1000, "places are used again");
}
