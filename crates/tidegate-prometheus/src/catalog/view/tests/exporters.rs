// SPDX-License-Identifier: Apache-2.0

//! Tables that several exporters show: each series appears once, under the names of one exporter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;
use tidegate_pipeline::watch::Watched;
use tidegate_pipeline::watch::testing::Bench;

use super::super::Exposes;
use super::*;
use crate::Style;

struct Page {
    own: Arc<Table>,
    live: Vec<Arc<Table>>,
}

impl Exposes for Page {
    fn live(&self) -> Vec<Arc<Table>> {
        self.live.clone()
    }

    fn own(&self) -> &Arc<Table> {
        &self.own
    }
}

fn exporter(view: &View, name: &str, namespace: &str, live: &[Arc<Table>]) -> Arc<Table> {
    let own = Arc::new(Table::new(name, vec![Rule::newest()], Limits::default()));
    let mut style = Style::default();
    style.naming.namespace = namespace.to_owned();
    let page = Page {
        own: own.clone(),
        live: live.to_vec(),
    };
    view.expose(name.into(), style, Arc::new(page));
    own
}

#[test]
fn a_table_counts_once_and_the_first_exporter_names_it() {
    for preferred in [None, Some("prometheus/b")] {
        let (view, shared) = view();
        let live = table(&shared);
        let one = exporter(&view, "prometheus/a", "a", std::slice::from_ref(&live));
        let two = exporter(&view, "prometheus/b", "b", std::slice::from_ref(&live));
        preferred.into_iter().for_each(|name| view.prefer(name));
        gauge(&live, "level", 1, START);
        // The same point reaches both exporters, another one only the second.
        gauge(&one, "depth", 2, START);
        gauge(&two, "depth", 2, START);
        gauge(&two, "height", 3, START);
        let of = |query: &str| ask(&view, query, START);
        assert_eq!(of("count({__name__=~\".+\"})"), Some(3.0), "{preferred:?}");
        let (names, others) = match preferred {
            None => (["a_level", "a_depth"], ["b_level", "b_depth"]),
            Some(_) => (["b_level", "b_depth"], ["a_level", "a_depth"]),
        };
        assert_eq!(names.map(of), [Some(1.0), Some(2.0)]);
        assert_eq!(others.map(of), [None, None]);
        assert_eq!(of("b_height"), Some(3.0));
        // The metrics that describe a target say the same, so no copy appears under the name of the other exporter.
        view.refresh(START, &[Selection::everything()]);
        let known: Vec<_> = view
            .about_targets(&tidegate_promql::Patience::default())
            .unwrap()
            .into_iter()
            .map(|(_, _, about)| about.name)
            .collect();
        let [level, depth] = names;
        assert_eq!(
            known,
            {
                let mut names = [level, depth, "b_height"];
                names.sort_unstable();
                names
            },
            "{preferred:?}"
        );
    }
}

/// A page whose table a reload replaces.
struct ReloadedPage {
    own: Arc<Table>,
    live: Mutex<Arc<Table>>,
}

impl Exposes for ReloadedPage {
    fn live(&self) -> Vec<Arc<Table>> {
        vec![self.live.lock().clone()]
    }

    fn own(&self) -> &Arc<Table> {
        &self.own
    }
}

/// A page that counts how often its tables are read.
struct CountedPage {
    page: Page,
    reads: AtomicUsize,
}

impl Exposes for CountedPage {
    fn live(&self) -> Vec<Arc<Table>> {
        self.reads.fetch_add(1, SeqCst);
        self.page.live()
    }

    fn own(&self) -> &Arc<Table> {
        self.page.own()
    }
}

/// A table with a composite.
fn composite() -> (Arc<Table>, Arc<Watched>) {
    let watched = Bench::new("depth", Vec::new()).watched;
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    table.attach(watched.composite().clone());
    (table, watched)
}

#[test]
fn a_name_is_looked_up_in_tables_and_composites_of_one_moment() {
    let (view, shared) = view();
    let (table, watched) = composite();
    let page = Arc::new(CountedPage {
        page: Page {
            own: Arc::new(Table::new("page", vec![Rule::newest()], Limits::default())),
            live: vec![table.clone()],
        },
        reads: AtomicUsize::new(0),
    });
    let mut style = Style::default();
    style.naming.namespace = "a".to_owned();
    view.expose("prometheus/a".into(), style, page.clone());
    shared.tables.add(table);
    shared.composites.add(watched);
    let query = Query::parse("depth").unwrap();
    let notes = view.query_warnings(START, &query.selections());
    let text = notes.warnings().concat();
    assert!(text.ends_with("; queries call it \"a_depth\""), "{text}");
    // The refresh, whether the name is known, and what queries call it.
    assert_eq!(page.reads.load(SeqCst), 3);
}

#[test]
fn a_composite_has_the_name_of_its_page_at_any_moment_of_a_reload() {
    const READS: usize = 1_000;
    let (view, shared) = view();
    let (one, two) = (composite(), composite());
    let page = Arc::new(ReloadedPage {
        own: Arc::new(Table::new("page", vec![Rule::newest()], Limits::default())),
        live: Mutex::new(one.0.clone()),
    });
    let mut style = Style::default();
    style.naming.namespace = "a".to_owned();
    view.expose("prometheus/a".into(), style, page.clone());
    shared.tables.add(one.0.clone());
    shared.composites.add(one.1.clone());
    let replace = |old: &(Arc<Table>, Arc<Watched>), new: &(Arc<Table>, Arc<Watched>)| {
        shared.tables.replace(std::slice::from_ref(&old.0), || {
            *page.live.lock() = new.0.clone();
            shared
                .composites
                .replace(std::slice::from_ref(&old.1), || vec![new.1.clone()]);
            vec![new.0.clone()]
        });
    };
    let names = || -> Vec<String> {
        let all = view.names_of_composites().into_iter();
        all.map(|(_, name)| name).collect()
    };
    let is_over = AtomicBool::new(false);
    let seen: BTreeSet<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                replace(&one, &two);
                replace(&two, &one);
            }
        });
        let seen = (0..READS).map(|_| names()).collect();
        is_over.store(true, SeqCst);
        seen
    });
    assert_eq!(seen, BTreeSet::from([vec!["a_depth".to_owned()]]));
}

#[test]
fn a_reader_from_before_a_reload_does_not_undo_the_view_of_a_later_one() {
    let older: [fn(&View); 2] = [
        |view| view.refresh(START, &Query::parse("level").unwrap().selections()),
        |view| record(view, START),
    ];
    for older in older {
        let (view, shared) = view();
        let old = table(&shared);
        let new = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
        gauge(&old, "level", 1, START);
        gauge(&new, "level", 2, START);
        assert_eq!(ask(&view, "level", START), Some(1.0));
        let query = Query::parse("level").unwrap();
        std::thread::scope(|scope| {
            let mut state = view.state();
            scope.spawn(|| older(&view));
            // It has begun before the reload.
            while view.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            shared
                .tables
                .replace(std::slice::from_ref(&old), || vec![new.clone()]);
            let pass = view.pass(START, false);
            state.update_sources(&view.named_tables(), pass);
            state.read_asked(&query.selections(), START, pass);
        });
        let answer = query.instant(&view.recall(), millis(START)).unwrap();
        assert_eq!(one(answer), Some(2.0));
    }
}

#[test]
fn a_hidden_exporter_names_nothing_until_it_is_shown_again() {
    let (view, shared) = view();
    let live = table(&shared);
    let page = Arc::new(Page {
        own: Arc::new(Table::new("page", vec![Rule::newest()], Limits::default())),
        live: vec![live.clone()],
    });
    let mut style = Style::default();
    style.naming.namespace = "a".to_owned();
    view.expose("prometheus/a".into(), style, page.clone());
    exporter(&view, "prometheus/b", "b", std::slice::from_ref(&live));
    gauge(&live, "level", 1, START);
    gauge(&page.own, "depth", 2, START);
    for is_hidden in [false, true, false] {
        view.set_hidden(&*page, is_hidden);
        let found = ["a_level", "a_depth", "b_level"].map(|query| ask(&view, query, START));
        let expected = if is_hidden {
            [None, None, Some(1.0)]
        } else {
            [Some(1.0), Some(2.0), None]
        };
        assert_eq!(found, expected);
        let styles = [view.styles().len(), view.known_styles().len()];
        assert_eq!(styles, [3 - usize::from(is_hidden), 3]);
    }
}

#[test]
fn a_query_finds_tables_that_another_reader_has_registered_since() {
    for text in ["level", "{__name__=~\"le.*\"}"] {
        let (view, shared) = view();
        let old = table(&shared);
        let new = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
        gauge(&old, "level", 1, START);
        gauge(&new, "level", 2, START);
        let query = Query::parse(text).unwrap();
        let asked = view.ask(START, &query.selections());
        shared
            .tables
            .replace(std::slice::from_ref(&old), || vec![new.clone()]);
        assert_eq!(ask(&view, "other", START), None);
        let answer = query.instant(&asked, millis(START)).unwrap();
        assert_eq!(one(answer), Some(2.0), "{text}");
    }
}
