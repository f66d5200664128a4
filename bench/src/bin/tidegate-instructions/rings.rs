// SPDX-License-Identifier: Apache-2.0

//! Rings of NIXL: read, made a batch, taken into the table of `aggregate` by the built-in rules.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::batch::Batch;
use tidegate::component::{Consumer, unix_now};
use tidegate::processors;
use tidegate_engine::{EventKind, Events, Instrument, Lease, Schema, Source, SourceId, Values};
use tidegate_ring::{Batch as Columns, Event, Layout, Names, Options, Poll, Reader, Writer};

use crate::otlp::{End, processor};
use crate::{Workload, WorkloadError};

const CAPACITY: u64 = 4_096;
/// As many as fit in a ring of NIXL's default size.
pub(crate) const EVENTS: usize = CAPACITY as usize - 1;

/// The events that NIXL reports of a transfer, in its order: post time, transfer time, bytes, request.
const TRANSFER: [(u16, u64); 4] = [(7, 20), (6, 450), (0, 65_536), (2, 1)];

/// Events that carry their names.
pub(crate) fn v1() -> Result<Box<dyn Workload>, WorkloadError> {
    Ring::set_up(Layout::V1)
}

/// Events that carry numbers.
pub(crate) fn v4() -> Result<Box<dyn Workload>, WorkloadError> {
    Ring::set_up(Layout::V4)
}

/// A ring, filled before each round.
struct Ring {
    writer: Writer,
    reader: Reader,
    columns: Columns,
    source: Arc<Source>,
    schema: Arc<Schema>,
    entry: Arc<dyn Consumer>,
    _directory: TempDir,
}

impl Ring {
    fn set_up(layout: Layout) -> Result<Box<dyn Workload>, WorkloadError> {
        let directory = TempDir::new()?;
        let path = directory.path().join("agent");
        let writer = Writer::create(&path, layout, CAPACITY)?;
        let options = Options {
            consume: true,
            max_events: EVENTS + 1,
        };
        let reader = Reader::open(&path, options)?;
        let (entry, _) = processor(
            &processors::aggregate::FACTORY,
            "{rules: nixl}",
            Arc::<End>::default(),
        )?;
        Ok(Box::new(Self {
            writer,
            schema: Arc::new(schema(reader.names())),
            reader,
            columns: Columns::default(),
            source: Arc::new(Source {
                id: SourceId::next(),
                resource: Arc::default(),
                scope: Arc::default(),
                attributes: [("agent_name", "agent"), ("hostname", "node")]
                    .into_iter()
                    .collect(),
                lease: Arc::new(Lease::new(Duration::from_secs(3600), unix_now())),
            }),
            entry,
            _directory: directory,
        }))
    }

    /// The events that were read, in the form in which the `nixl` receiver puts them into a batch.
    fn events(&mut self) -> Events {
        let to_nanos = |us: &u64| us.saturating_mul(1_000);
        let times = &self.columns.timestamps_us;
        Events {
            source: self.source.clone(),
            schema: self.schema.clone(),
            times: (!times.is_empty()).then(|| times.iter().map(to_nanos).collect()),
            kinds: std::mem::take(&mut self.columns.kinds),
            values: Values::U64(std::mem::take(&mut self.columns.values)),
            weights: None,
            observed: unix_now(),
        }
    }
}

fn schema(names: &Names) -> Schema {
    let kind = |kind: u16| EventKind {
        name: names.name(kind).into(),
        description: "".into(),
        unit: names.unit(kind).into(),
        instrument: match names.unit(kind) {
            "us" => Instrument::Histogram,
            _ => Instrument::Counter,
        },
        attributes: [("category", names.category(kind).name())].into_iter().collect(),
    };
    Schema {
        // All known kinds, which are few.
        kinds: (0..names.len() as u16).map(kind).collect(),
    }
}

impl Workload for Ring {
    fn prepare(&mut self) -> Result<(), WorkloadError> {
        let event = |(kind, value)| Event {
            kind,
            value,
            timestamp_us: 1_700_000_000_000_000,
        };
        let events: Vec<Event> = TRANSFER.into_iter().cycle().map(event).take(EVENTS).collect();
        match self.writer.push_all(&events) {
            EVENTS => Ok(()),
            fitted => Err(format!("only {fitted} events fit into the ring").into()),
        }
    }

    fn run(&mut self) -> usize {
        let Ok(Poll::Events(_)) = self.reader.read(&mut self.columns) else {
            return 0;
        };
        let batch = Batch::new(self.events());
        let items = batch.items();
        if self.entry.push(batch).is_ok() && self.reader.commit() {
            items
        } else {
            0
        }
    }
}
