// SPDX-License-Identifier: Apache-2.0

//! Tables that several exporters show: each series appears once, under the names of one exporter.

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
