// SPDX-License-Identifier: Apache-2.0

//! The naming styles of exporters, for comparisons of names before a series exists.

use std::sync::Arc;

use super::View;
use crate::Style;

impl View {
    /// The styles of all exporters, and that of series which no exporter shows.
    pub fn styles(&self) -> Vec<Arc<Style>> {
        let expositions = self.expositions.lock();
        let styles = expositions.iter().map(|one| &one.style).chain([&self.plain]);
        styles.cloned().collect()
    }
}
