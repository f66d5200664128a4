// SPDX-License-Identifier: Apache-2.0

//! Compares tables with a slow, simple model: any order of reports, restarts, repetitions and silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// The action of one pod in a step of the model test.
#[derive(Clone, Debug)]
enum Act {
    /// Increases its counter by this amount and reports.
    Report(i64),
    /// Restarts, then counts and reports.
    Restart(i64),
    /// Sends its last report again.
    Repeat,
    /// Sends a report from before its last one.
    Late,
    /// Is silent until its lease is overdue while the others go on.
    Sleep,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..100i64).prop_map(Act::Report),
        1 => (0..100i64).prop_map(Act::Restart),
        1 => Just(Act::Repeat),
        1 => Just(Act::Late),
        1 => Just(Act::Sleep),
    ]
}

#[derive(Clone, Default)]
struct Pod {
    start: u64,
    total: i64,
    sent: Option<(u64, u64, i64)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The model: a group's counter is what its pods have ever counted, as far as they have reported it.
    #[test]
    fn counters_equal_the_model_through_restarts_repetitions_and_silence(
        steps in prop::collection::vec((0usize..4, act()), 1..120),
    ) {
        let table = table(vec![by("requests", &["zone"]), Rule { output: Some("all".into()), ..by("requests", &[]) }]);
        let zones = ["x", "x", "y", "y"];
        let of = |pod: usize| series("requests", COUNTER, &[("pod", &pod.to_string()), ("zone", zones[pod])], &[]);
        let mut pods = vec![Pod::default(); 4];
        let mut model: BTreeMap<&str, i64> = BTreeMap::new();
        let mut last_seen = 0;
        let mut now = NOW;
        for (number, act) in steps {
            now += SECOND;
            let pod = &mut pods[number];
            let report = match act {
                Act::Report(more) | Act::Restart(more) => {
                    if matches!(act, Act::Restart(_)) || pod.start == 0 {
                        *pod = Pod { start: now - 1, ..Pod::default() };
                    }
                    pod.total += more;
                    *model.entry(zones[number]).or_default() += more;
                    Some((pod.start, now, pod.total))
                }
                Act::Repeat => pod.sent,
                Act::Late => pod.sent.map(|(start, time, total)| (start, time - SECOND / 2, total - total / 3)),
                Act::Sleep => {
                    now += 310 * SECOND;
                    // The others stay awake, and one that counts nothing keeps the overall group from dying out.
                    let anchor = series("requests", COUNTER, &[("pod", "anchor")], &[("zone", "z")]);
                    table.observe(&point(&anchor, NOW, now, 0), now);
                    for (number, pod) in pods.iter_mut().enumerate().filter(|(other, _)| *other != number) {
                        if let Some((start, _, total)) = pod.sent {
                            pod.sent = Some((start, now, total));
                            table.observe(&point(&of(number), start, now, total), now);
                        }
                    }
                    None
                }
            };
            if let Some((start, time, total)) = report {
                table.observe(&point(&of(number), start, time, total), now);
                if matches!(act, Act::Report(_) | Act::Restart(_)) {
                    pods[number].sent = report;
                }
            }
            table.expire(now);
            let all = show(&table);
            for (zone, expected) in &model {
                // A group whose pods were all silent has gone, and begins again at what they report then.
                if let Some(Value::Int(shown)) = all.get(&format!("requests{{zone={zone}}}")) {
                    prop_assert!(shown <= expected);
                }
            }
            let total = model.values().sum::<i64>();
            if let Some(Value::Int(shown)) = all.get("all{}") {
                prop_assert!(*shown >= last_seen, "fell from {} to {}", last_seen, shown);
                prop_assert_eq!(*shown, total);
                last_seen = *shown;
            }
        }
    }

    /// The model: what was counted in every run, the newest value of gauges, and the newest of each stream for sums that
    /// may fall; points come in any order, some of them twice.
    #[test]
    fn any_order_and_any_repetition_come_to_the_same(
        steps in prop::collection::vec((0usize..3, 0i64..50, any::<bool>()), 1..40),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
    ) {
        let cumulative = Temporality::Cumulative;
        let kinds = [
            ("total", COUNTER),
            ("delta", DELTA),
            ("level", Data::Gauge),
            ("up_down", UP_DOWN),
            ("wait", Data::Histogram { temporality: cumulative }),
            ("delta_wait", Data::Histogram { temporality: Temporality::Delta }),
        ];
        let rules = kinds.iter().map(|(name, _)| by(name, &[])).collect();
        let table = table(rules);
        let of = |pod: usize, kind: usize| series(kinds[kind].0, kinds[kind].1, &[("pod", &pod.to_string())], &[]);
        let bounds: Arc<[f64]> = Arc::from([10.0, 30.0]);
        let mut now = NOW;
        // Of each pod: start, end of the last delta, total, histogram, and whether it has restarted already.
        let mut pods = vec![(0u64, 0u64, 0i64, Histogram::empty(bounds.clone()), false); 3];
        let (mut points, mut total) = (Vec::new(), 0);
        let mut waits = Histogram::empty(bounds.clone());
        let (mut level, mut levels) = (0, [None; 3]);
        for (number, more, restarts) in steps {
            now += SECOND;
            let pod = &mut pods[number];
            if pod.0 == 0 || (restarts && !pod.4) {
                *pod = (now - 2, if pod.1 == 0 { now - 2 } else { pod.1 }, 0, Histogram::empty(bounds.clone()), pod.0 != 0);
            }
            pod.2 += more;
            pod.3.observe(more as f64, 1);
            total += more;
            waits.observe(more as f64, 1);
            (level, levels[number]) = (more, Some(more));
            let mut one = Histogram::empty(bounds.clone());
            one.observe(more as f64, 1);
            let values: [(u64, Value); 6] = [
                (pod.0, Value::Int(pod.2)),
                (pod.1, Value::Int(more)),
                (0, Value::Int(more)),
                (pod.0, Value::Int(more)),
                (pod.0, Value::Histogram(Box::new(pod.3.clone()))),
                (pod.1, Value::Histogram(Box::new(one))),
            ];
            for (kind, (start, value)) in values.into_iter().enumerate() {
                points.push(point(&of(number, kind), start, now, value));
            }
            pod.1 = now;
        }
        // First some of them in any order, then those that were not sent.
        let mut left: Vec<bool> = vec![true; points.len()];
        for index in order {
            let at = index.index(points.len());
            left[at] = false;
            table.observe(&points[at], now);
        }
        for (point, _) in points.iter().zip(&left).filter(|(_, left)| **left) {
            table.observe(point, now);
        }
        let all = show(&table);
        prop_assert_eq!(&all["total{}"], &Value::Int(total));
        prop_assert_eq!(&all["delta{}"], &Value::Int(total));
        prop_assert_eq!(&all["level{}"], &Value::Int(level));
        prop_assert_eq!(&all["up_down{}"], &Value::Int(levels.iter().flatten().sum::<i64>()));
        for name in ["wait{}", "delta_wait{}"] {
            let Value::Histogram(shown) = &all[name] else { panic!("{name}") };
            prop_assert_eq!((&shown.counts, shown.count, shown.sum), (&waits.counts, waits.count, waits.sum), "{}", name);
        }
    }

    /// The model: fold every event by hand.
    #[test]
    fn folded_events_equal_what_adding_one_by_one_gives(
        batches in prop::collection::vec((0usize..3, prop::collection::vec((0u16..4, 0u64..2000), 0..40)), 1..20),
    ) {
        let bounds: Arc<[f64]> = Arc::from([1.0, 10.0, 500.0, 1000.0]);
        let rule = |output: &str, instrument| Rule {
            output: Some(output.into()),
            instrument: Some(instrument),
            bounds: Some(bounds.clone()),
            ..by("*", &["kind"])
        };
        let table = table(vec![rule("sum", Instrument::Counter), rule("spread", Instrument::Histogram)]);
        let kinds = (0..4).map(|number| EventKind {
            attributes: attributes(&[("kind", &number.to_string())]),
            ..kind("events", Instrument::Counter)
        });
        let schema = Arc::new(Schema { kinds: kinds.collect() });
        let sources: Vec<_> = (0..3).map(|_| source(&[], HOUR)).collect();
        let mut model: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for (number, columns) in batches {
            table.absorb(&events(&sources[number], &schema, &columns));
            for (kind, value) in columns {
                model.entry(kind).or_default().push(value);
            }
            if model.len().is_multiple_of(2) {
                show(&table);
            }
        }
        let all = show(&table);
        for (kind, values) in model {
            let mut expected = Histogram::empty(bounds.clone());
            values.iter().for_each(|value| expected.observe(*value as f64, 1));
            prop_assert_eq!(&all[&format!("sum{{kind={kind}}}")], &Value::Int(values.iter().sum::<u64>() as i64));
            prop_assert_eq!(&all[&format!("spread{{kind={kind}}}")], &Value::Histogram(Box::new(expected)));
        }
    }
}
