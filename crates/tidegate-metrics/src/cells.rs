// SPDX-License-Identifier: Apache-2.0

//! Registries whose values are cells: what the Prometheus, OTLP and shared-memory ones have in common.

use std::sync::{Arc, OnceLock};

use tidegate_cells as cells;
use tidegate_cells::{Family as CellFamily, Series, Store};

use crate::RegisterError;
use crate::catalog::Catalog;
use crate::description::{FamilySpec, Kind};
use crate::family::{AnyFamily, Family, Made, Make};
use crate::handle::{Counter, FloatCounter, Gauge, Histogram, Instrument, UpDownCounter};
use crate::side::Info;
use crate::value::{ExponentialHistogram, FamilyValues, HistogramValue};

/// Families whose values are cells of a store.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) store: Store,
    catalog: Catalog,
}

impl Cells {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            catalog: Catalog::default(),
        }
    }

    pub(crate) fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.catalog.get_or_make(spec, &|| {
            let family = self
                .store
                .family(&cell_spec(spec))
                .map_err(|error| RegisterError::Store {
                    name: spec.name.clone(),
                    reason: error.to_string(),
                })?;
            Ok(match spec.kind {
                Kind::Counter => make::<Counter>(spec, family),
                Kind::FloatCounter => make::<FloatCounter>(spec, family),
                Kind::UpDownCounter => make::<UpDownCounter>(spec, family),
                Kind::Gauge(_) => make::<Gauge>(spec, family),
                Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => make::<Histogram>(spec, family),
                Kind::Summary => return Err(RegisterError::Summary(spec.name.clone())),
            })
        })
    }

    /// The values that this process has recorded.
    pub(crate) fn gather(&self) -> Vec<FamilyValues> {
        self.catalog.gather()
    }
}

/// The family in the store. The names of its labels are sorted: the constant ones of one scope may be the others of
/// another program.
fn cell_spec(spec: &FamilySpec) -> cells::FamilySpec {
    let mut labels: Vec<String> = spec.label_names().map(str::to_owned).collect();
    labels.sort_unstable();
    cells::FamilySpec {
        name: spec.name.clone(),
        help: spec.help.clone(),
        unit: spec.unit.clone(),
        kind: spec.kind.clone(),
        labels,
    }
}

/// A handle over a series of a store.
trait FromSeries: Instrument {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error>;
}

impl FromSeries for Counter {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error> {
        Ok(Self::of_cell(&series.counter()?, info))
    }
}

impl FromSeries for FloatCounter {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error> {
        Ok(Self::of_cell(&series.float()?, info))
    }
}

impl FromSeries for UpDownCounter {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error> {
        Ok(Self::of_cell(&series.up_down()?, info))
    }
}

impl FromSeries for Gauge {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error> {
        Ok(Self::of_cell(&series.float()?, info))
    }
}

impl FromSeries for Histogram {
    fn from_series(series: &Series, info: Info) -> Result<Self, cells::Error> {
        Ok(match info.family().kind {
            Kind::ExponentialHistogram { .. } => Self::exponential(&series.exponential()?, info),
            _ => Self::fixed(&series.histogram()?, info),
        })
    }
}

fn make<H: FromSeries>(spec: &FamilySpec, family: CellFamily) -> AnyFamily {
    let maker = FromStore::<H> {
        family: StoreFamily::new(spec, family),
        overflow: OnceLock::new(),
    };
    H::erase(Family::new(spec.clone(), maker))
}

/// A family of a store.
struct StoreFamily {
    spec: Arc<FamilySpec>,
    family: CellFamily,
    /// Where the store has each label, the constant ones first.
    places: Vec<usize>,
}

impl StoreFamily {
    fn new(spec: &FamilySpec, family: CellFamily) -> Self {
        let names = &family.spec().labels;
        let place = |name: &str| names.iter().position(|own| own == name);
        Self {
            spec: Arc::new(spec.clone()),
            places: spec.label_names().filter_map(place).collect(),
            family,
        }
    }

    /// The values of all labels in the order of the store.
    fn all_values<'a>(&'a self, values: &[&'a str]) -> Vec<&'a str> {
        let constant = self.spec.constant.iter().map(|(_, value)| value.as_str());
        let all = constant.chain(values.iter().copied());
        let mut placed = vec![""; self.places.len()];
        for (place, value) in self.places.iter().zip(all) {
            if let Some(slot) = placed.get_mut(*place) {
                *slot = value;
            }
        }
        placed
    }

    fn series(&self, values: &[&str]) -> Series {
        self.family.with(&self.all_values(values))
    }
}

/// Makes handles of the series of a store.
struct FromStore<H> {
    family: StoreFamily,
    overflow: OnceLock<H>,
}

impl<H: FromSeries> Make<H> for FromStore<H> {
    fn make(&self, values: &[&str]) -> Made<H> {
        let series = self.family.series(values);
        // The kind of cell is that of the family, which was made from the same specification.
        let handle = |info| H::from_series(&series, info).unwrap_or_else(|_| H::null());
        if series.is_overflow() {
            let overflow = || handle(Info::overflow(&self.family.spec));
            Made::Shared(self.overflow.get_or_init(overflow).clone())
        } else {
            Made::Own(handle(Info::new(&self.family.spec, values)))
        }
    }

    fn overflow(&self) -> Option<H> {
        self.overflow.get().cloned()
    }

    fn remove(&self, values: &[&str]) {
        self.family.family.remove(&self.family.all_values(values));
    }
}

pub(crate) fn histogram(bounds: Arc<[f64]>, value: cells::Value) -> HistogramValue {
    let (counts, sum) = match value {
        cells::Value::Histogram { buckets, sum } => (buckets, sum),
        _ => (vec![0; bounds.len() + 1], 0.0),
    };
    HistogramValue { bounds, counts, sum }
}

pub(crate) fn exponential(value: cells::Value) -> ExponentialHistogram {
    match value {
        cells::Value::Exponential(value) => *value,
        _ => ExponentialHistogram::empty(),
    }
}
