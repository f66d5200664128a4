//! Counts the points of an encoded request by its tags, and finds its stamps: nothing is decoded.

/// Fields of OTLP's messages on the way from a request to its points, the last one of any kind of metric, and to the
/// attributes of its resources.
const RESOURCE_METRICS: u64 = 1;
const RESOURCE: u64 = 1;
const ATTRIBUTE: u64 = 1;
const SCOPE_METRICS: u64 = 2;
const METRIC: u64 = 2;
const KINDS: [u64; 5] = [5, 7, 9, 10, 11];
const POINT: u64 = 1;

/// What attributes with a stamp begin with: their key.
const STAMP: &[u8] = b"\x0a\x05stamp";

/// When the resources of a request were stamped, but for those that were stamped 0.
pub(crate) fn stamps(request: &[u8], mut on: impl FnMut(u64)) -> Option<()> {
    within(
        request,
        &[RESOURCE_METRICS, RESOURCE, ATTRIBUTE],
        &mut |attribute| {
            if let Some(value) = attribute.strip_prefix(STAMP) {
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

/// How many points a request has; `None` of what is no protobuf.
pub(crate) fn points(request: &[u8]) -> Option<u64> {
    let mut points = 0;
    within(
        request,
        &[RESOURCE_METRICS, SCOPE_METRICS, METRIC],
        &mut |metric| {
            fields(metric, |field, data| match KINDS.contains(&field) {
                true => fields(data, |field, _| {
                    points += u64::from(field == POINT);
                    Some(())
                }),
                false => Some(()),
            })
        },
    )?;
    Some(points)
}

/// Calls `on` with each message at the end of a path of fields.
fn within(message: &[u8], path: &[u64], on: &mut impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let [first, rest @ ..] = path else {
        return on(message);
    };
    fields(message, |field, inner| match field == *first {
        true => within(inner, rest, on),
        false => Some(()),
    })
}

/// Calls `on` with number and content of each field that has a length.
fn fields(mut message: &[u8], mut on: impl FnMut(u64, &[u8]) -> Option<()>) -> Option<()> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => message = message.get(8..)?,
            5 => message = message.get(4..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (content, rest) = message.split_at_checked(length)?;
                on(tag >> 3, content)?;
                message = rest;
            }
            _ => return None,
        }
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::request::{Kind, Shape, stamped};

    #[test]
    fn points_of_every_kind_are_counted() {
        for kind in [Kind::Gauge, Kind::Sum, Kind::Histogram, Kind::Mixed] {
            for count in [0, 1, 10, 123] {
                let shape = Shape {
                    kind,
                    points: count,
                    seed: 3,
                };
                assert_eq!(points(&shape.encode()), Some(count as u64), "{kind:?}");
            }
        }
    }

    #[test]
    fn requests_that_were_joined_are_counted_whole() {
        let shape = Shape {
            kind: Kind::Mixed,
            points: 25,
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
    fn what_is_cut_or_no_protobuf_is_not_counted() {
        let shape = Shape {
            kind: Kind::Sum,
            points: 10,
            seed: 0,
        };
        let request = shape.encode();
        assert_eq!(points(&request[..request.len() - 1]), None);
        assert_eq!(points(&[0x0f]), None);
        assert_eq!(points(&[0xff; 12]), None);
    }
}
