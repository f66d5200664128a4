// SPDX-License-Identifier: Apache-2.0

//! Deltas, which are added up.

use tidegate_engine::Outcome;

use super::*;

/// Intervals of a series one after the other; intervals that the table drops say so.
fn intervals(data: Data, values: [Value; 2]) -> [Vec<String>; 2] {
    let mut points = values.map(|value| point("x", "", data, value));
    for (at, point) in (1u64..).zip(&mut points) {
        (point.start, point.time) = (NOW + at, NOW + at + 1);
    }
    let table = table("test");
    for point in &points {
        assert_eq!(table.observe(point, NOW), Outcome::Absorbed);
    }
    let again = table.observe(&points[0], NOW);
    assert!(
        matches!(again, Outcome::Rejected(_)),
        "an interval that was there before: {again:?}"
    );
    let page = |format| {
        text(
            &mut Renderer::new(
                format,
                Style {
                    created: false,
                    ..Style::default()
                },
            ),
            std::slice::from_ref(&table),
        )
    };
    [Format::Text, Format::OpenMetrics].map(|format| {
        let page = page(format);
        let lines = page.lines().filter(|line| !line.starts_with("# "));
        lines.map(str::to_owned).collect()
    })
}

#[test]
fn a_delta_that_only_rises_is_added_up_to_a_counter() {
    let delta = Data::Sum {
        monotonic: true,
        temporality: Temporality::Delta,
    };
    let expected = vec!["x_total{a=\"b\"} 7".to_owned()];
    let shown = intervals(delta, [Value::Int(3), Value::Int(4)]);
    assert_eq!(shown, [expected.clone(), expected]);
}

#[test]
fn deltas_of_histograms_are_added_up() {
    let data = Data::Histogram {
        temporality: Temporality::Delta,
    };
    let shown = intervals(
        data,
        [
            histogram(&[1.0], &[1, 2], Some(4.0)),
            histogram(&[1.0], &[0, 5], Some(9.0)),
        ],
    );
    let text = [
        "x_bucket{a=\"b\",le=\"1\"} 1",
        "x_bucket{a=\"b\",le=\"+Inf\"} 8",
        "x_sum{a=\"b\"} 13",
        "x_count{a=\"b\"} 8",
    ];
    assert_eq!(shown[0], text);
    assert_eq!(shown[1], text.map(|line| line.replace("\"1\"", "\"1.0\"")));

    let exponential = |counts: [u64; 2], sum| {
        Value::ExponentialHistogram(Box::new(ExponentialHistogram {
            count: counts.iter().sum(),
            sum: Some(sum),
            positive: Buckets {
                offset: 0,
                counts: counts.into(),
            },
            ..ExponentialHistogram::default()
        }))
    };
    let data = Data::ExponentialHistogram {
        temporality: Temporality::Delta,
    };
    let [shown, _] = intervals(data, [exponential([1, 0], 2.0), exponential([2, 4], 15.0)]);
    let text = [
        "x_bucket{a=\"b\",le=\"2\"} 3",
        "x_bucket{a=\"b\",le=\"4\"} 7",
        "x_bucket{a=\"b\",le=\"+Inf\"} 7",
        "x_sum{a=\"b\"} 17",
        "x_count{a=\"b\"} 7",
    ];
    assert_eq!(shown, text);
}
