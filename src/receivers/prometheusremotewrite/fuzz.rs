// SPDX-License-Identifier: Apache-2.0

//! Requests of both versions, for fuzz targets and for tests that damage requests.

use std::sync::LazyLock;

use tidegate_engine::Value;

use crate::batch::{Batch, Points, Signal, convert};
use crate::prom::remote::decoder::RemoteWriteDecoder;
use crate::prom::remote::translate::{Settings, Translator};
use crate::prom::remote::{Version, write};

/// The first byte says which version. An accepted request becomes valid OTLP. If it is written again, it is accepted
/// again.
pub fn requests(data: &[u8]) {
    static DECODER: LazyLock<RemoteWriteDecoder> = LazyLock::new(RemoteWriteDecoder::default);
    let Some((choice, request)) = data.split_first() else {
        return;
    };
    let version = if choice & 1 == 0 {
        Version::One
    } else {
        Version::Two
    };
    let Ok(decoded) = DECODER.decode(version, request) else {
        return;
    };
    // A series whose resource has changed since an earlier request ends before its sample.
    assert!(decoded.points.len() <= 2 * (decoded.samples + decoded.histograms));
    let values = decoded
        .points
        .iter()
        .filter(|point| point.value != Value::NoRecordedValue);
    assert!(values.count() <= decoded.samples + decoded.histograms);
    assert!(
        decoded
            .points
            .iter()
            .all(|point| point.time > 0 && point.start <= point.time)
    );
    let encoded = convert::encode_points(&decoded.points);
    assert_eq!(encoded.signal, Signal::Metrics);
    assert_eq!(
        convert::points(&encoded).expect("our own").len(),
        decoded.points.len()
    );
    let count = decoded.points.len();
    let translator = Translator::new(Settings {
        custom_buckets: choice & 2 != 0,
        target_info: true,
        ..Settings::default()
    });
    let batch = Batch::new(Points {
        points: decoded.points.into(),
    });
    let translation = translator.translate(&[batch]);
    let dropped: usize = translation.dropped.iter().map(|(_, points, _)| points).sum();
    let sent: usize = translation.groups.iter().map(|group| group.points).sum();
    assert_eq!(sent + dropped, count, "every point is counted");
    for version in [Version::One, Version::Two] {
        let series = || translation.groups.iter().flat_map(|group| &group.series);
        let samples: usize = series()
            .map(|series| series.samples.len() + series.histograms.len())
            .sum();
        let again = DECODER.decode(version, &write::encode(version, series(), true));
        let again = again.expect("what we write can be read");
        assert_eq!(again.dropped, [], "what we write is sound");
        assert_eq!(again.samples + again.histograms, samples);
    }
}
