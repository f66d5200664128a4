// SPDX-License-Identifier: Apache-2.0

//! Values in files of a directory, where all processes that use it see each other's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cells as cells;
use tidegate_cells::{Directory, Limits, Scan, SharedDirectory, Store, default_directory};

use crate::cells::{Cells, exponential, histogram};
use crate::description::{FamilySpec, Kind};
use crate::family::AnyFamily;
use crate::value::{FamilyValues, HistogramValue, SeriesValues, Value};
use crate::{ExportError, MetricsRegistry, RegisterError};

/// Keeps values in a file of a directory that processes share: recording costs as much as in memory, and the values
/// outlive the process. It shows the sum over all processes, those that have ended included.
///
/// A forked child has a file of its own from its first use on.
#[derive(Clone, Debug)]
pub struct Shm {
    own: Arc<Cells>,
    directory: Arc<SharedDirectory>,
}

impl Shm {
    /// Keeps values in a new file of `directory`, which is made if it is not there. `resource` says what the process is
    /// (`service.name` and the like).
    ///
    /// # Errors
    /// The directory or the file can't be made or read.
    pub fn create(directory: &Path, resource: &[(&str, &str)]) -> Result<Self, cells::Error> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let store = Store::create(directory, super::options(resource.iter().map(owned).collect()))?;
        Ok(Self {
            own: Arc::new(Cells::new(store)),
            directory: Arc::new(SharedDirectory::open(directory, Limits::default())?),
        })
    }

    /// The same in the directory that readers and writers share by default: `$TIDEGATE_CELLS_DIR`, or else
    /// the user's own ([`default_directory`]).
    ///
    /// # Errors
    /// The directory is another user's; it or the file can't be made or read.
    pub fn create_default(resource: &[(&str, &str)]) -> Result<Self, cells::Error> {
        Self::create(&default_directory()?, resource)
    }

    /// The values that this process has recorded.
    pub fn own(&self) -> Vec<FamilyValues> {
        self.own.gather()
    }

    /// Everything in the directory: values, processes, and which files can't be read.
    pub fn scan(&self) -> Scan {
        self.directory.with(Directory::scan)
    }

    /// Puts what dead processes have recorded into one file; theirs are removed `grace` after they died.
    ///
    /// # Errors
    /// The directory can't be written to.
    pub fn fold(&self, grace: Duration) -> Result<(), ExportError> {
        let folded = self.directory.with(|directory| directory.fold(grace));
        folded
            .map(drop)
            .map_err(|error| ExportError::Peer(error.to_string()))
    }
}

impl MetricsRegistry for Shm {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.own.register(spec)
    }

    /// The values that all processes have recorded.
    fn gather(&self) -> Vec<FamilyValues> {
        families(&self.scan().merged)
    }
}

/// Families as they were read from files. (Summaries, which other writers may have, become histograms without bounds.)
fn families(snapshot: &cells::Snapshot) -> Vec<FamilyValues> {
    snapshot.families.iter().map(family).collect()
}

fn family(family: &cells::FamilyValues) -> FamilyValues {
    let spec = &family.spec;
    let series = family.series.iter().map(|series| SeriesValues {
        labels: series
            .labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        value: value(&spec.kind, &series.value),
        exemplars: Vec::new(),
    });
    FamilyValues {
        name: spec.name.clone(),
        help: spec.help.clone(),
        unit: spec.unit.clone(),
        kind: kind(&spec.kind),
        series: series.collect(),
    }
}

fn kind(kind: &Kind) -> Kind {
    match kind {
        Kind::Summary => Kind::Histogram {
            bounds: Arc::default(),
        },
        other => other.clone(),
    }
}

fn value(kind: &Kind, value: &cells::Value) -> Value {
    match value {
        cells::Value::Counter(value) => Value::Counter(*value),
        cells::Value::FloatCounter(value) => Value::FloatCounter(*value),
        cells::Value::UpDownCounter(value) => Value::UpDownCounter(*value),
        cells::Value::Gauge { value, .. } => Value::Gauge(*value),
        cells::Value::Histogram { .. } => {
            let bounds = match kind {
                Kind::Histogram { bounds } => bounds.clone(),
                _ => Arc::default(),
            };
            Value::Histogram(histogram(bounds, value.clone()))
        }
        cells::Value::Exponential(_) => Value::Exponential(exponential(value.clone())),
        cells::Value::Summary { count, sum } => Value::Histogram(HistogramValue {
            bounds: Arc::default(),
            counts: vec![*count],
            sum: *sum,
        }),
    }
}
