// SPDX-License-Identifier: Apache-2.0

//! The naming styles of exporters, for comparisons of names before a series exists.

use std::sync::Arc;

use super::{Exposition, View};
use crate::Style;

impl View {
    /// The styles of all exporters that queries see, and that of series which no exporter shows.
    pub fn styles(&self) -> Vec<Arc<Style>> {
        self.styles_of(|one| !one.is_hidden)
    }

    /// The same, with the styles of hidden exporters: a reload that fails shows these again.
    pub fn known_styles(&self) -> Vec<Arc<Style>> {
        self.styles_of(|_| true)
    }

    fn styles_of(&self, is_wanted: impl Fn(&Exposition) -> bool) -> Vec<Arc<Style>> {
        let expositions = self.expositions.lock();
        let wanted = expositions.iter().filter(|one| is_wanted(one));
        let styles = wanted.map(|one| &one.style).chain([&self.plain]);
        styles.cloned().collect()
    }
}
