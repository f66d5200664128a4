// SPDX-License-Identifier: Apache-2.0

//! The statements of this producer: the values of its tables, and the windows of its composites.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tidegate_cluster::SentItem;
use tidegate_engine::{
    Attributes, Composite, Data, GaugePolicy, Key, MergeMode, Point, Reading, SubWindow, Table, UnixNanos,
};

/// Everything that the tables have now.
#[derive(Default)]
pub(super) struct Statement {
    pub(super) items: Vec<SentItem>,
    /// Series that an earlier table has too.
    pub(super) duplicates: u64,
    /// Groups of composites that are left out because they hold gauges.
    pub(super) gauges: u64,
    /// Why composites are left out.
    pub(super) notices: BTreeSet<String>,
    seen: HashSet<Key>,
}

impl Statement {
    /// The statement of these tables. Of two tables with one series, the first counts.
    pub(super) fn of(tables: &[Arc<Table>], now: UnixNanos) -> Self {
        let mut statement = Self::default();
        for table in tables {
            statement.add_table(table, now);
        }
        statement
    }

    /// Says which of these tables have added up streams: a stream that changes its gateway counts twice in them.
    pub(super) fn note_added_streams(&mut self, tables: &[Arc<Table>]) {
        for table in tables.iter().filter(|table| table.adds_streams()) {
            let owner = table.owner();
            self.notices.insert(format!(
                "`{owner}` adds up cumulative totals before `streams` can publish them: if a sender changes its gateway, it \
                 counts twice; aggregate behind the `partials` receiver instead"
            ));
        }
    }

    fn add_table(&mut self, table: &Table, now: UnixNanos) {
        // Only absorbed data is wanted, and no arrivals.
        table.flush_and_list_arrivals(table.arrived(), &mut |_, _| {});
        table.each_slot(|_, reading| {
            if let Some(reading) = reading {
                self.add_reading(table, reading);
            }
        });
        for composite in table.attached() {
            self.add_composite(&composite, now);
        }
    }

    fn add_reading(&mut self, table: &Table, reading: Reading<'_>) {
        if !self.seen.insert(Key::of(reading.series)) {
            self.duplicates += 1;
            return;
        }
        let mode = match reading.series.metric.data {
            Data::Gauge => mode_of_gauge(table.gauge_policy(reading.series)),
            Data::Sum { monotonic: false, .. } => MergeMode::Level,
            Data::Sum { .. } | Data::Histogram { .. } | Data::ExponentialHistogram { .. } | Data::Summary => {
                MergeMode::Add
            }
        };
        let point = Point {
            series: reading.series.clone(),
            start: reading.start,
            time: reading.time,
            value: reading.value.clone(),
            exemplars: Vec::new(),
        };
        self.items.push(SentItem::Value(mode, point));
    }

    fn add_composite(&mut self, composite: &Composite, now: UnixNanos) {
        let mut groups: Vec<(Attributes, Vec<SubWindow>)> = Vec::new();
        let exported = composite.export(now, 0, &mut |group, sub_window| match groups.last_mut() {
            Some((last, window)) if *last == *group => window.push(sub_window),
            _ => groups.push((group.clone(), vec![sub_window])),
        });
        match exported {
            Ok(left_out) => self.gauges += left_out as u64,
            Err(why) => drop(self.notices.insert(format!("the composite {why}"))),
        }
        let name = &composite.declaration().name;
        let windows = groups.into_iter().map(|(group, window)| SentItem::Window {
            composite: name.clone(),
            group,
            window,
        });
        self.items.extend(windows);
    }
}

fn mode_of_gauge(policy: GaugePolicy) -> MergeMode {
    match policy {
        GaugePolicy::Last => MergeMode::Last,
        GaugePolicy::Min => MergeMode::Min,
        GaugePolicy::Max => MergeMode::Max,
        GaugePolicy::Mean => MergeMode::Mean,
        GaugePolicy::Sum => MergeMode::Level,
    }
}
