// SPDX-License-Identifier: Apache-2.0

//! The memory of a decoded page: its points, and the state of their series. It is estimated before the decoding,
//! in the format that the target declares.

use tidegate_exposition::Format;

use tidegate_pipeline::batch::wire::proto::{Field, Fields, WireType, varint};
use tidegate_prometheus::model::MAX_TEXT_BYTES;

/// The approximate memory of a series in bytes: its point, its state in the target, its lines. Series with a label
/// of a few bytes took 450 to 730 bytes in measurements.
const SERIES_BYTES: usize = 640;

/// The copies of a series' text: as a line, as a key, as labels while it is new, and as attributes.
const COPIES: usize = 4;

/// The bytes of a bucket in the growing lists of the decoder and of the value. A byte of a native histogram may be
/// one.
const BUCKET_BYTES: usize = 24;

/// The memory of a page, in bytes.
pub(super) fn weight(format: Format, page: &[u8]) -> usize {
    match format {
        Format::Protobuf => families(page),
        Format::Text | Format::OpenMetrics => {
            let lines = memchr::memchr_iter(b'\n', page).count();
            let of_lines = lines.saturating_mul(SERIES_BYTES);
            of_lines.max(page.len().saturating_mul(COPIES))
        }
    }
}

fn messages(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let fields = Fields::new(message).map_while(Result::ok);
    fields.filter(|field| field.wire == WireType::Bytes)
}

/// The memory of a page of delimited `MetricFamily` messages.
fn families(mut page: &[u8]) -> usize {
    const NAME: u32 = 1;
    const HELP: u32 = 2;
    const METRIC: u32 = 4;
    let mut weight = 0_usize;
    while let Some((length, used)) = varint(page) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = used.saturating_add(length).min(page.len());
        let (mut name, mut all) = (0, 0_usize);
        for field in messages(page.get(used..end).unwrap_or_default()) {
            match field.number {
                NAME => name = field.payload.len(),
                HELP => all = all.saturating_add(field.payload.len() * COPIES),
                _ => {}
            }
        }
        for field in messages(page.get(used..end).unwrap_or_default()) {
            if field.number == METRIC {
                all = all.saturating_add(metric(field.payload, name));
            }
        }
        weight = weight.saturating_add(all);
        page = page.get(end..).unwrap_or_default();
    }
    weight
}

/// The memory of a `Metric` message. Each of its buckets is a line with all its labels.
fn metric(message: &[u8], name: usize) -> usize {
    const LABEL: u32 = 1;
    const SUMMARY: u32 = 4;
    const HISTOGRAM: u32 = 7;
    /// The field of quantiles in a summary, and of buckets in a histogram.
    const PARTS: u32 = 3;
    const EXEMPLARS: u32 = 16;
    let (mut text, mut lines, mut buckets) = (name, 1_usize, 0_usize);
    for field in messages(message) {
        match field.number {
            LABEL => text += field.payload.len(),
            SUMMARY | HISTOGRAM => {
                for part in messages(field.payload) {
                    match part.number {
                        PARTS | EXEMPLARS => lines += 1,
                        _ => buckets += part.payload.len(),
                    }
                }
            }
            _ => {}
        }
    }
    // A page with a longer one fails before it is copied.
    let line = SERIES_BYTES.max(text.min(MAX_TEXT_BYTES) * COPIES);
    lines.saturating_mul(line).saturating_add(buckets * BUCKET_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_pipeline::batch::wire::edit::push_message;

    fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, payload) in fields {
            push_message(&mut bytes, *number, payload);
        }
        bytes
    }

    fn page(family: &[u8]) -> Vec<u8> {
        // `push_message` under any tag, without the tag.
        message(&[(1, family)]).split_off(1)
    }

    #[test]
    fn a_line_weighs_by_its_length_where_it_is_long() {
        let lines = b"a 1\n".repeat(1_000);
        assert_eq!(weight(Format::Text, &lines), 1_000 * SERIES_BYTES);
        let label = b"a=\"b\",".repeat(1_000_000);
        let line = [b"x{", &label[..], b"} 1\n"].concat();
        assert!(weight(Format::OpenMetrics, &line) >= 4 * label.len());
    }

    #[test]
    fn metrics_of_protobuf_weigh_what_they_become() {
        let metric = message(&[(2, &[])]);
        let metrics: Vec<_> = [(1, &b"x"[..])]
            .into_iter()
            .chain(vec![(4, &metric[..]); 1_000])
            .collect();
        let all = page(&message(&metrics));
        assert!(all.len() < 5_000);
        assert_eq!(weight(Format::Protobuf, &all), 1_000 * SERIES_BYTES);
        assert_eq!(weight(Format::Protobuf, &all.repeat(2)), 2_000 * SERIES_BYTES);

        // 1,000 buckets of a metric with labels of 10 KiB are as many lines of that length.
        let label = vec![b'y'; 10 << 10];
        let buckets = message(&vec![(3, &[][..]); 1_000]);
        let histogram = message(&[(1, &label), (7, &buckets)]);
        let bucketed = page(&message(&[(1, b"x"), (4, &histogram)]));
        assert!(weight(Format::Protobuf, &bucketed) >= 1_000 * label.len());

        let native = message(&[(7, &message(&[(13, &[0; 10_000])]))]);
        let native = page(&message(&[(1, b"x"), (4, &native)]));
        assert!(weight(Format::Protobuf, &native) >= 16 * 10_000);
        assert_eq!(weight(Format::Protobuf, &[0xff; 30]), 0, "no page");
    }
}
