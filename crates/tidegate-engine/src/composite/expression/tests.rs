use std::time::Duration;

use super::*;
use crate::{AttributeFilter, Declaration, Function, Grouping, OnStale, Pattern};

const NOW: u64 = 1_700_000_000_000_000_000;

/// An expression with these values, at most two of them, of one source that is alive.
fn computed(values: &'static [f64]) -> Composite {
    let composite = Composite::new(Declaration {
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
    });
    composite.computed_by(move |_| {
        let values = values.iter().enumerate();
        let named = |at: usize| [("pod", &*at.to_string())].into_iter().collect();
        Ok(Evaluated {
            values: values.map(|(at, value)| (named(at), *value)).collect(),
            trust: Some(Trust {
                state: State::Fresh,
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
        (None, State::Absent, Some("the expression gives NaN")),
        (None, State::Absent, Some("the expression gives +Inf")),
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
fn groups_without_a_place_make_the_others_partial() {
    let composite = computed(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    composite.compute(NOW + 1);
    let answers = composite.answers(NOW);
    let values: Vec<_> = answers
        .iter()
        .map(|answer| (answer.value, answer.state))
        .collect();
    assert_eq!(values, [(Some(1.0), State::Partial), (Some(2.0), State::Partial)]);
    assert_eq!(
        answers[0].collision.as_deref(),
        Some("3 groups are left out: `max_groups` is 2")
    );
    assert_eq!(composite.overflowed_groups(), 3, "each once");
    let whole = computed(&[1.0, 2.0]);
    assert_eq!(whole.answers(NOW)[0].state, State::Fresh);
    assert_eq!(whole.shortfalls(), Vec::<String>::new());
    assert_eq!(composite.shortfalls().len(), 1);
}
