// SPDX-License-Identifier: Apache-2.0

//! Metric sets: instruments declared as a struct.

use crate::RegisterError;
use crate::description::Description;
use crate::family::Family;
use crate::handle::Instrument;
use crate::registry::{Labels, MetricsRegistry, register};

/// Instruments declared as a struct; see the derive macro of the same name.
pub trait MetricSet: Sized {
    /// Stands before the names of the fields.
    const PREFIX: &'static str;

    /// Labels that all of them have, whose values are given when the set is registered.
    const LABELS: &'static [&'static str];

    /// Registers all of them, names behind `prefix`.
    ///
    /// # Errors
    /// One of them can't be registered.
    fn register_under(
        registry: &dyn MetricsRegistry,
        prefix: &str,
        labels: Labels<'_>,
    ) -> Result<Self, RegisterError>;

    /// Registers all of them, with values for exactly the declared labels.
    ///
    /// # Errors
    /// Other labels are given, or one of the instruments can't be registered.
    fn register(registry: &dyn MetricsRegistry, labels: Labels<'_>) -> Result<Self, RegisterError> {
        let is_given = |label: &&str| labels.iter().any(|(key, _)| key == label);
        if labels.len() != Self::LABELS.len() || !Self::LABELS.iter().all(is_given) {
            return Err(RegisterError::OtherLabels {
                expected: Self::LABELS.iter().map(|label| (*label).to_owned()).collect(),
                given: labels.iter().map(|(key, _)| (*key).to_owned()).collect(),
            });
        }
        Self::register_under(registry, "", labels)
    }
}

/// A field of a [`MetricSet`]: an instrument, or a family of them.
pub trait Member: Sized {
    /// Registers it; `by` are the labels of a family.
    ///
    /// # Errors
    /// See [`MetricsRegistry::register`].
    fn register(
        registry: &dyn MetricsRegistry,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<Self, RegisterError>;
}

impl<H: Instrument> Member for H {
    fn register(
        registry: &dyn MetricsRegistry,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<Self, RegisterError> {
        Ok(register::<H>(registry, description, labels, by)?.with(&[]))
    }
}

impl<H: Instrument> Member for Family<H> {
    fn register(
        registry: &dyn MetricsRegistry,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<Self, RegisterError> {
        register(registry, description, labels, by)
    }
}
