// SPDX-License-Identifier: Apache-2.0

//! Names of other libraries as ours, and labels that come with each call.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::handle::misuse;
use crate::registry::register;
use crate::{Description, Family, Instrument, MetricsRegistry};

/// A metric's name with other characters as `_`.
pub(super) fn metric_name(name: &str) -> String {
    plain(name, |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.')
    })
}

/// A label's name with other characters as `_`.
pub(super) fn label_name(name: &str) -> String {
    plain(name, |c| c.is_ascii_alphanumeric() || c == '_')
}

fn plain(name: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut plain: String = name.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) {
        plain.insert(0, '_');
    }
    plain
}

/// A family whose label names are those of its first series.
///
/// Libraries whose labels come with each call may change their names from call to call; families can't. A label that is
/// missing later has no value; one that is new is omitted, and counted as misuse.
pub(super) struct Lazy<H> {
    family: OnceLock<Option<Learned<H>>>,
}

struct Learned<H> {
    names: Vec<String>,
    family: Family<H>,
}

impl<H: Instrument> Lazy<H> {
    pub(super) fn new() -> Self {
        Self {
            family: OnceLock::new(),
        }
    }

    /// The series with these labels. One that can't be registered does nothing.
    pub(super) fn with(
        &self,
        registry: &dyn MetricsRegistry,
        description: &Description,
        labels: &[(&str, Cow<'_, str>)],
    ) -> H {
        let learned = self.family.get_or_init(|| {
            let mut names: Vec<String> = labels.iter().map(|(name, _)| (*name).to_owned()).collect();
            names.sort_unstable();
            let shown: Vec<String> = names.iter().map(|name| label_name(name)).collect();
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            let family = register(registry, description, &[], &shown);
            if let Err(error) = &family {
                crate::report::error(&format!("nothing is recorded: {error}"));
            }
            family.ok().map(|family| Learned { names, family })
        });
        let Some(Learned { names, family }) = learned else {
            misuse();
            return H::null();
        };
        if labels
            .iter()
            .any(|(name, _)| !names.iter().any(|own| own == name))
        {
            misuse();
        }
        let value = |own: &String| {
            let found = labels.iter().find(|(name, _)| name == own);
            found.map_or("", |(_, value)| value)
        };
        const FEW: usize = 16;
        let mut few = [""; FEW];
        match few.get_mut(..names.len()) {
            Some(values) => {
                values
                    .iter_mut()
                    .zip(names)
                    .for_each(|(slot, name)| *slot = value(name));
                family.with(values)
            }
            None => family.with(&names.iter().map(value).collect::<Vec<_>>()),
        }
    }
}
