// SPDX-License-Identifier: Apache-2.0

//! Keeps nothing.

use crate::catalog::Catalog;
use crate::description::{FamilySpec, Kind};
use crate::family::{AnyFamily, Family, MakeNull};
use crate::value::FamilyValues;
use crate::{MetricsRegistry, RegisterError};

/// Keeps no values: its handles do nothing. It refuses registrations that other registries refuse.
#[derive(Debug, Default)]
pub struct Null(Catalog);

impl Null {
    /// A registry that keeps nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

impl MetricsRegistry for Null {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.0.get_or_make(spec, &|| null_family(spec.clone()))
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.0.gather()
    }
}

fn null_family(spec: FamilySpec) -> Result<AnyFamily, RegisterError> {
    Ok(match spec.kind {
        Kind::Counter => AnyFamily::Counter(Family::new(spec, MakeNull)),
        Kind::FloatCounter => AnyFamily::FloatCounter(Family::new(spec, MakeNull)),
        Kind::UpDownCounter => AnyFamily::UpDownCounter(Family::new(spec, MakeNull)),
        Kind::Gauge(_) => AnyFamily::Gauge(Family::new(spec, MakeNull)),
        Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => {
            AnyFamily::Histogram(Family::new(spec, MakeNull))
        }
        Kind::Summary => return Err(RegisterError::Summary(spec.name)),
    })
}
