// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::*;
use crate::{AttributeFilter, Declaration, Function, Grouping, OnStale, Pattern};

const NOW: u64 = 1_700_000_000_000_000_000;

/// An expression of two groups at most.
fn declared() -> Composite {
    Composite::new(Declaration {
        name: "derived".into(),
        description: "".into(),
        metric: Pattern::parse("depth").unwrap(),
        attributes: AttributeFilter::default(),
        expression: Some(Expression {
            text: "depth".into(),
            selects: Arc::new(|_| true),
        }),
        function: Function::Last,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by::<&str>([]),
        max_groups: 2,
        across: None,
        lease: None,
    })
}

/// An expression with these values, at most two of them, of one source that is alive.
fn computed(values: &'static [f64]) -> Composite {
    let composite = declared();
    composite.computed_by(move |_| {
        let values = values.iter().enumerate();
        let named = |at: usize| [("pod", &*at.to_string())].into_iter().collect();
        Ok(Evaluated {
            values: values.map(|(at, value)| (named(at), *value)).collect(),
            quality: Some(DataQuality {
                state: Freshness::Fresh,
                expected: 1,
                reporting: 1,
            }),
            ..Evaluated::default()
        })
    });
    composite.compute(NOW);
    composite
}

#[test]
fn what_is_not_finite_is_no_value_and_no_news() {
    let composite = computed(&[f64::NAN, f64::INFINITY]);
    let answers = composite.answers(NOW);
    let told: Vec<_> = answers
        .iter()
        .map(|answer| (answer.value, answer.state, answer.error.as_deref()))
        .collect();
    let expected = [
        (None, Freshness::Absent, Some("the expression gives NaN")),
        (None, Freshness::Absent, Some("the expression gives +Inf")),
    ];
    assert_eq!(told, expected);
    let version = composite.version();
    composite.compute(NOW + 1);
    assert_eq!(composite.version(), version);
    let mut shown = 0;
    composite.show(NOW, &mut |_| shown += 1);
    assert_eq!(shown, 0);
}

#[test]
fn a_reader_that_meets_a_computation_reads_the_last_value() {
    use std::sync::mpsc::sync_channel;
    use std::sync::{Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst};
    let composite = Arc::new(declared());
    let computations = Arc::new(AtomicUsize::new(0));
    let (arrive, arrived) = sync_channel(1);
    let (go, may_go) = sync_channel::<()>(0);
    let (may_go, counted) = (Mutex::new(may_go), computations.clone());
    composite.computed_by(move |_| {
        // The second one waits.
        if counted.fetch_add(1, SeqCst) == 1 {
            arrive.send(()).unwrap();
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(Evaluated::default())
    });
    composite.compute(NOW);
    // However slow the machine is.
    lock(&composite.computed.last).is_quick = true;
    let later = NOW + RECENT_NS;
    let computing = std::thread::spawn({
        let composite = composite.clone();
        move || composite.read(later)
    });
    arrived.recv().unwrap();
    assert!(composite.is_due(later));
    composite.read(later);
    assert_eq!(computations.load(SeqCst), 2, "the reader does not compute it");
    drop(go);
    computing.join().unwrap();
    lock(&composite.computed.last).is_quick = true;
    composite.read(later + RECENT_NS);
    assert_eq!(computations.load(SeqCst), 3);
}

#[test]
fn groups_without_a_place_make_the_others_partial() {
    let composite = computed(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    composite.compute(NOW + 1);
    let answers = composite.answers(NOW);
    let values: Vec<_> = answers
        .iter()
        .map(|answer| (answer.value, answer.state))
        .collect();
    assert_eq!(
        values,
        [(Some(1.0), Freshness::Partial), (Some(2.0), Freshness::Partial)]
    );
    assert_eq!(
        answers[0].collision.as_deref(),
        Some("3 groups are omitted: `max_groups` is 2")
    );
    assert_eq!(composite.overflowed_groups(), 3, "each once");
    let whole = computed(&[1.0, 2.0]);
    assert_eq!(whole.answers(NOW)[0].state, Freshness::Fresh);
    assert_eq!(whole.shortfalls(), Vec::<String>::new());
    assert_eq!(composite.shortfalls().len(), 1);
}

/// A query by label finds the group, also without a source.
#[test]
fn groups_of_sources_that_are_gone_keep_their_labels() {
    use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
    let composite = declared();
    let phase = Arc::new(AtomicU8::new(0));
    let now = phase.clone();
    composite.computed_by(move |_| {
        let (values, state) = match now.load(SeqCst) {
            0 => (
                vec![([("pod", "a")].into_iter().collect(), 1.0)],
                Freshness::Fresh,
            ),
            1 => (Vec::new(), Freshness::Stale),
            _ => (Vec::new(), Freshness::Absent),
        };
        Ok(Evaluated {
            values,
            quality: Some(DataQuality {
                state,
                expected: 1,
                reporting: usize::from(state == Freshness::Fresh),
            }),
            ..Evaluated::default()
        })
    });
    let told = |at: u8| {
        phase.store(at, SeqCst);
        composite.compute(NOW + u64::from(at));
        let answers = composite.answers(NOW + u64::from(at));
        let told: Vec<_> = answers
            .iter()
            .map(|answer| {
                assert_eq!(answer.known(answer.sum), answer.value);
                (answer.attributes.to_string(), answer.value, answer.state)
            })
            .collect();
        told
    };
    let pod = "pod=a".to_owned();
    assert_eq!(told(0), [(pod.clone(), Some(1.0), Freshness::Fresh)]);
    assert_eq!(told(1), [(pod, None, Freshness::Stale)]);
    assert_eq!(told(2), [(String::new(), None, Freshness::Absent)]);
}
