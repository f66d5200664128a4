// SPDX-License-Identifier: Apache-2.0

//! Pages in protobuf.

use std::collections::BTreeMap;

use tidegate_engine::Histogram;
use tidegate_exposition::{NativeHistograms, Options};

use super::*;

/// Bytes of a length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("short")];
    field.extend_from_slice(bytes);
    field
}

#[test]
fn protobuf_has_native_histograms() {
    let double = |number: u8, value: f64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    // Two in (1, 2], one in (-0.5, 0], schema 0.
    let histogram = [
        vec![1 << 3, 3],
        double(2, 3.25),
        vec![5 << 3, 0],
        double(6, 0.5),
        vec![7 << 3, 1],
        field(12, &[1 << 3, 2, 2 << 3, 1]),
        field(13, &[4]),
        field(3, &[vec![1 << 3, 3], double(2, 4.0)].concat()),
        field(15, &[1 << 3, 100]),
    ]
    .concat();
    let metric = [
        field(1, &[field(1, b"x"), field(2, b"y")].concat()),
        field(7, &histogram),
    ]
    .concat();
    let family = [field(1, b"h"), vec![3 << 3, 4], field(4, &metric)].concat();
    let page = [vec![u8::try_from(family.len()).expect("short")], family].concat();
    for (native_histograms, names) in [
        (NativeHistograms::Native, vec!["native"]),
        (NativeHistograms::Classic, vec!["classic"]),
        (NativeHistograms::Both, vec!["native", "classic"]),
    ] {
        let settings = Settings {
            parser: Options { native_histograms },
            ..settings()
        };
        let mut decoder = ScrapeDecoder::new(settings, Box::new(Plain));
        for scrape in 0..2 {
            let mut points = Vec::new();
            decoder
                .page(Format::Protobuf, &page, at(scrape), &mut points)
                .expect("a sound page");
            let found: BTreeMap<&str, &Point> = points
                .iter()
                .map(|point| match point.value {
                    Value::ExponentialHistogram(_) => ("native", point),
                    _ => ("classic", point),
                })
                .collect();
            assert_eq!(found.keys().rev().copied().collect::<Vec<_>>(), names);
            assert!(
                points
                    .iter()
                    .all(|point| point.start == 100_000_000_000 && &*point.series.metric.name == "h")
            );
            if let Some(Value::ExponentialHistogram(value)) = found.get("native").map(|point| &point.value) {
                assert_eq!((value.count, value.zero_count, value.scale), (3, 1, 0));
                assert_eq!((value.positive.offset, &*value.positive.counts), (0, &[2][..]));
                assert!(value.is_sound());
            }
            if let Some(Value::Histogram(value)) = found.get("classic").map(|point| &point.value) {
                let Histogram {
                    bounds, counts, sum, ..
                } = &**value;
                assert_eq!(
                    (&**bounds, &**counts, *sum),
                    (&[4.0][..], &[3, 0][..], Some(3.25))
                );
            }
        }
    }
}
