// SPDX-License-Identifier: Apache-2.0

//! The metrics of an agent: what NIXL's own exporter (1.5) makes of its events, by the table that the gateway's
//! receivers share, and what this exporter itself has lost.

use std::sync::Arc;

use tidegate_cells::{
    CounterCell, Error, FamilySpec, FloatCell, GaugeMode, HistogramCell, Kind, Series, Store,
};
use tidegate_ring::kind::UNKNOWN;
use tidegate_ring::{DEFAULT_BOUNDS_US, KINDS, Metric};

/// NIXL's variable for other bounds (1.5): numbers with commas, in microseconds.
const BOUNDS: &str = "NIXL_TELEMETRY_HISTOGRAM_BUCKETS_US";

/// More than that would be a mistake.
const MAX_BOUNDS: usize = 256;

const LOST: Metric = Metric {
    name: "tidegate_nixl_plugin_lost_events",
    help: "Events that NIXL handed over and that are in no other metric",
};

/// Why an event was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Loss {
    /// There was no file for it.
    NoCells,
    /// Its value was a negative number, read as unsigned.
    InvalidValue,
    /// Taking it panicked.
    Panic,
}

const LOSSES: [(Loss, &str); 3] = [
    (Loss::NoCells, "no_cells"),
    (Loss::InvalidValue, "invalid_value"),
    (Loss::Panic, "panic"),
];

/// The cells of an agent.
pub(crate) struct Cells {
    /// By kind, up to [`UNKNOWN`].
    kinds: Vec<KindCells>,
    lost: Vec<(Loss, CounterCell)>,
}

struct KindCells {
    total: CounterCell,
    last: Option<FloatCell>,
    histogram: Option<HistogramCell>,
}

impl Cells {
    /// The cells of an agent of this name, all there from the beginning: those of an earlier agent of that name, or
    /// new ones.
    ///
    /// # Errors
    /// The store has no space for them.
    pub(crate) fn of(store: &Store, agent: &str) -> Result<Self, Error> {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let agent = Named {
            store,
            agent,
            hostname: &hostname,
            bounds: bounds(),
        };
        let kinds = KINDS.iter().take(usize::from(UNKNOWN) + 1);
        Ok(Self {
            kinds: kinds.map(|kind| agent.of_kind(kind)).collect::<Result<_, _>>()?,
            lost: LOSSES
                .iter()
                .map(|(loss, reason)| Ok((*loss, agent.of_loss(reason)?)))
                .collect::<Result<_, Error>>()?,
        })
    }

    /// An event.
    pub(crate) fn record(&self, kind: u16, value: u64) {
        let unknown = self.kinds.last();
        let Some(cells) = self.kinds.get(usize::from(kind)).or(unknown) else {
            return;
        };
        cells.total.add(value);
        if let Some(last) = &cells.last {
            last.set(value as f64);
        }
        if let Some(histogram) = &cells.histogram {
            histogram.observe(value as f64);
        }
    }

    /// Events that are in no other cell.
    pub(crate) fn lost(&self, loss: Loss, events: u64) {
        if events > 0
            && let Some((_, cell)) = self.lost.iter().find(|(other, _)| *other == loss)
        {
            cell.add(events);
        }
    }
}

/// An agent that is being given its cells.
struct Named<'a> {
    store: &'a Store,
    agent: &'a str,
    hostname: &'a str,
    bounds: Arc<[f64]>,
}

impl Named<'_> {
    fn of_kind(&self, kind: &tidegate_ring::NixlKind) -> Result<KindCells, Error> {
        let metric = kind.last.zip(kind.unambiguous_last());
        let last = metric.map(|(last, name)| {
            let gauge = Kind::Gauge(GaugeMode::MostRecent);
            self.series(&name, last.help, kind, gauge)?.float()
        });
        let histogram = kind.histogram.map(|metric| {
            let bounds = self.bounds.clone();
            self.series(metric.name, metric.help, kind, Kind::Histogram { bounds })?
                .histogram()
        });
        Ok(KindCells {
            total: self
                .series(kind.total.name, kind.total.help, kind, Kind::Counter)?
                .counter()?,
            last: last.transpose()?,
            histogram: histogram.transpose()?,
        })
    }

    fn series(
        &self,
        name: &str,
        help: &str,
        of: &tidegate_ring::NixlKind,
        kind: Kind,
    ) -> Result<Series, Error> {
        let labels = ["agent_name", "hostname", "category", "status"];
        let values = [
            self.agent,
            self.hostname,
            of.category.name(),
            of.status.unwrap_or_default(),
        ];
        let used = if of.status.is_some() { 4 } else { 3 };
        let spec = FamilySpec::new(name, kind)
            .help(help)
            .unit(of.unit)
            .labels(labels[..used].iter().copied());
        Ok(self.store.family(&spec)?.with(&values[..used]))
    }

    fn of_loss(&self, reason: &str) -> Result<CounterCell, Error> {
        let spec = FamilySpec::new(LOST.name, Kind::Counter).help(LOST.help).labels([
            "agent_name",
            "hostname",
            "reason",
        ]);
        self.store
            .family(&spec)?
            .with(&[self.agent, self.hostname, reason])
            .counter()
    }
}

/// The bounds of this process's histograms: NIXL's, or those of its configuration. NIXL itself refuses anything but a
/// list of rising positive numbers.
fn bounds() -> Arc<[f64]> {
    let told = std::env::var(BOUNDS).ok();
    told.and_then(|text| parse(&text))
        .unwrap_or(DEFAULT_BOUNDS_US.into())
}

fn parse(text: &str) -> Option<Arc<[f64]>> {
    let bounds: Arc<[f64]> = text
        .split(',')
        .map(|bound| bound.trim().parse().ok())
        .collect::<Option<_>>()?;
    let rising = bounds.is_sorted_by(|a, b| a < b) && bounds.len() <= MAX_BOUNDS;
    let proper = bounds.iter().all(|bound| bound.is_finite() && *bound > 0.0);
    (rising && proper).then_some(bounds)
}

#[cfg(test)]
mod tests;
