// SPDX-License-Identifier: Apache-2.0

//! The exporters whose pages queries see, and the tables of the gateway under their names.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use tidegate_engine::Table;

use super::{NamedTable, View};
use crate::Style;
use tidegate_pipeline::watch::Watched;

/// The tables that one exporter shows. The view calls it under its locks, so it must not ask the view.
pub trait Exposes: Send + Sync {
    /// The live tables that it shows, in order; its own is not among them.
    fn live(&self) -> Vec<Arc<Table>>;

    /// The exporter's own table.
    fn own(&self) -> &Arc<Table>;
}

/// An exporter whose page queries see.
pub(super) struct Exposition {
    exporter: Arc<str>,
    style: Arc<Style>,
    tables: Arc<dyn Exposes>,
    /// Whether another instance has replaced it.
    is_hidden: bool,
}

impl Exposition {
    fn is_of(&self, tables: &dyn Exposes) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.tables), std::ptr::from_ref(tables))
    }
}

impl View {
    /// Names tables in the style of this exporter. The first exporter that shows a table names it.
    pub fn expose(&self, exporter: Arc<str>, style: Style, tables: Arc<dyn Exposes>) {
        self.change(|all| {
            all.push(Exposition {
                exporter,
                style: Arc::new(style),
                tables,
                is_hidden: false,
            });
        });
    }

    /// Forgets an exporter that has ended, by its tables.
    pub fn conceal(&self, tables: &dyn Exposes) {
        self.change(|all| all.retain(|one| !one.is_of(tables)));
    }

    /// Hides an exporter from queries, or shows it again, by its tables. A reload hides the exporters that it replaces.
    pub fn set_hidden(&self, tables: &dyn Exposes, is_hidden: bool) {
        self.change(|all| {
            let of_tables = all.iter_mut().filter(|one| one.is_of(tables));
            of_tables.for_each(|one| one.is_hidden = is_hidden);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Exposition>)) {
        let mut all = self.expositions.lock();
        change(&mut all);
        self.exposed.fetch_add(1, Relaxed);
    }

    /// Lets the names of this exporter count before those of others.
    pub fn prefer(&self, exporter: &str) {
        let _ = self.preferred.set(exporter.to_owned());
    }

    /// All tables, each once, with the style that names their series.
    pub fn named_tables(&self) -> Vec<NamedTable> {
        // A reload changes this list and the tables of the exporters at one moment.
        self.tables.inspect(|listed| self.named(listed))
    }

    fn named(&self, listed: &[Arc<Table>]) -> Vec<NamedTable> {
        let expositions = self.expositions.lock();
        let mut in_order: Vec<&Exposition> = expositions.iter().filter(|one| !one.is_hidden).collect();
        // Stable: the others keep their order.
        in_order.sort_by_key(|one| self.preferred.get().is_none_or(|name| **name != *one.exporter));
        let mut all: Vec<NamedTable> = Vec::new();
        let mut copied = Vec::new();
        for exposition in in_order {
            let own = exposition.tables.own();
            for table in exposition.tables.live() {
                show(&mut all, table, &exposition.style, Vec::new());
            }
            show(&mut all, own.clone(), &exposition.style, copied.clone());
            copied.push(Arc::downgrade(own));
        }
        drop(expositions);
        for table in listed {
            show(&mut all, table.clone(), &self.plain, Vec::new());
        }
        all
    }

    /// All tables, each once.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.named_tables().into_iter().map(|named| named.table).collect()
    }

    /// All tables, and the declared composites. A reload changes both lists at one moment.
    pub(super) fn tables_and_composites(&self) -> (Vec<NamedTable>, Vec<Arc<Watched>>) {
        self.tables
            .inspect(|listed| (self.named(listed), self.composites.list()))
    }

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

/// Adds a table that is not there yet.
fn show(all: &mut Vec<NamedTable>, table: Arc<Table>, style: &Arc<Style>, copied: Vec<Weak<Table>>) {
    if !all.iter().any(|named| Arc::ptr_eq(&named.table, &table)) {
        all.push(NamedTable {
            table,
            style: style.clone(),
            copied,
        });
    }
}
