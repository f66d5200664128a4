// SPDX-License-Identifier: Apache-2.0

//! The names of gauges and composites in the styles of the exporters that show them.

use std::sync::Arc;

use tidegate_engine::{Attributes, Composite};
use tidegate_promql::{Labels, NAME};

use super::{NamedTable, View};
use crate::Style;
use crate::flat::identity;
use crate::name::Kind;
use tidegate_pipeline::watch::Watched;

impl View {
    /// The names of a gauge in all exporters that queries see.
    pub fn names_of_gauge(&self, name: &str) -> Vec<String> {
        let styles = self.styles().into_iter();
        let names = styles.filter_map(|style| style.naming.metric(name, "", Kind::Gauge));
        names.collect()
    }

    /// The declared composites, with what queries call their gauges.
    pub fn names_of_composites(&self) -> Vec<(Arc<Watched>, String)> {
        let (tables, composites) = self.tables_and_composites();
        self.names_among(&tables, composites)
    }

    /// The names of composites whose tables are among these.
    pub(super) fn names_among(
        &self,
        tables: &[NamedTable],
        composites: Vec<Arc<Watched>>,
    ) -> Vec<(Arc<Watched>, String)> {
        let styled = tables.iter().flat_map(|named| {
            let attached = named.table.attached().into_iter();
            attached.map(move |composite| (composite, &named.style))
        });
        let styled: Vec<(Arc<Composite>, &Arc<Style>)> = styled.collect();
        let named = composites.into_iter().filter_map(|watched| {
            let mut styled = styled.iter();
            let style = styled.find(|(composite, _)| Arc::ptr_eq(composite, watched.composite()));
            let style = style.map_or(&self.plain, |(_, style)| *style);
            let name = style
                .naming
                .metric(&watched.declaration().name, "", Kind::Gauge)?;
            Some((watched, name))
        });
        named.collect()
    }

    /// The labels of a composite's group in all exporters that queries see.
    pub fn labels_of_group(&self, composite: &Composite, group: &Attributes) -> Vec<Labels> {
        let series = composite.series(group.clone());
        let styles = self.styles().into_iter();
        let labels = styles.filter_map(|style| {
            let (name, mut pairs) = identity(&series, &style)?;
            pairs.push((NAME.to_owned(), name));
            Some(pairs.into_iter().collect())
        });
        labels.collect()
    }
}
