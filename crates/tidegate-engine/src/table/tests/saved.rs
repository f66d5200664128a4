// SPDX-License-Identifier: Apache-2.0

//! A table that is saved and restored at times shows the same as one that runs on.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;

use super::*;
use crate::table::{Frozen, Restored};

/// The same in every run, as what stands for a stream must be.
fn identify(series: &Series) -> StreamId {
    let mut id = StreamId::default();
    for (half, salt) in id.chunks_mut(8).zip([1u8, 2]) {
        let mut hasher = DefaultHasher::new();
        (salt, series).hash(&mut hasher);
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    id
}

pub(super) fn kept(rules: Vec<Rule>) -> Table {
    table(rules).identified_by(identify)
}

fn restarted(table: &Table, rules: Vec<Rule>) -> (Table, Restored) {
    let next = kept(rules);
    let restored = next.restore(&table.save()).expect("own bytes");
    (next, restored)
}

fn gauge(policy: GaugePolicy, output: &str) -> Rule {
    Rule {
        gauge: policy,
        output: Some(output.into()),
        ..by("g", &["zone"])
    }
}

fn rules() -> Vec<Rule> {
    vec![
        by("c", &["zone"]),
        by("d", &[]),
        by("u", &["zone"]),
        gauge(GaugePolicy::Sum, "g_sum"),
        gauge(GaugePolicy::Max, "g_max"),
        gauge(GaugePolicy::Last, "g_last"),
        by("h", &["zone"]),
        by("e", &[]),
        by("ev", &["agent"]),
    ]
}

const DATA: [(&str, Data); 6] = [
    ("c", COUNTER),
    ("d", DELTA),
    ("u", UP_DOWN),
    ("g", Data::Gauge),
    (
        "h",
        Data::Histogram {
            temporality: Temporality::Cumulative,
        },
    ),
    (
        "e",
        Data::ExponentialHistogram {
            temporality: Temporality::Cumulative,
        },
    ),
];

/// A value of this kind that has grown to `total`, in steps of one observation of 3.0.
fn value(data: Data, total: i64) -> Value {
    let count = total as u64;
    match data {
        Data::Histogram { .. } => Value::Histogram(Box::new(Histogram {
            count,
            sum: Some(3.0 * total as f64),
            min: Some(3.0),
            max: Some(3.0),
            bounds: Arc::from([1.0, 5.0]),
            counts: vec![0, count, 0],
        })),
        Data::ExponentialHistogram { .. } => Value::ExponentialHistogram(Box::new(ExponentialHistogram {
            count,
            sum: Some(3.0 * total as f64),
            positive: Buckets {
                offset: 1,
                counts: vec![count],
            },
            ..ExponentialHistogram::default()
        })),
        _ => Value::Int(total),
    }
}

/// A step: the stream number (a pod's of a kind), and its action.
#[derive(Clone, Debug)]
enum Act {
    Report(usize, i64),
    Repeat(usize),
    /// Restarts.
    Restart(usize),
    Events(u64),
    /// All are silent for this many seconds.
    Wait(u64),
    /// The gateway restarts.
    Gateway,
    /// The state is to be saved as it is now, later.
    Freeze,
}

fn act() -> impl Strategy<Value = Act> {
    let stream = 0..DATA.len() * 3;
    prop_oneof![
        8 => (stream.clone(), 0..50i64).prop_map(|(stream, more)| Act::Report(stream, more)),
        2 => stream.clone().prop_map(Act::Repeat),
        1 => stream.prop_map(Act::Restart),
        2 => (1..9u64).prop_map(Act::Events),
        1 => prop_oneof![Just(100u64), Just(310)].prop_map(Act::Wait),
        3 => Just(Act::Gateway),
        3 => Just(Act::Freeze),
    ]
}

/// A frozen state, and its bytes as they were at once.
type MaybeFrozen = Option<(Frozen, Vec<u8>)>;

/// Checks that changes after a freeze are not part of the frozen state.
fn check_frozen(kept_state: &mut MaybeFrozen) {
    let Some((frozen, at_once)) = kept_state.take() else {
        return;
    };
    let mut late = Vec::new();
    frozen.write(&mut late).expect("there is room");
    let [late, early] = [late, at_once].map(|bytes| {
        let table = kept(rules());
        let restored = table.restore(&bytes).expect("own bytes");
        // In another order: chunks that changed first come first.
        (restored, shown(&table), table.save().len())
    });
    assert_eq!(late, early);
}

/// The shown values, with their start times.
fn shown(table: &Table) -> BTreeMap<String, (u64, u64, Value)> {
    let mut all = BTreeMap::new();
    table.read(NOW, &mut |reading| {
        let name = format!("{:?}", reading.series);
        all.insert(name, (reading.start, reading.time, reading.value.clone()));
    });
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_restart_changes_nothing(acts in prop::collection::vec(act(), 1..60)) {
        let plain = kept(rules());
        let mut saved = kept(rules());
        let mut streams = vec![(0u64, 0i64, None::<Point>); DATA.len() * 3];
        let schema = Arc::new(Schema { kinds: vec![kind("ev", Instrument::Counter)] });
        let agent = source(&[("agent", "a")], Duration::from_secs(1_000_000));
        let mut now = NOW;
        let mut frozen: MaybeFrozen = None;
        for act in acts {
            // Long enough that every step looks for what has expired.
            now += 11 * SECOND;
            let point = match act {
                Act::Wait(seconds) => {
                    now += seconds * SECOND;
                    None
                }
                Act::Freeze => {
                    check_frozen(&mut frozen);
                    let at_once = saved.save();
                    frozen = Some((saved.freeze(), at_once));
                    None
                }
                Act::Gateway => {
                    check_frozen(&mut frozen);
                    saved = restarted(&saved, rules()).0;
                    // Receivers show the sources that they find, whether or not these measure anything.
                    if !plain.sources().is_empty() {
                        let none = Events { observed: now, ..events(&agent, &schema, &[]) };
                        saved.absorb(&none);
                    }
                    None
                }
                Act::Events(amount) => {
                    let batch = Events { observed: now, ..events(&agent, &schema, &[(0, amount)]) };
                    prop_assert_eq!(plain.absorb(&batch).absorbed, saved.absorb(&batch).absorbed);
                    None
                }
                Act::Repeat(stream) => streams[stream].2.clone(),
                Act::Restart(stream) => {
                    streams[stream] = (now, 0, None);
                    None
                }
                Act::Report(stream, more) => {
                    let (name, data) = DATA[stream / 3];
                    let (start, total, last) = &mut streams[stream];
                    if *start == 0 {
                        *start = now - 1;
                    }
                    *total = match data {
                        Data::Gauge => more,
                        _ if data == DELTA => more,
                        _ if data == UP_DOWN => *total + more - 20,
                        _ => *total + more,
                    };
                    let pod = (stream % 3).to_string();
                    let zone = ["x", "x", "y"][stream % 3];
                    let series = series(name, data, &[("pod", &pod), ("zone", zone)], &[]);
                    *last = Some(self::point(&series, *start, now, value(data, *total)));
                    last.clone()
                }
            };
            agent.lease.touch(now);
            if let Some(point) = point {
                prop_assert_eq!(plain.observe(&point, now), saved.observe(&point, now));
            }
            plain.expire(now);
            saved.expire(now);
            prop_assert_eq!(shown(&plain), shown(&saved));
        }
        check_frozen(&mut frozen);
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index) {
        let table = kept(rules());
        let _ = table.restore(&bytes);
        let _ = table.restore(&[vec![1], bytes].concat());
        let whole = kept(rules());
        whole.observe(&point(&series("c", COUNTER, &[("zone", "x")], &[]), 1, NOW, 5), NOW);
        let whole = whole.save();
        let _ = kept(rules()).restore(&whole[..at.index(whole.len())]);
    }
}

#[test]
fn sources_of_events_leave_with_the_process_and_what_they_counted_stays() {
    let rules = || vec![by("ev", &[]), by("level", &[])];
    let before = kept(rules());
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("ev", Instrument::Counter),
            kind("level", Instrument::UpDownCounter),
        ],
    });
    let agent = source(&[], Duration::from_secs(10));
    before.absorb(&events(&agent, &schema, &[(0, 5), (1, 7)]));
    assert_eq!((int(&before, "ev{}"), int(&before, "level{}")), (5, 7));
    let (after, restored) = restarted(&before, rules());
    assert_eq!(
        restored,
        Restored {
            series: 2,
            ..Restored::default()
        }
    );
    assert_eq!((int(&after, "ev{}"), int(&after, "level{}")), (5, 0));
}

#[test]
fn other_rules_take_over_what_they_still_make_and_count_nothing_twice() {
    let old = || vec![by("c", &["zone"]), by("u", &["zone"])];
    let before = kept(old());
    let counter = series("c", COUNTER, &[("zone", "x")], &[]);
    let level = series("u", UP_DOWN, &[("zone", "x")], &[]);
    before.observe(&point(&counter, 1, NOW, 100), NOW);
    before.observe(&point(&level, 1, NOW, 8), NOW);
    let new = || {
        let total = Rule {
            output: Some("c_all".into()),
            ..by("c", &[])
        };
        vec![by("c", &["zone"]), total, by("u", &[])]
    };
    let (after, restored) = restarted(&before, new());
    assert_eq!((restored.series, restored.streams, restored.outdated), (2, 2, 0));
    after.observe(&point(&counter, 1, NOW + 1, 110), NOW + 1);
    after.observe(&point(&level, 1, NOW + 1, 9), NOW + 1);
    assert_eq!(int(&after, "c{zone=x}"), 110);
    assert_eq!(int(&after, "c_all{}"), 10, "from the time of the rule on");
    assert_eq!((int(&after, "u{zone=x}"), int(&after, "u{}")), (0, 9));

    let bounds = |bounds: &[f64]| Rule {
        bounds: Some(bounds.into()),
        ..by("h", &[])
    };
    let data = DATA[4].1;
    let before = kept(vec![bounds(&[1.0])]);
    let histogram = series("h", data, &[("pod", "a")], &[]);
    before.observe(&point(&histogram, 1, NOW, value(data, 4)), NOW);
    let (after, restored) = restarted(&before, vec![bounds(&[2.0, 4.0])]);
    assert_eq!((restored.series, restored.outdated), (0, 1));
    after.observe(&point(&histogram, 1, NOW + 1, value(data, 5)), NOW + 1);
    let Some(Value::Histogram(shown)) = show(&after).remove("h{}") else {
        panic!("no histogram")
    };
    assert_eq!((shown.count, &*shown.bounds), (1, &[2.0, 4.0][..]));
}

#[test]
fn a_restored_series_has_the_description_that_its_rule_has_now() {
    let rules = |text: &str| {
        vec![Rule {
            description: Some(text.into()),
            ..by("c", &["zone"])
        }]
    };
    let pod = series("c", COUNTER, &[("pod", "a")], &[("zone", "z")]);
    let before = kept(rules("before"));
    before.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    let (next, restored) = restarted(&before, rules("after"));
    assert_eq!((restored.series, restored.streams), (1, 1));
    next.observe(&point(&pod, NOW, NOW + 2, 13), NOW + 2);
    assert_eq!(int(&next, "c{zone=z}"), 13);
    assert_eq!(super::succession::descriptions(&next), ["after"]);
}

#[test]
fn a_restored_series_keeps_its_text_if_its_rules_have_several() {
    // Each of the rules could make the series.
    let rules = |texts: [Option<&str>; 2]| {
        let of = |(name, text): (&str, Option<&str>)| Rule {
            output: Some("total".into()),
            description: text.map(Into::into),
            ..by(name, &["zone"])
        };
        ["c", "other"].into_iter().zip(texts).map(of).collect::<Vec<_>>()
    };
    let pod = series("c", COUNTER, &[("pod", "a")], &[("zone", "z")]);
    let before = kept(rules([Some("before"), Some("other")]));
    before.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    for (texts, expected) in [
        ([Some("after"), Some("other")], "before"),
        ([None, Some("other")], "before"),
        ([Some("after"), None], "before"),
        ([Some("after"), Some("after")], "after"),
    ] {
        let (next, _) = restarted(&before, rules(texts));
        assert_eq!(super::succession::descriptions(&next), [expected], "{texts:?}");
    }
}
