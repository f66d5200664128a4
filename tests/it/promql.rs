//! The query language against a real Prometheus that holds the same samples.

use super::kit::Prometheus;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tidegate_engine::query::{
    FloatHistogram, Instant, Labels, Millis, NAME, Query, QuerySeries, Sample, SampleValue,
};

/// Whole queries, one a line.
const QUERIES: &str = include_str!("../data/promql/queries.txt");

/// The first tick, in milliseconds: long ago, and the same in every run. Not a round number: whether a range has its
/// first instant is where versions of Prometheus differ, and whole seconds are where queries begin theirs.
pub(super) const BASE: i64 = 1_700_000_001_700;
pub(super) const TICK: i64 = 10_000;
pub(super) const TICKS: i64 = 121;

/// Series in memory.
pub(super) type Recorded = Vec<QuerySeries>;

/// A number between 0 and 1 that is the same in every run, for a series and a tick.
pub(super) fn noise(series: u64, tick: i64) -> f64 {
    let mut bits =
        series.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (tick as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^= bits >> 32;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Counters with resets, gauges with gaps and signs, classic histograms, and the names that planners ask for.
fn recorded() -> Recorded {
    let mut all = Vec::new();
    let mut series = |name: &str, pairs: &[(&str, &str)], value: &dyn Fn(i64) -> Option<f64>| {
        let labels = pairs.iter().copied().chain([(NAME, name)]).collect();
        let at = |tick: i64| {
            Some(Sample {
                time: BASE + tick * TICK,
                value: value(tick)?,
            })
        };
        let samples = (0..TICKS).filter_map(at).collect();
        all.push(QuerySeries::of_floats(labels, samples));
    };
    let counter = |seed: u64, step: f64, reset_at: i64| {
        move |tick: i64| {
            let from = if tick >= reset_at { reset_at } else { 0 };
            Some((from..=tick).map(|tick| (noise(seed, tick) * step).floor()).sum())
        }
    };
    let mut seed = 0;
    for (job, instance) in [("api", "i1"), ("api", "i2"), ("web", "i1")] {
        for (code, step) in [("200", 40.0), ("500", 3.0)] {
            seed += 1;
            let labels = [("job", job), ("instance", instance), ("code", code)];
            series(
                "requests_total",
                &labels,
                &counter(seed, step, 37 + 13 * seed as i64),
            );
        }
    }
    for (pod, zone) in [("p1", "x"), ("p2", "x"), ("p3", "y"), ("p4", "y")] {
        seed += 1;
        let seed = seed;
        series("queue_depth", &[("pod", pod), ("zone", zone)], &move |tick| {
            // No two are ever the same: among equals any may be the first.
            Some((noise(seed, tick) * 40.0).floor() + (seed % 4) as f64 / 4.0)
        });
        let memory = move |tick: i64| Some(1e6 * (10.0 + tick as f64 / 10.0 + noise(seed + 50, tick)));
        series("memory_bytes", &[("pod", pod)], &memory);
        series(
            "vllm:num_requests_waiting",
            &[("pod", pod), ("model_name", "m")],
            &move |tick| Some((noise(seed + 100, tick) * 9.0).floor()),
        );
        series(
            "vllm:num_requests_running",
            &[("pod", pod), ("model_name", "m")],
            &move |tick| Some((noise(seed + 150, tick) * 30.0).floor()),
        );
        series(
            "vllm:gpu_cache_usage_perc",
            &[("pod", pod), ("model_name", "m")],
            &move |tick| Some(noise(seed + 200, tick)),
        );
    }
    series("queue_limit", &[("pod", "p1"), ("zone", "x")], &|_| Some(40.0));
    series("zone_weight", &[("zone", "x"), ("region", "eu")], &|_| Some(15.0));
    series("zone_weight", &[("zone", "y"), ("region", "us")], &|_| Some(0.5));
    series("sometimes", &[("job", "batch")], &|tick| {
        (tick % 40 < 8).then(|| noise(7, tick) - 0.5)
    });
    for zone in ["x", "y"] {
        seed += 1;
        for (le, share) in [("0.1", 0.2), ("0.5", 0.5), ("1", 0.7), ("5", 0.95), ("+Inf", 1.0)] {
            let all = counter(seed, 50.0, 70);
            series(
                "wait_seconds_bucket",
                &[("zone", zone), ("le", le)],
                &move |tick| all(tick).map(|count| (count * share).floor()),
            );
        }
        series("wait_seconds_count", &[("zone", zone)], &counter(seed, 50.0, 70));
        series(
            "wait_seconds_sum",
            &[("zone", zone)],
            &counter(seed + 20, 90.0, 70),
        );
    }
    for name in [
        "requests_total",
        "time_to_first_token_seconds_sum",
        "time_to_first_token_seconds_count",
    ] {
        seed += 1;
        series(
            &format!("dynamo_frontend_{name}"),
            &[("model", "m")],
            &counter(seed, 20.0, 1000),
        );
    }
    all
}

/// As OpenMetrics, for a server to be filled with.
fn open_metrics(recorded: &Recorded) -> String {
    let mut families: BTreeMap<&str, String> = BTreeMap::new();
    for series in recorded {
        let name = series.labels.get(NAME);
        let pairs = series.labels.iter().filter(|(label, _)| &***label != NAME);
        let pairs: Vec<String> = pairs.map(|(label, value)| format!("{label}={value:?}")).collect();
        let text = families.entry(name).or_default();
        for sample in &series.samples {
            let _ = writeln!(
                text,
                "{name}{{{}}} {} {}",
                pairs.join(","),
                sample.value,
                sample.time as f64 / 1000.0
            );
        }
    }
    let families = families
        .iter()
        .map(|(name, lines)| format!("# TYPE {name} unknown\n{lines}"));
    families.collect::<String>() + "# EOF\n"
}

/// An answer as Prometheus's API has it: type, then labels with values.
pub(super) type Answer = Result<(String, Vec<Shown>), String>;

/// Labels, and times with values.
pub(super) type Shown = (BTreeMap<String, String>, Vec<(f64, Vec<f64>)>);

fn ours(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// A number is itself; a native histogram its count, its sum, and its buckets as the API shows them.
fn at(time: Millis, value: &SampleValue) -> (f64, Vec<f64>) {
    let numbers = match value {
        SampleValue::Float(number) => vec![*number],
        SampleValue::Histogram(histogram) => numbers(histogram),
    };
    (time as f64 / 1000.0, numbers)
}

fn numbers(histogram: &FloatHistogram) -> Vec<f64> {
    let buckets = histogram.buckets().into_iter();
    let buckets = buckets.flat_map(|b| [f64::from(b.rule as u8), b.lower, b.upper, b.count]);
    [histogram.count, histogram.sum]
        .into_iter()
        .chain(buckets)
        .collect()
}

pub(super) fn our_instant(recorded: &Recorded, query: &str, time: Millis) -> Answer {
    let answer = Query::parse(query).and_then(|query| query.instant(recorded, time));
    Ok(match answer.map_err(|error| error.to_string())? {
        Instant::Scalar(number) => (
            "scalar".to_owned(),
            vec![(BTreeMap::new(), vec![at(time, &SampleValue::Float(number))])],
        ),
        Instant::String(text) => (format!("string {text}"), Vec::new()),
        Instant::Vector(vector) => {
            let series = vector
                .iter()
                .map(|(labels, value)| (ours(labels), vec![at(time, value)]));
            ("vector".to_owned(), series.collect())
        }
        Instant::Matrix(series) => ("matrix".to_owned(), matrix(series)),
    })
}

pub(super) fn matrix(series: Vec<QuerySeries>) -> Vec<Shown> {
    let samples = |series: &QuerySeries| {
        let floats = series.samples.iter();
        let floats = floats.map(|sample| at(sample.time, &SampleValue::Float(sample.value)));
        let histograms = series.histograms.iter();
        let histograms =
            histograms.map(|sample| at(sample.time, &SampleValue::Histogram(sample.value.clone())));
        floats.chain(histograms).collect()
    };
    series
        .iter()
        .map(|series| (ours(&series.labels), samples(series)))
        .collect()
}

pub(super) fn theirs(answer: &Json) -> Answer {
    if answer["status"] != "success" {
        return Err(answer["error"].as_str().unwrap_or_default().to_owned());
    }
    let (kind, result) = (
        answer["data"]["resultType"].as_str().unwrap(),
        &answer["data"]["result"],
    );
    let sample = |sample: &Json| {
        let value = &sample[1];
        let buckets = value["buckets"].as_array().into_iter().flatten();
        let buckets = buckets.flat_map(|bucket| bucket.as_array().unwrap());
        let numbers = match value {
            Json::String(_) => vec![number(value)],
            _ => [&value["count"], &value["sum"]]
                .into_iter()
                .chain(buckets)
                .map(number)
                .collect(),
        };
        (sample[0].as_f64().unwrap(), numbers)
    };
    let series = |series: &Json| {
        let labels = series["metric"].as_object().into_iter().flatten();
        let labels = labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let of = |kind: &str| series[kind].as_array().into_iter().flatten();
        let one = ["value", "histogram"].map(|kind| series.get(kind));
        let values = of("values")
            .chain(of("histograms"))
            .chain(one.into_iter().flatten());
        (labels, values.map(sample).collect())
    };
    Ok(match kind {
        "string" => (format!("string {}", result[1].as_str().unwrap()), Vec::new()),
        "scalar" => ("scalar".to_owned(), vec![(BTreeMap::new(), vec![sample(result)])]),
        _ => (
            kind.to_owned(),
            result.as_array().unwrap().iter().map(series).collect(),
        ),
    })
}

fn number(text: &Json) -> f64 {
    match text {
        Json::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

/// Equal but for the last bits of sums that are added up in another order.
fn close(a: f64, b: f64) -> bool {
    let scale = a.abs().max(b.abs()).max(1e-6);
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * scale
}

/// What differs, if anything does. The order counts where the query says it.
pub(super) fn differ(query: &str, ours: &Answer, theirs: &Answer) -> Option<String> {
    match (ours, theirs) {
        // Each says it in its own words.
        (Err(_), Err(_)) => None,
        (Ok((our_kind, ours)), Ok((their_kind, theirs))) => {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            // The order counts where the query says it, but for series of one value.
            let values =
                |shown: &[Shown]| -> Vec<f64> { shown.iter().map(|(_, values)| values[0].1[0]).collect() };
            let in_order = ["sort", "topk(", "bottomk("]
                .iter()
                .any(|word| query.starts_with(word));
            let ordered = !in_order
                || values(&ours)
                    .iter()
                    .zip(values(&theirs))
                    .all(|(a, b)| close(*a, b));
            ours.sort_by(|a, b| a.0.cmp(&b.0));
            theirs.sort_by(|a, b| a.0.cmp(&b.0));
            let same = ordered
                && our_kind == their_kind
                && ours.len() == theirs.len()
                && ours.iter().zip(&theirs).all(|(a, b)| {
                    a.0 == b.0
                        && a.1.len() == b.1.len()
                        && a.1.iter().zip(&b.1).all(|(a, b)| {
                            a.0 == b.0
                                && a.1.len() == b.1.len()
                                && a.1.iter().zip(&b.1).all(|(a, b)| close(*a, *b))
                        })
                });
            (!same).then(|| format!("{our_kind} {ours:?}\n  theirs {their_kind} {theirs:?}"))
        }
        (ours, theirs) => Some(format!("{ours:?}\n  theirs {theirs:?}")),
    }
}

#[test]
fn three_hundred_queries_have_the_values_that_a_real_prometheus_gives() {
    let recorded = recorded();
    let server = Prometheus::holding(&open_metrics(&recorded));
    let queries: Vec<&str> = QUERIES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(queries.len() >= 300, "{}", queries.len());
    let mut differences = Vec::new();
    for time in [BASE + 403_900, BASE + 777_100, BASE + 1_203_700] {
        for query in &queries {
            let seconds = (time as f64 / 1000.0).to_string();
            let answer = server.api("/api/v1/query", &[("query", query), ("time", &seconds)]);
            let difference = differ(query, &our_instant(&recorded, query, time), &theirs(&answer));
            differences.extend(difference.map(|what| format!("{query} at {seconds}: {what}")));
        }
    }
    let (start, end, step) = (BASE + 613_600, BASE + 1_170_000, 37_000);
    for query in &queries {
        let bounds = [start, end, step].map(|time| (time as f64 / 1000.0).to_string());
        let form = [
            ("query", *query),
            ("start", &bounds[0]),
            ("end", &bounds[1]),
            ("step", &bounds[2]),
        ];
        let answer = server.api("/api/v1/query_range", &form);
        let ours = Query::parse(query).and_then(|query| query.range(&recorded, start, end, step));
        let ours = ours
            .map(|series| ("matrix".to_owned(), matrix(series)))
            .map_err(|error| error.to_string());
        let sorted = format!("range {query}");
        let difference = differ(&sorted, &ours, &theirs(&answer));
        differences.extend(difference.map(|what| format!("{query} in steps: {what}")));
    }
    let shown: Vec<_> = differences
        .iter()
        .map(|text| text.chars().take(700).collect::<String>())
        .take(25)
        .collect();
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        shown.join("\n")
    );
}
