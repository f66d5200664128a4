// SPDX-License-Identifier: Apache-2.0

//! The samples that both are asked about.

use std::sync::Arc;
use tidegate_engine::{Buckets, ExponentialHistogram};
use tidegate_promql::{FloatHistogram, HistogramSample, Labels, Millis, NAME, QuerySeries, Sample};

/// The first tick, in milliseconds: long ago, and the same in every run. Not a round number: whether a range has its
/// first instant is where versions of Prometheus differ, and whole seconds are where queries begin theirs.
pub(crate) const BASE: i64 = 1_700_000_001_700;
pub(crate) const TICK: i64 = 10_000;
pub(crate) const TICKS: i64 = 121;

/// A number between 0 and 1 that is the same in every run, for a series and a tick.
fn noise(series: u64, tick: i64) -> f64 {
    let mut bits =
        series.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (tick as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits ^= bits >> 32;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Counters with resets, gauges with gaps and signs, classic histograms, and the names that planners ask for.
fn numbers() -> Recording {
    let mut all = Recording::new();
    let mut series = |name: &str, pairs: &[(&str, &str)], value: &dyn Fn(i64) -> Option<f64>| {
        let labels = pairs.iter().copied().chain([(NAME, name)]).collect();
        let samples = (0..TICKS).filter_map(|tick| Some((BASE + tick * TICK, Err(value(tick)?))));
        all.push((labels, samples.collect()));
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
            "vllm:kv_cache_usage_perc",
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

/// A histogram of some observations.
fn of(scale: i32, zero_threshold: f64, values: &[f64]) -> ExponentialHistogram {
    let index = |value: f64| ((value.abs().log2() * f64::from(scale).exp2()).ceil() as i32) - 1;
    let side = |is_mine: &dyn Fn(f64) -> bool| {
        let mine = values
            .iter()
            .copied()
            .filter(|value| value.abs() > zero_threshold && is_mine(*value));
        let indices: Vec<i32> = mine.map(index).collect();
        let (first, last) = (indices.iter().min(), indices.iter().max());
        let mut buckets = Buckets::default();
        if let (Some(first), Some(last)) = (first, last) {
            buckets.offset = *first;
            buckets.counts = vec![0; (last - first + 1) as usize];
            indices
                .iter()
                .for_each(|index| buckets.counts[(index - first) as usize] += 1);
        }
        buckets
    };
    ExponentialHistogram {
        count: values.len() as u64,
        // Sixteenths, so that no order of adding them up matters.
        // Of no values it would be -0, which is not sent.
        sum: Some(values.iter().sum::<f64>() + 0.0),
        scale,
        zero_count: values
            .iter()
            .filter(|value| value.abs() <= zero_threshold)
            .count() as u64,
        zero_threshold,
        positive: side(&|value| value > 0.0),
        negative: side(&|value| value < 0.0),
        ..ExponentialHistogram::default()
    }
}

/// The observations up to a tick, since the last reset.
fn observed(seed: u64, tick: i64, reset_at: i64, value: impl Fn(f64) -> f64) -> Vec<f64> {
    let from = if tick >= reset_at { reset_at } else { -12 };
    let of_tick = |tick: i64| (0..5).map(move |n| noise(seed * 10 + n, tick));
    (from..=tick)
        .flat_map(of_tick)
        .map(|noise| (value(noise) * 16.0).round() / 16.0)
        .collect()
}

/// Samples of a series: histograms, or numbers in between.
pub(crate) type Mixed = Vec<(Millis, Value)>;
pub(crate) type Value = Result<ExponentialHistogram, f64>;
pub(crate) type Recording = Vec<(Labels, Mixed)>;

/// Histograms of several resolutions, with resets, gaps and zero buckets of several widths, and numbers.
fn histograms() -> Recording {
    let mut all = Recording::new();
    let mut series = |name: &str,
                      pairs: &[(&str, &str)],
                      value: &dyn Fn(i64) -> Option<Result<ExponentialHistogram, f64>>| {
        let labels = pairs.iter().copied().chain([(NAME, name)]).collect();
        let samples = (0..TICKS).filter_map(|tick| Some((BASE + tick * TICK, value(tick)?)));
        all.push((labels, samples.collect()));
    };
    let latency = |noise: f64| 0.0625 + 40.0 * noise.powi(4);
    for (seed, (pod, zone, reset_at)) in [
        ("p1", "x", 1000),
        ("p2", "x", 63),
        ("p3", "y", 38),
        ("p4", "y", 1000),
    ]
    .into_iter()
    .enumerate()
    {
        let pairs = [("pod", pod), ("zone", zone)];
        let seed = seed as u64 + 1;
        series("latency_seconds", &pairs, &|tick| {
            let scale = match pod {
                "p3" => 1,
                "p4" if tick >= 60 => 2,
                _ => 3,
            };
            Some(Ok(of(scale, 1e-9, &observed(seed, tick, reset_at, latency))))
        });
        series("limit_seconds", &pairs, &|tick| {
            Some(Err(noise(seed + 70, tick) * 9.0))
        });
    }
    for (node, threshold) in [("a", 0.125), ("b", 0.5), ("c", 0.125)] {
        series("drift", &[("node", node)], &|tick| {
            let values = observed(20, tick, 1000, |noise| (noise - 0.4) * 6.0);
            Some(Ok(of(2, threshold, &values)))
        });
    }
    series("seldom_seconds", &[("job", "batch")], &|tick| {
        (tick % 40 < 8).then(|| Ok(of(2, 0.0, &observed(31, tick, 1000, latency))))
    });
    series("early", &[("kind", "mixed")], &|tick| {
        Some(if tick < 66 {
            Err(tick as f64)
        } else {
            Ok(of(2, 0.0, &observed(33, tick, 1000, latency)))
        })
    });
    all
}

/// Cases that are easily computed wrong: values without bounds, equal ones, sums that cancel, dates, invalid buckets,
/// and metrics that are numbers and histograms at once.
fn edges() -> Recording {
    let mut all = Recording::new();
    let mut series = |name: &str,
                      pairs: &[(&str, &str)],
                      value: &dyn Fn(i64) -> Option<Result<ExponentialHistogram, f64>>| {
        let labels = pairs.iter().copied().chain([(NAME, name)]).collect();
        let samples = (0..TICKS).filter_map(|tick| Some((BASE + tick * TICK, value(tick)?)));
        all.push((labels, samples.collect()));
    };
    for (kind, value) in [
        ("nan", f64::NAN),
        ("inf", f64::INFINITY),
        ("minus_inf", f64::NEG_INFINITY),
        ("zero", 0.0),
        ("half", 0.5),
        ("minus_half", -2.5),
        ("huge", 1.7e308),
        ("tiny", 5e-324),
    ] {
        series("edge", &[("kind", kind)], &|_| Some(Err(value)));
    }
    for n in ["1", "2", "3"] {
        series("same", &[("n", n)], &|_| Some(Err(1.5990505637277868)));
        series("big", &[("n", n)], &|_| Some(Err(1e308)));
    }
    for (n, value) in [("1", 1.0), ("2", 1e100), ("3", 1.0), ("4", -1e100)] {
        series("cancelling", &[("n", n)], &|_| Some(Err(value)));
    }
    series("cancelling_in_time", &[], &|tick| {
        Some(Err([1.0, 1e100, 1.0, -1e100][tick as usize % 4]))
    });
    for (event, seconds) in [
        ("epoch", 0.0),
        ("before", -1.5),
        ("leap_day", 951_782_400.0),
        ("day_before", 951_782_399.0),
        ("no_leap_century", 4_107_542_399.0),
        ("new_year", 1_735_689_600.0),
        ("long_ago", -12_219_292_800.0),
    ] {
        series("event_seconds", &[("event", event)], &|tick| {
            Some(Err(seconds + 3607.0 * tick as f64))
        });
    }
    for version in ["v1", "v2", "v10", "v1.2", "v1.10", "v01", ""] {
        series("build_info", &[("version", version), ("job", "api")], &|_| {
            Some(Err(1.0))
        });
    }
    // Bounds that are none, a histogram without the last bucket, one whose counts fall, and one with negative bounds.
    for (of, bounds) in [
        ("bad", &["a", "", "+Inf"][..]),
        ("open", &["1", "2"][..]),
        ("falling", &["1", "2", "4", "+Inf"][..]),
        ("negative", &["-2", "-1", "0", "+Inf"][..]),
        ("empty", &["1", "+Inf"][..]),
        ("twice", &["1", "1.0", "2", "2e0", "+Inf"][..]),
    ] {
        for (at, le) in bounds.iter().enumerate() {
            let at = at as i64;
            series("odd_bucket", &[("of", of), ("le", le)], &|tick| {
                Some(Err(match of {
                    "empty" => 0.0,
                    "falling" => ((tick + 1) * [3, 2, 5, 4][at as usize]) as f64,
                    _ => ((tick + 1) * (at + 1)) as f64,
                }))
            });
        }
    }
    // Classic and native buckets under one name; numbers and histograms in turns.
    for (le, share) in [("1", 1.0), ("2", 2.0), ("+Inf", 4.0)] {
        series("both", &[("pod", "p1"), ("le", le)], &|tick| {
            Some(Err(share * (tick + 1) as f64))
        });
    }
    for pod in ["p1", "p2"] {
        series("both", &[("pod", pod)], &|tick| {
            Some(Ok(of(1, 1e-9, &observed(41, tick, 1000, |noise| 4.0 * noise))))
        });
    }
    series("turns", &[("pod", "p1")], &|tick| {
        Some(match tick % 3 {
            0 => Err(tick as f64),
            _ => Ok(of(1, 1e-9, &observed(43, tick, 1000, |noise| 4.0 * noise))),
        })
    });
    series("steady", &[("pod", "p1")], &|_| {
        Some(Ok(of(1, 0.001, &[0.0, 0.5, 1.0, -2.0, 4.0])))
    });
    series("empty_seconds", &[("pod", "p1")], &|_| {
        Some(Ok(of(1, 0.001, &[])))
    });
    all
}

/// All of it.
pub(crate) fn recording() -> Recording {
    let parts = [numbers(), histograms(), edges()];
    parts.into_iter().flatten().collect()
}

/// The same, for the engine.
pub(crate) fn in_memory(recording: &Recording) -> Vec<QuerySeries> {
    let series = |(labels, samples): &(Labels, Vec<_>)| {
        let mut series = QuerySeries::of_floats(labels.clone(), Vec::new());
        for (time, value) in samples {
            match value {
                Err(value) => series.samples.push(Sample {
                    time: *time,
                    value: *value,
                }),
                Ok(histogram) => series.histograms.push(HistogramSample {
                    time: *time,
                    value: Arc::new(FloatHistogram::from(histogram)),
                }),
            }
        }
        series
    };
    recording.iter().map(series).collect()
}
