// SPDX-License-Identifier: Apache-2.0

//! Takes records apart.

use std::sync::Arc;

use crate::layout::{
    Identity, MAX_ATTRIBUTES, MAX_BOUNDS, MAX_HELP, MAX_LABEL_VALUE, MAX_LABELS, MAX_NAME, MAX_PAYLOAD,
    RECORD_HEAD,
};
use crate::record::{Record, SeriesRole};
use crate::spec::{FamilySpec, GaugeMode, Kind};

/// The first record of `bytes` and its length. `None`: it is damaged, or not whole.
pub(super) fn take(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut head = Cursor(bytes);
    let length = u32::from_le_bytes(head.array()?) as usize;
    let crc = u32::from_le_bytes(head.array()?);
    if length > MAX_PAYLOAD {
        return None;
    }
    let checked = head.0.get(..length + 1)?;
    if crc32fast::hash(checked) != crc {
        return None;
    }
    let mut payload = Cursor(checked);
    let record = payload.record()?;
    payload.0.is_empty().then_some((record, RECORD_HEAD + length))
}

/// The unread rest.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::from(self.array().map(u16::from_le_bytes)?);
        (count <= most).then_some(count)
    }

    fn text(&mut self, most: usize) -> Option<&'a str> {
        let len = self.count(most)?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    fn identity(&mut self) -> Option<Identity> {
        Some(Identity {
            pid: u32::from_le_bytes(self.array()?),
            start: self.u64()?,
            epoch: self.u64()?,
        })
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.u8()? {
            1 => {
                let count = self.count(MAX_ATTRIBUTES)?;
                let pair = |_| {
                    Some((
                        self.text(MAX_NAME)?.to_owned(),
                        self.text(MAX_LABEL_VALUE)?.to_owned(),
                    ))
                };
                Record::Resource((0..count).map(pair).collect::<Option<_>>()?)
            }
            2 => Record::Family(self.family()?),
            3 => {
                let family = u32::from_le_bytes(self.array()?);
                let slot = self.u64()?;
                let role = match self.u8()? {
                    0 => SeriesRole::Normal,
                    1 => SeriesRole::Overflow,
                    2 => SeriesRole::Of(self.identity()?),
                    _ => return None,
                };
                let count = self.count(MAX_LABELS)?;
                let values = (0..count).map(|_| self.text(MAX_LABEL_VALUE).map(Box::from));
                let values = values.collect::<Option<_>>()?;
                Record::Series {
                    family,
                    slot,
                    role,
                    values,
                }
            }
            4 => Record::End { slot: self.u64()? },
            5 => Record::Folded {
                identity: self.identity()?,
                at_ns: self.u64()?,
            },
            _ => return None,
        })
    }

    fn family(&mut self) -> Option<FamilySpec> {
        let name = self.text(MAX_NAME)?.to_owned();
        let help = self.text(MAX_HELP)?.to_owned();
        let unit = self.text(MAX_NAME)?.to_owned();
        let kind = self.kind()?;
        let count = self.count(MAX_LABELS)?;
        let labels = (0..count).map(|_| self.text(MAX_NAME).map(str::to_owned));
        let labels = labels.collect::<Option<_>>()?;
        let spec = FamilySpec {
            name,
            help,
            unit,
            kind,
            labels,
        };
        spec.check().is_ok().then_some(spec)
    }

    fn kind(&mut self) -> Option<Kind> {
        Some(match self.u8()? {
            1 => Kind::Counter,
            2 => Kind::FloatCounter,
            3 => Kind::UpDownCounter,
            4 => Kind::Gauge(*GaugeMode::ALL.get(usize::from(self.u8()?))?),
            5 => {
                let count = self.count(MAX_BOUNDS)?;
                let bounds = (0..count).map(|_| self.array().map(f64::from_le_bytes));
                let bounds: Option<Arc<[f64]>> = bounds.collect();
                Kind::Histogram { bounds: bounds? }
            }
            6 => Kind::ExponentialHistogram {
                max_scale: self.u8()? as i8,
            },
            7 => Kind::Summary,
            _ => return None,
        })
    }
}
