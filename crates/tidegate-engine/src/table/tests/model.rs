//! Tables against a slow, plain model: any order of reports, restarts, repetitions and silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// What one pod does in a step of the model test.
#[derive(Clone, Debug)]
enum Act {
    /// Counts so much and reports.
    Report(i64),
    /// Starts anew, then counts and reports.
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
        let kinds = (0..4).map(|number| Kind {
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
