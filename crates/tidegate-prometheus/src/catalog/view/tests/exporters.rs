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
    /// A reload replaces them.
    live: Mutex<Vec<Arc<Table>>>,
    /// How often `live` was read.
    reads: AtomicUsize,
}

impl Exposes for Page {
    fn live(&self) -> Vec<Arc<Table>> {
        self.reads.fetch_add(1, SeqCst);
        self.live.lock().clone()
    }

    fn own(&self) -> &Arc<Table> {
        &self.own
    }
}

/// The exporter `prometheus/{namespace}`.
fn exporter(view: &View, namespace: &str, live: &[Arc<Table>]) -> Arc<Page> {
    let name = format!("prometheus/{namespace}");
    let page = Arc::new(Page {
        own: unlisted(&name),
        live: Mutex::new(live.to_vec()),
        reads: AtomicUsize::new(0),
    });
    let mut style = Style::default();
    style.naming.namespace = namespace.to_owned();
    view.expose(name.into(), style, page.clone());
    page
}

#[test]
fn a_table_counts_once_and_the_first_exporter_names_it() {
    for preferred in [None, Some("prometheus/b")] {
        let (view, shared) = view();
        let live = table(&shared);
        let one = exporter(&view, "a", std::slice::from_ref(&live));
        let two = exporter(&view, "b", std::slice::from_ref(&live));
        preferred.into_iter().for_each(|name| view.prefer(name));
        gauge(&live, "level", 1, START);
        // The same point reaches both exporters, another one only the second.
        gauge(&one.own, "depth", 2, START);
        gauge(&two.own, "depth", 2, START);
        gauge(&two.own, "height", 3, START);
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

/// A table with a composite.
fn composite() -> (Arc<Table>, Arc<Watched>) {
    let watched = Bench::new("depth", Vec::new()).watched;
    let table = unlisted("test");
    table.attach(watched.composite().clone());
    (table, watched)
}

#[test]
fn a_pass_uses_the_names_of_an_exporter_that_starts_meanwhile() {
    let (view, shared) = view();
    let live = unlisted("test");
    let mut bench = Bench::new("depth", Vec::new());
    live.attach(bench.watched.composite().clone());
    shared.tables.add(live.clone());
    view.prefer("prometheus/b");
    let one = exporter(&view, "a", std::slice::from_ref(&live));
    for n in 0..2 * SLICE {
        gauge(&one.own, &format!("level_{n}"), 1, START);
    }
    let mut two = None;
    view.record(START, Duration::from_secs(1), &mut |_| {
        two.get_or_insert_with(|| {
            bench.observe("m", 5.0);
            exporter(&view, "b", std::slice::from_ref(&live))
        });
        true
    });
    assert!(two.is_some(), "the pass had a pause before it read the composite");
    let past = |name: &str| ask(&view, &format!("last_over_time({name}[10s])"), START);
    assert_eq!((past("a_depth"), past("b_depth")), (None, Some(5.0)));
}

#[test]
fn a_name_is_looked_up_in_tables_and_composites_of_one_moment() {
    let (view, shared) = view();
    let (table, watched) = composite();
    let page = exporter(&view, "a", std::slice::from_ref(&table));
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
    const RELOADS: usize = 100;
    let (view, shared) = view();
    let (one, two) = (composite(), composite());
    let page = exporter(&view, "a", std::slice::from_ref(&one.0));
    shared.tables.add(one.0.clone());
    shared.composites.add(one.1.clone());
    let replace = |old: &(Arc<Table>, Arc<Watched>), new: &(Arc<Table>, Arc<Watched>)| {
        shared.tables.replace(std::slice::from_ref(&old.0), || {
            *page.live.lock() = vec![new.0.clone()];
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
    let (is_over, reloads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen: BTreeSet<_> = std::thread::scope(|scope| {
        let reloading = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                replace(&one, &two);
                replace(&two, &one);
                reloads.fetch_add(2, SeqCst);
            }
        });
        let (mut seen, mut reads) = (BTreeSet::new(), 0);
        // Both threads do their part, however the machine shares its time.
        while (reads < READS || reloads.load(SeqCst) < RELOADS) && !reloading.is_finished() {
            seen.insert(names());
            reads += 1;
        }
        is_over.store(true, SeqCst);
        seen
    });
    assert_eq!(seen, BTreeSet::from([vec!["a_depth".to_owned()]]));
}

/// A table of the list and its successor. `level` is 1 in the first one and 2 in the second.
fn successive(shared: &Shared) -> [Arc<Table>; 2] {
    let (old, new) = (table(shared), unlisted("test"));
    gauge(&old, "level", 1, START);
    gauge(&new, "level", 2, START);
    [old, new]
}

fn reload(shared: &Shared, [old, new]: &[Arc<Table>; 2]) {
    shared
        .tables
        .replace(std::slice::from_ref(old), || vec![new.clone()]);
}

#[test]
fn a_reader_from_before_a_reload_does_not_undo_the_view_of_a_later_one() {
    let older: [fn(&View); 2] = [
        |view| view.refresh(START, &Query::parse("level").unwrap().selections()),
        |view| record(view, START),
    ];
    for older in older {
        let (view, shared) = view();
        let tables = successive(&shared);
        assert_eq!(ask(&view, "level", START), Some(1.0));
        let query = Query::parse("level").unwrap();
        std::thread::scope(|scope| {
            let mut state = view.state();
            scope.spawn(|| older(&view));
            // It has begun before the reload.
            while view.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            reload(&shared, &tables);
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
    let page = exporter(&view, "a", std::slice::from_ref(&live));
    exporter(&view, "b", std::slice::from_ref(&live));
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
        let tables = successive(&shared);
        let query = Query::parse(text).unwrap();
        let asked = view.ask(START, &query.selections());
        reload(&shared, &tables);
        assert_eq!(ask(&view, "other", START), None);
        let answer = query.instant(&asked, millis(START)).unwrap();
        assert_eq!(one(answer), Some(2.0), "{text}");
    }
}
