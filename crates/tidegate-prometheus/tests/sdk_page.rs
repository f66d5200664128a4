// SPDX-License-Identifier: Apache-2.0

//! A metric has the same text on a page of the gateway and on one of the SDK.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use tidegate_engine::{
    AttributeValue, Attributes, Buckets, Data, Exemplar, ExponentialHistogram, Histogram, Limits, Metric,
    Point, Rule, Series, Table, Temporality, Value,
};
use tidegate_metrics::{
    Exemplar as SdkExemplar, FamilyValues, GaugeMode, HistogramValue, Kind, SeriesValues, SpanRef,
    Value as SdkValue, text,
};
use tidegate_prometheus::{Format, Renderer, Style};

const NOW: u64 = 1_500_000_000;

/// The span of all exemplars.
const SPAN: SpanRef = SpanRef {
    trace: [0xab; 16],
    span: [0xcd; 8],
};

/// The value of an exemplar, and its time in milliseconds.
type Measured = (f64, u64);

/// A value as the SDK has it and as the gateway gets it.
#[derive(Clone, Debug)]
struct Sample {
    kind: Kind,
    of_sdk: SdkValue,
    data: Data,
    of_gateway: Value,
}

fn sum(monotonic: bool) -> Data {
    Data::Sum {
        monotonic,
        temporality: Temporality::Cumulative,
    }
}

fn any_number() -> impl Strategy<Value = Sample> {
    let counter = (0..i64::MAX).prop_map(|value| Sample {
        kind: Kind::Counter,
        of_sdk: SdkValue::Counter(value.cast_unsigned()),
        data: sum(true),
        of_gateway: Value::Int(value),
    });
    let float_counter = (0.0..1e18f64).prop_map(|value| Sample {
        kind: Kind::FloatCounter,
        of_sdk: SdkValue::FloatCounter(value),
        data: sum(true),
        of_gateway: Value::Double(value),
    });
    let up_down_counter = any::<i64>().prop_map(|value| Sample {
        kind: Kind::UpDownCounter,
        of_sdk: SdkValue::UpDownCounter(value),
        data: sum(false),
        of_gateway: Value::Int(value),
    });
    let gauge = any::<f64>().prop_map(|value| Sample {
        kind: Kind::Gauge(GaugeMode::Sum),
        of_sdk: SdkValue::Gauge(value),
        data: Data::Gauge,
        of_gateway: Value::Double(value),
    });
    prop_oneof![counter, float_counter, up_down_counter, gauge]
}

fn any_histogram() -> impl Strategy<Value = Sample> {
    let bounds = prop::collection::btree_set(-9..9i32, 0..5);
    let counts = prop::collection::vec(0..1000u64, 6);
    (bounds, counts, -100.0..100.0f64).prop_map(|(bounds, mut counts, sum)| {
        counts.truncate(bounds.len() + 1);
        let bounds: Arc<[f64]> = bounds.into_iter().map(|bound| f64::from(bound) / 4.0).collect();
        let of_gateway = Histogram {
            count: counts.iter().sum(),
            sum: Some(sum),
            min: None,
            max: None,
            bounds: bounds.clone(),
            counts: counts.clone(),
        };
        Sample {
            kind: Kind::Histogram {
                bounds: bounds.clone(),
            },
            of_sdk: SdkValue::Histogram(HistogramValue { bounds, counts, sum }),
            data: Data::Histogram {
                temporality: Temporality::Cumulative,
            },
            of_gateway: Value::Histogram(Box::new(of_gateway)),
        }
    })
}

fn any_side() -> impl Strategy<Value = Buckets> {
    let count = prop_oneof![2 => Just(0u64), 1 => 1..1000u64];
    (-500..500i32, prop::collection::vec(count, 0..100))
        .prop_map(|(offset, counts)| Buckets { offset, counts })
}

fn any_exponential() -> impl Strategy<Value = Sample> {
    let zero = (0..3u64, 0..3u8);
    (-10..=20i32, zero, any_side(), any_side(), -100.0..100.0f64).prop_map(
        |(scale, (zero_count, threshold), negative, positive, sum)| {
            let histogram = ExponentialHistogram {
                count: zero_count + negative.count() + positive.count(),
                sum: Some(sum),
                min: None,
                max: None,
                scale,
                zero_count,
                zero_threshold: f64::from(threshold) / 1000.0,
                positive,
                negative,
            };
            Sample {
                kind: Kind::ExponentialHistogram { max_scale: 20 },
                of_sdk: SdkValue::Exponential(histogram.clone()),
                data: Data::ExponentialHistogram {
                    temporality: Temporality::Cumulative,
                },
                of_gateway: Value::ExponentialHistogram(Box::new(histogram)),
            }
        },
    )
}

fn exemplar((value, millis): Measured) -> Exemplar {
    Exemplar {
        filtered_attributes: Attributes::default(),
        time: millis * 1_000_000,
        value: AttributeValue::Double(value),
        trace_id: SPAN.trace.to_vec(),
        span_id: SPAN.span.to_vec(),
    }
}

fn sdk_exemplar((value, millis): Measured) -> SdkExemplar {
    SdkExemplar {
        value,
        span: SPAN,
        time: UNIX_EPOCH + Duration::from_millis(millis),
    }
}

/// The page of the gateway for one series of a family, which the sample describes. Its exemplars have the ids in the
/// order of the SDK.
fn gateway_page(
    family: &FamilyValues,
    sample: &Sample,
    measured: Option<Measured>,
    format: Format,
) -> String {
    let labels = family.series.iter().flat_map(|series| &series.labels);
    let series = Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: family.name.as_str().into(),
            description: family.help.as_str().into(),
            unit: family.unit.as_str().into(),
            data: sample.data,
            metadata: Attributes::default(),
        }),
        attributes: labels
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
    };
    let point = Point {
        series: Arc::new(series),
        start: 0,
        time: NOW,
        value: sample.of_gateway.clone(),
        exemplars: measured.map(exemplar).into_iter().collect(),
    };
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    table.observe(&point, NOW);
    let mut renderer = Renderer::new(format, Style::default());
    let page = renderer.render(&[table], NOW);
    String::from_utf8_lossy(&page.body).into_owned()
}

proptest! {
    #[test]
    fn a_series_has_the_same_text_on_both_pages(
        name in "[a-c]{1,3}(_[a-c]{1,2})?",
        help in "[ab\"\\\\\n\\x00\u{e9}]{0,5}",
        unit in prop::sample::select(vec!["", "s", "By", "By/s", "1", "{item}"]),
        labels in prop::collection::btree_map("[d-h]{1,2}", "[ab\"\\\\\n\\x00\u{e9}]{1,5}", 0..3),
        sample in prop_oneof![any_number(), any_histogram(), any_exponential()],
        measured in prop::option::of((-9.0..9.0f64, 1..1500u64)),
    ) {
        // Neither page shows exemplars of other kinds.
        let is_traced = !matches!(sample.kind, Kind::UpDownCounter | Kind::Gauge(_));
        let measured = measured.filter(|_| is_traced);
        let family = FamilyValues {
            name,
            help,
            unit: unit.to_owned(),
            kind: sample.kind.clone(),
            series: vec![SeriesValues {
                labels: labels.into_iter().collect(),
                value: sample.of_sdk.clone(),
                exemplars: measured.map(sdk_exemplar).into_iter().collect(),
            }],
        };
        for (format, of_sdk) in [
            (Format::Text, text::Format::Prometheus),
            (Format::OpenMetrics, text::Format::OpenMetrics),
        ] {
            let expected = gateway_page(&family, &sample, measured, format);
            prop_assert_eq!(text::render(std::slice::from_ref(&family), of_sdk), expected);
        }
    }
}
