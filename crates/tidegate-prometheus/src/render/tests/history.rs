// SPDX-License-Identifier: Apache-2.0

//! Compares a renderer after many pages with one that has seen no page before.

use super::*;

/// Labels that metrics share, in one order of arrival or another.
fn one_of_few(owner: &str, metric: u8, labels: u8) -> (Arc<Series>, Value) {
    let pod = format!("pod-{labels}");
    let resource = [("service.name", owner), ("zone", "z")];
    let pairs = [("owner", owner), ("pod", pod.as_str())];
    match metric % 4 {
        0 => (
            series(&format!("h{metric}"), "", HISTOGRAM, &resource, &pairs),
            Value::Histogram(Box::new(Histogram {
                count: 3,
                sum: Some(f64::from(labels)),
                min: None,
                max: None,
                bounds: [1.0].into(),
                counts: vec![1, 2],
            })),
        ),
        1 => (
            series(&format!("g{metric}"), "", Data::Gauge, &resource, &pairs),
            Value::Double(f64::from(labels) / 3.0),
        ),
        _ => (
            series(&format!("c{metric}"), "", COUNTER, &resource, &pairs),
            Value::Int(labels.into()),
        ),
    }
}

/// A page as its lines, in whatever order families have them.
fn sorted_lines(renderer: &mut Renderer, tables: &[Arc<Table>], now: u64) -> Vec<String> {
    let page = renderer.render(tables, now);
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[derive(Clone, Debug)]
enum Step {
    Put { table: usize, metric: u8, labels: u8 },
    Expire,
    Leave { table: usize },
    Page,
    Learn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..2, 0u8..6, 0u8..40).prop_map(|(table, metric, labels)| Step::Put { table, metric, labels }),
        1 => Just(Step::Expire),
        1 => (0usize..2).prop_map(|table| Step::Leave { table }),
        3 => Just(Step::Page),
        2 => Just(Step::Learn),
    ]
}

proptest! {
    /// However series have come and gone, a page says what a renderer says that begins now; nothing is held of what
    /// has ended.
    #[test]
    fn a_renderer_with_a_past_renders_as_a_new_one(
        steps in prop::collection::vec(step(), 1..250),
        format in prop_oneof![Just(Format::Text), Just(Format::OpenMetrics)],
    ) {
        const SECOND: u64 = 1_000_000_000;
        let owners = ["one", "two"];
        let mut tables = owners.map(table);
        let mut renderer = renderer(format);
        let mut now = 1000 * SECOND;
        for step in steps.into_iter().chain([Step::Page]) {
            now += 7 * SECOND;
            match step {
                Step::Put { table, metric, labels } => {
                    put_at(&tables[table], &[one_of_few(owners[table], metric, labels)], now);
                }
                Step::Expire => {
                    now += 300 * SECOND;
                    tables.iter().for_each(|table| table.expire(now));
                }
                Step::Leave { table } => tables[table] = self::table(owners[table]),
                Step::Learn => renderer.register_series(&tables, now),
                Step::Page => {
                    let fresh = sorted_lines(&mut super::renderer(format), &tables, now);
                    prop_assert_eq!(sorted_lines(&mut renderer, &tables, now), fresh);
                }
            }
        }
        let none = [self::table("none")];
        sorted_lines(&mut renderer, &none, now);
        prop_assert_eq!(renderer.families.iter().count(), 0);
        prop_assert!(renderer.interner.is_empty() && renderer.targets.is_empty());
    }
}
