// SPDX-License-Identifier: Apache-2.0

//! The families of a registry: each there once, and none that a reader would take for another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::RegisterError;
use crate::description::FamilySpec;
use crate::family::AnyFamily;
use crate::text::{family_name, sample_names};
use crate::value::FamilyValues;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Catalog(Mutex<Families>);

#[derive(Debug, Default)]
struct Families {
    list: Vec<AnyFamily>,
    /// Which metric each name on a page belongs to.
    shown: HashMap<String, String>,
}

impl Catalog {
    /// The family of this specification; `make` makes it if it is new.
    pub(crate) fn get_or_make(
        &self,
        spec: &FamilySpec,
        make: &dyn Fn() -> Result<AnyFamily, RegisterError>,
    ) -> Result<AnyFamily, RegisterError> {
        spec.check()?;
        let mut families = self.lock();
        for family in families
            .list
            .iter()
            .filter(|family| family.spec().name == spec.name)
        {
            compare(family.spec(), spec)?;
            if family.spec().constant == spec.constant {
                return Ok(family.clone());
            }
        }
        let names = sample_names(&family_name(&spec.name, &spec.unit, &spec.kind), &spec.kind);
        for shown in &names {
            if let Some(other) = families.shown.get(shown).filter(|other| **other != spec.name) {
                return Err(RegisterError::ShownTwice {
                    name: spec.name.clone(),
                    shown: shown.clone(),
                    other: other.clone(),
                });
            }
        }
        let family = make()?;
        families
            .shown
            .extend(names.into_iter().map(|shown| (shown, spec.name.clone())));
        families.list.push(family.clone());
        Ok(family)
    }

    /// All families, in the order in which they were registered.
    pub(crate) fn list(&self) -> Vec<AnyFamily> {
        self.lock().list.clone()
    }

    /// The values of all families; those that differ in their constant labels only are one.
    pub(crate) fn gather(&self) -> Vec<FamilyValues> {
        let mut all: Vec<FamilyValues> = Vec::new();
        for values in self.list().iter().map(AnyFamily::read) {
            match all.iter_mut().find(|family| family.name == values.name) {
                Some(family) => family.series.extend(values.series),
                None => all.push(values),
            }
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both can be series of one metric.
fn compare(known: &FamilySpec, new: &FamilySpec) -> Result<(), RegisterError> {
    // No key is there twice.
    let has = |(key, _): &(String, String)| new.constant.iter().any(|(own, _)| own == key);
    let is_same_keys = known.constant.len() == new.constant.len() && known.constant.iter().all(has);
    let what = if known.kind.name() != new.kind.name() {
        "kind of instrument"
    } else if known.kind != new.kind {
        "choice of buckets or mode"
    } else if known.unit != new.unit {
        "unit"
    } else if known.help != new.help {
        "description"
    } else if known.labels != new.labels || !is_same_keys {
        "set of labels"
    } else {
        return Ok(());
    };
    Err(RegisterError::Conflict {
        name: new.name.clone(),
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Description, Family, Gauge, Instrument, family::MakeNull};

    fn get<H: Instrument>(
        catalog: &Catalog,
        description: Description,
        constant: &[(&str, &str)],
        labels: &[&str],
    ) -> Result<AnyFamily, RegisterError> {
        let spec = description.spec(H::kind(&description), constant, labels);
        catalog.get_or_make(&spec, &|| Ok(H::erase(Family::new(spec.clone(), MakeNull))))
    }

    #[test]
    fn the_same_family_is_there_once_and_another_of_its_name_is_refused() {
        let catalog = Catalog::default();
        let a = || Description::new("a", "h").unit("s");
        get::<Gauge>(&catalog, a(), &[("x", "1")], &["y"]).unwrap();
        get::<Gauge>(&catalog, a(), &[("x", "1")], &["y"]).unwrap();
        get::<Gauge>(&catalog, a(), &[("x", "2")], &["y"]).unwrap();
        assert_eq!(catalog.list().len(), 2);
        let conflict = |result: Result<AnyFamily, RegisterError>| match result {
            Err(RegisterError::Conflict { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            conflict(get::<Counter>(&catalog, a(), &[("x", "1")], &["y"])),
            "kind of instrument"
        );
        assert_eq!(
            conflict(get::<Gauge>(&catalog, a().unit("m"), &[("x", "1")], &["y"])),
            "unit"
        );
        assert_eq!(
            conflict(get::<Gauge>(&catalog, a(), &[], &["y"])),
            "set of labels"
        );
        assert_eq!(
            conflict(get::<Gauge>(&catalog, a(), &[("x", "1")], &["z"])),
            "set of labels"
        );
        let other = Description {
            help: "other".into(),
            ..a()
        };
        assert_eq!(
            conflict(get::<Gauge>(&catalog, other, &[("x", "1")], &["y"])),
            "description"
        );
    }

    #[test]
    fn no_page_has_a_name_twice() {
        let catalog = Catalog::default();
        let histogram = Description::new("a", "").unit("s");
        get::<crate::Histogram>(&catalog, histogram, &[], &[]).unwrap();
        for name in ["a_seconds", "a.seconds", "a_seconds_count", "a_seconds_bucket"] {
            let refused = get::<Gauge>(&catalog, Description::new(name, ""), &[], &[]);
            assert!(matches!(refused, Err(RegisterError::ShownTwice { .. })), "{name}");
        }
        get::<Counter>(&catalog, Description::new("b", ""), &[], &[]).unwrap();
        let refused = get::<Gauge>(&catalog, Description::new("b_total", ""), &[], &[]);
        assert!(matches!(refused, Err(RegisterError::ShownTwice { .. })));
    }
}
