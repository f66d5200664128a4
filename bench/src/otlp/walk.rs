// SPDX-License-Identifier: Apache-2.0

//! Counts the points of an encoded request by its tags, and finds its stamps: nothing is decoded.

use tidegate_model::varint::take_varint;

/// Fields of OTLP's messages on the way from a request to its points, the last one of any kind of metric, and to the
/// attributes of its resources.
const RESOURCE_METRICS: u64 = 1;
const RESOURCE: u64 = 1;
const ATTRIBUTE: u64 = 1;
const SCOPE_METRICS: u64 = 2;
const METRIC: u64 = 2;
const KINDS: [u64; 5] = [5, 7, 9, 10, 11];
const POINT: u64 = 1;

/// Fields of an attribute, and the key of those that are stamps.
const KEY: u64 = 1;
const VALUE: u64 = 2;
const STAMP: &[u8] = b"stamp";

/// When the resources of a request were stamped, but for those that were stamped 0.
pub(crate) fn stamps(request: &[u8], mut on: impl FnMut(u64)) -> Option<()> {
    within(
        request,
        &[RESOURCE_METRICS, RESOURCE, ATTRIBUTE],
        &mut |attribute| {
            // In whatever order: some programs write the last field first.
            let (mut key, mut value) = (&[][..], &[][..]);
            fields(attribute, |field, content| {
                match field {
                    KEY => key = content,
                    VALUE => value = content,
                    _ => {}
                }
                Some(())
            })?;
            if key == STAMP {
                let digits = value.split(|byte| !byte.is_ascii_digit());
                let longest = digits.max_by_key(|digits| digits.len()).unwrap_or_default();
                let stamp: u64 = std::str::from_utf8(longest).ok()?.parse().ok()?;
                if stamp > 0 {
                    on(stamp);
                }
            }
            Some(())
        },
    )
}

/// How many points a request has; `None` if it is not protobuf.
pub(crate) fn points(request: &[u8]) -> Option<u64> {
    let mut points = 0;
    within(
        request,
        &[RESOURCE_METRICS, SCOPE_METRICS, METRIC],
        &mut |metric| {
            fields(metric, |field, data| {
                if KINDS.contains(&field) {
                    fields(data, |field, _| {
                        points += u64::from(field == POINT);
                        Some(())
                    })
                } else {
                    Some(())
                }
            })
        },
    )?;
    Some(points)
}

/// Where a request has the times and the values of its number points.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) times: Vec<usize>,
    pub(crate) doubles: Vec<usize>,
    pub(crate) integers: Vec<usize>,
}

/// Fields of number points, all of eight bytes.
const TIME: u64 = 3;
const DOUBLE: u64 = 4;
const INTEGER: u64 = 6;
/// Of the kinds that have them: gauges and sums.
const OF_NUMBERS: [u64; 2] = [5, 7];

/// Finds them; `None` if it is not protobuf.
pub(crate) fn numbers(request: &[u8]) -> Option<Numbers> {
    let mut numbers = Numbers::default();
    let place = |inner: &[u8]| inner.as_ptr().addr() - request.as_ptr().addr();
    within(
        request,
        &[RESOURCE_METRICS, SCOPE_METRICS, METRIC],
        &mut |metric| {
            fields(metric, |kind, data| {
                if OF_NUMBERS.contains(&kind) {
                    fields(data, |field, point| {
                        if field == POINT {
                            all_fields(point, |field, content| {
                                match field {
                                    TIME => numbers.times.push(place(content)),
                                    DOUBLE => numbers.doubles.push(place(content)),
                                    INTEGER => numbers.integers.push(place(content)),
                                    _ => {}
                                }
                                Some(())
                            })
                        } else {
                            Some(())
                        }
                    })
                } else {
                    Some(())
                }
            })
        },
    )?;
    Some(numbers)
}

/// Calls `on` with each message at the end of a path of fields.
fn within(message: &[u8], path: &[u64], on: &mut impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let [first, rest @ ..] = path else {
        return on(message);
    };
    fields(message, |field, inner| {
        if field == *first {
            within(inner, rest, on)
        } else {
            Some(())
        }
    })
}

/// Calls `on` with number and content of each field that has a length.
fn fields<'a>(message: &'a [u8], mut on: impl FnMut(u64, &'a [u8]) -> Option<()>) -> Option<()> {
    walk(message, |tag, content| match tag & 7 {
        2 => on(tag >> 3, content),
        _ => Some(()),
    })
}

/// Calls `on` with number and content of each field.
fn all_fields<'a>(message: &'a [u8], mut on: impl FnMut(u64, &'a [u8]) -> Option<()>) -> Option<()> {
    walk(message, |tag, content| on(tag >> 3, content))
}

/// Calls `on` with tag and content of each field.
fn walk<'a>(mut message: &'a [u8], mut on: impl FnMut(u64, &'a [u8]) -> Option<()>) -> Option<()> {
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let length = match tag & 7 {
            0 => {
                take_varint(&mut message)?;
                0
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(take_varint(&mut message)?).ok()?,
            _ => return None,
        };
        let (content, rest) = message.split_at_checked(length)?;
        on(tag, content)?;
        message = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::request::{PointKind, RequestShape, stamped};

    #[test]
    fn points_of_every_kind_are_counted() {
        for kind in [
            PointKind::Gauge,
            PointKind::Sum,
            PointKind::Histogram,
            PointKind::Mixed,
        ] {
            for count in [0, 1, 10, 123] {
                let shape = RequestShape {
                    kind,
                    points: count,
                    source: 3,
                    seed: 3,
                };
                assert_eq!(points(&shape.encode()), Some(count as u64), "{kind:?}");
            }
        }
    }

    #[test]
    fn requests_that_were_joined_are_counted_whole() {
        let shape = RequestShape {
            kind: PointKind::Mixed,
            points: 25,
            source: 0,
            seed: 0,
        };
        let joined = [
            stamped(&shape.encode(), 7),
            shape.encode(),
            stamped(&shape.encode(), 1_234_567_890_123_456_789),
        ];
        assert_eq!(points(&joined.concat()), Some(75));
        let mut found = Vec::new();
        stamps(&joined.concat(), |stamp| found.push(stamp)).unwrap();
        assert_eq!(found, [7, 1_234_567_890_123_456_789]);
    }

    #[test]
    fn a_stamp_is_found_in_whatever_order_fields_are_written() {
        // The value before the key, in a resource of its own.
        let attribute = *b"\x12\x04\x0a\x0242\x0a\x05stamp";
        let mut request = vec![0x0a, 17, 0x0a, 15, 0x0a, 13];
        request.extend(attribute);
        let mut found = Vec::new();
        stamps(&request, |stamp| found.push(stamp)).unwrap();
        assert_eq!(found, [42]);
    }

    #[test]
    fn times_and_values_are_found() {
        let shape = RequestShape {
            kind: PointKind::Mixed,
            points: 25,
            source: 0,
            seed: 4,
        };
        let request = shape.encode();
        let numbers = numbers(&request).unwrap();
        assert_eq!(
            (numbers.times.len(), numbers.doubles.len(), numbers.integers.len()),
            (25, 13, 12)
        );
        let at = |place: usize| <[u8; 8]>::try_from(&request[place..place + 8]).unwrap();
        assert_eq!(i64::from_le_bytes(at(numbers.integers[0])), 7919 + 4);
        assert_eq!(f64::from_le_bytes(at(numbers.doubles[1])), 2.0 * 1.618 + 4.0);
        let times: Vec<u64> = numbers
            .times
            .iter()
            .map(|time| u64::from_le_bytes(at(*time)))
            .collect();
        assert_eq!(times, [1_760_000_075_000_000_000; 25]);
    }

    #[test]
    fn what_is_cut_or_no_protobuf_is_not_counted() {
        let shape = RequestShape {
            kind: PointKind::Sum,
            points: 10,
            source: 0,
            seed: 0,
        };
        let request = shape.encode();
        assert_eq!(points(&request[..request.len() - 1]), None);
        assert_eq!(points(&[0x0f]), None);
        assert_eq!(points(&[0xff; 12]), None);
    }
}
