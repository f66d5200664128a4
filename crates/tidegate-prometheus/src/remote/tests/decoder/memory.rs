// SPDX-License-Identifier: Apache-2.0

//! The memory of the decoder: series and resources that it has seen.

use super::*;

/// A series of this name, job, instance and version.
fn of(name: &str, instance: &str, version: &str, value: f64) -> Series {
    let labels = [
        ("__name__", name),
        ("job", "j"),
        ("instance", instance),
        ("version", version),
    ];
    let told = labels.iter().filter(|(_, value)| !value.is_empty());
    series(&told.copied().collect::<Vec<_>>(), Kind::Gauge, &[(9, value)])
}

/// Which version the resource of this series has.
fn version_of(decoder: &RemoteWriteDecoder, name: &str, instance: &str) -> Option<String> {
    let decoded = decoded(decoder, TWO, &[of(name, instance, "", 1.0)]);
    let version = decoded.points.last()?.series.resource.attributes.get("version")?;
    version.as_str().map(str::to_owned)
}

#[test]
fn a_resource_is_what_was_said_last() {
    let decoder = RemoteWriteDecoder::default();
    assert_eq!(version_of(&decoder, "g", "i"), None);
    for version in ["1", "2", "1"] {
        decoded(&decoder, TWO, &[of("target_info", "i", version, 1.0)]);
        assert_eq!(version_of(&decoder, "g", "i").as_deref(), Some(version));
    }
    let ended = [
        of("target_info", "i", "2", 1.0),
        of("target_info", "i", "1", stale()),
    ];
    decoded(&decoder, TWO, &ended);
    assert_eq!(
        version_of(&decoder, "g", "i").as_deref(),
        Some("2"),
        "the old one has ended"
    );
}

#[test]
fn a_resource_is_remembered_as_long_as_its_series_are() {
    let decoder = RemoteWriteDecoder::default();
    decoded(&decoder, TWO, &[of("target_info", "i", "1", 1.0)]);
    assert_eq!(version_of(&decoder, "old", "i").as_deref(), Some("1"));
    let others: Vec<_> = (0..21_000)
        .map(|other| of("g", &other.to_string(), "", 1.0))
        .collect();
    decoded(&decoder, TWO, &others);
    assert_eq!(version_of(&decoder, "new", "i").as_deref(), Some("1"));
    decoded(&decoder, TWO, &[of("target_info", "i", "2", 1.0)]);
    for name in ["old", "new"] {
        assert_eq!(version_of(&decoder, name, "i").as_deref(), Some("2"), "{name}");
    }
}

#[test]
fn what_1_0_says_of_metrics_is_remembered() {
    let decoder = RemoteWriteDecoder::default();
    let bare = |name| {
        let all = [series(&[("__name__", name)], Kind::Counter, &[(7, 1.0)])];
        let request = write::encode(Version::One, all.iter(), false);
        decoder.decode(Version::One, &request).unwrap().points[0]
            .series
            .metric
            .data
    };
    assert_eq!(bare("x_total"), Data::Gauge, "its type is unknown");
    decoded(
        &decoder,
        Version::One,
        &[series(&[("__name__", "x_total")], Kind::Counter, &[])],
    );
    assert_eq!(bare("x_total"), COUNTER);
    decoded(
        &decoder,
        Version::One,
        &[series(&[("__name__", "h")], Kind::Histogram, &[])],
    );
    assert_eq!(bare("h_bucket"), COUNTER);
}

#[test]
fn the_memory_limit_bounds_kept_series_and_evictions_are_counted() {
    let memory = Arc::<tidegate_pipeline::component::Account>::default();
    memory.add_limit(tidegate_pipeline::component::Limit::of(1 << 20));
    let decoder = RemoteWriteDecoder::within(memory);
    let long = "x".repeat(500);
    let all: Vec<_> = (0..1000)
        .map(|number| {
            let number = number.to_string();
            series(
                &[("__name__", "g"), ("n", &number), ("long", &long)],
                Kind::Gauge,
                &[(7, 1.5)],
            )
        })
        .collect();
    let first = decoded(&decoder, TWO, &all);
    assert_eq!(
        (first.points.len(), first.dropped.len()),
        (1000, 0),
        "nothing is refused"
    );
    // Of an eighth of the limit, a series takes 1.5 KiB and more.
    let again = decoded(&decoder, TWO, &all);
    assert_eq!(again.points.len(), 1000);
    assert!(
        first.evicted + again.evicted > 1500,
        "{}, {}",
        first.evicted,
        again.evicted
    );
    // Without a small limit all are kept, and are the same series.
    let decoder = RemoteWriteDecoder::default();
    let first = decoded(&decoder, TWO, &all);
    let again = decoded(&decoder, TWO, &all);
    assert_eq!(first.evicted + again.evicted, 0);
    let pairs = first.points.iter().zip(&again.points);
    assert!(
        pairs
            .into_iter()
            .all(|(first, again)| Arc::ptr_eq(&first.series, &again.series))
    );
}
