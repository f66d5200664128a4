// SPDX-License-Identifier: Apache-2.0

//! The protobuf format: messages of `io.prometheus.client.MetricFamily`, each with a length prefix.

use tidegate_engine::{Exemplar, ExponentialHistogram, Histogram, Number, Summary, UnixNanos, Value};
use tidegate_exposition::{NativeHistogram, Side};

use super::Style;
use super::encoder::{Encoder, SampleSnapshot, ValueTimes};
use super::exemplar;
use super::family::PageFamily;
use super::histogram::{native, quantiles};
use super::kind::Type;
use crate::name::{Naming, Spelling};
use tidegate_pipeline::batch::wire::edit::{push_varint, varint_size, zigzag};

/// Kinds of fields.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Encodes the protobuf format: length-delimited messages, one per family.
pub(super) struct ProtobufEncoder<'a> {
    page: Vec<u8>,
    style: &'a Style,
    /// The origin of the current family's names.
    spelling: Spelling,
    /// The start of the current family, and the bytes reserved there for its length.
    family: (usize, usize),
    /// The start of the current family's series.
    series: usize,
    /// The native histograms of the current family. Prometheus treats all histograms of a message like the first
    /// one. So they have a separate message if the family also has classic ones.
    natives: Vec<u8>,
    /// The bytes after the labels of the current series.
    value: Vec<u8>,
}

impl<'a> ProtobufEncoder<'a> {
    pub(super) fn new(page: Vec<u8>, style: &'a Style) -> Self {
        Self {
            page,
            style,
            spelling: Spelling::default(),
            family: (0, 0),
            series: 0,
            natives: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Begins a message of the page's own list; `size` is what it may come to.
    fn open(&mut self, size: usize) {
        let room = varint_size(size as u64);
        self.family = (self.page.len(), room);
        self.page.resize(self.page.len() + room, 0);
    }

    /// Puts the length in front of the message.
    fn close(&mut self) {
        let (start, room) = self.family;
        let size = self.page.len() - start - room;
        let mut length = Vec::with_capacity(10);
        push_varint(&mut length, size as u64);
        // A family's size seldom needs another number of bytes than on the page before.
        self.page.splice(start..start + room, length);
    }

    fn head(&mut self, name: &str, help: &str, of_type: Type, unit: Option<&str>) {
        push_text(&mut self.page, 1, name);
        push_text(&mut self.page, 2, help);
        push_number(&mut self.page, 3, u64::from(of_type.number()));
        push_text(&mut self.page, 5, unit.unwrap_or_default());
    }

    /// A series: its labels, then what `self.value` holds.
    #[inline]
    fn metric(&mut self, labels: &[u8], time: UnixNanos) {
        self.stamp(time);
        push_series(&mut self.page, labels, &self.value);
        self.value.clear();
    }

    #[inline]
    fn stamp(&mut self, time: UnixNanos) {
        if self.style.timestamps {
            push_number(&mut self.value, 6, time / 1_000_000);
        }
    }

    /// Writes the native histograms of the family, which has classic ones before them or not.
    fn end_natives(&mut self) {
        if self.page.len() > self.series {
            let (start, room) = self.family;
            let head = self.page[start + room..self.series].to_vec();
            self.close();
            self.open(head.len() + self.natives.len());
            self.page.extend_from_slice(&head);
        }
        self.page.append(&mut self.natives);
    }

    /// The naming of exemplar labels.
    fn names(&self) -> NameStyle<'a> {
        (&self.style.naming, self.spelling)
    }

    fn scalar(
        &mut self,
        family: &PageFamily,
        labels: &[u8],
        number: f64,
        times: ValueTimes,
        exemplar: Option<&Exemplar>,
    ) {
        let (names, value) = (self.names(), &mut self.value);
        let field = match family.of_type {
            Type::Counter => 3,
            Type::Unknown => 5,
            _ => 2,
        };
        push_message(value, field, |value| {
            push_double(value, 1, number);
            if family.of_type == Type::Counter {
                push_exemplar(value, 2, exemplar, names);
                push_time(value, 3, times.start);
            }
        });
        self.metric(labels, times.time);
    }

    fn histogram(&mut self, labels: &[u8], histogram: &Histogram, snapshot: &SampleSnapshot) {
        let names = self.names();
        push_message(&mut self.value, 7, |value| {
            let mut below = f64::NEG_INFINITY;
            let mut bucket = |value: &mut Vec<u8>, bound: f64, count: u64| {
                let exemplar = exemplar::within(&snapshot.exemplars, below, bound);
                push_message(value, 3, |value| {
                    push_number(value, 1, count);
                    push_double(value, 2, bound);
                    push_exemplar(value, 3, exemplar, names);
                });
                below = bound;
            };
            let count = histogram.running(|_, bound, count| bucket(value, bound, count));
            bucket(value, f64::INFINITY, count);
            push_number(value, 1, count);
            // It can't be omitted: a missing field reads as 0.
            push_double(value, 2, histogram.sum.unwrap_or(f64::NAN));
            push_time(value, 15, snapshot.times.start);
        });
        self.metric(labels, snapshot.times.time);
    }

    fn exponential(&mut self, labels: &[u8], histogram: &ExponentialHistogram, snapshot: &SampleSnapshot) {
        match native(histogram) {
            Some(native) => self.native(labels, &native, snapshot),
            None => self.histogram(labels, &histogram.classic(), snapshot),
        }
    }

    fn native(&mut self, labels: &[u8], native: &NativeHistogram, snapshot: &SampleSnapshot) {
        let names = self.names();
        push_message(&mut self.value, 7, |value| {
            push_number(value, 1, native.count);
            push_double(value, 2, native.sum);
            push_number(value, 5, zigzag(i64::from(native.schema)));
            push_double(value, 6, native.zero_threshold);
            push_number(value, 7, native.zero_count);
            push_side(value, 9, &native.negative);
            push_side(value, 12, &native.positive);
            push_time(value, 15, snapshot.times.start);
            // Exemplars of native histograms must have a time.
            let timed = snapshot.exemplars.iter().filter(|exemplar| exemplar.time > 0);
            timed.for_each(|exemplar| push_exemplar(value, 16, Some(exemplar), names));
        });
        self.stamp(snapshot.times.time);
        push_series(&mut self.natives, labels, &self.value);
        self.value.clear();
    }

    fn summary(&mut self, labels: &[u8], summary: &Summary, times: ValueTimes) {
        push_message(&mut self.value, 4, |value| {
            push_number(value, 1, summary.count);
            push_double(value, 2, summary.sum);
            for (quantile, number) in quantiles(summary) {
                push_message(value, 3, |value| {
                    push_double(value, 1, quantile);
                    push_double(value, 2, number);
                });
            }
            push_time(value, 4, times.start);
        });
        self.metric(labels, times.time);
    }
}

impl Encoder for ProtobufEncoder<'_> {
    fn page(&mut self) -> &mut Vec<u8> {
        &mut self.page
    }

    fn begin(&mut self, name: &str, family: &PageFamily) {
        self.open(family.size);
        let metric = &family.metric;
        self.spelling = Spelling::of(metric);
        let plain = name
            .strip_suffix("_total")
            .filter(|_| family.of_type == Type::Counter);
        let unit = self.style.naming.unit(&metric.unit, plain.unwrap_or(name));
        self.head(name, &metric.description, family.of_type, unit.as_deref());
        self.series = self.page.len();
    }

    #[inline]
    fn number(&mut self, family: &PageFamily, labels: &[u8], number: Number, times: ValueTimes) -> bool {
        self.scalar(family, labels, number.as_f64(), times, None);
        true
    }

    fn sample(&mut self, family: &PageFamily, labels: &[u8], snapshot: &SampleSnapshot) -> bool {
        let times = snapshot.times;
        let newest = || exemplar::newest(&snapshot.exemplars);
        match &snapshot.value {
            Value::Int(number) => self.scalar(family, labels, *number as f64, times, newest()),
            Value::Double(number) => self.scalar(family, labels, *number, times, newest()),
            Value::Histogram(histogram) => self.histogram(labels, histogram, snapshot),
            Value::ExponentialHistogram(histogram) => self.exponential(labels, histogram, snapshot),
            Value::Summary(summary) => self.summary(labels, summary, times),
            Value::NoRecordedValue => return false,
        }
        true
    }

    fn end(&mut self, _: &PageFamily) {
        if !self.natives.is_empty() {
            self.end_natives();
        }
        self.close();
    }
}

#[inline]
fn push_series(page: &mut Vec<u8>, labels: &[u8], value: &[u8]) {
    page.push(4 << 3 | BYTES);
    push_varint(page, (labels.len() + value.len()) as u64);
    page.extend_from_slice(labels);
    page.extend_from_slice(value);
}

/// Labels as a series carries them.
pub(super) fn labels(pairs: &[(String, String)]) -> Vec<u8> {
    let mut text = Vec::new();
    push_labels(&mut text, pairs);
    text
}

fn push_labels(page: &mut Vec<u8>, pairs: &[(String, String)]) {
    for (name, value) in pairs {
        push_message(page, 1, |page| {
            push_text(page, 1, name);
            push_text(page, 2, value);
        });
    }
}

/// The naming of exemplar labels, and the origin of the names.
type NameStyle<'a> = (&'a Naming, Spelling);

fn push_exemplar(
    page: &mut Vec<u8>,
    field: u8,
    exemplar: Option<&Exemplar>,
    (naming, spelling): NameStyle<'_>,
) {
    let Some(exemplar) = exemplar else { return };
    let Some(value) = exemplar::value(exemplar) else {
        return;
    };
    push_message(page, field, |page| {
        push_labels(page, &exemplar::labels(exemplar, naming, spelling, false));
        push_double(page, 2, value);
        push_time(page, 3, exemplar.time);
    });
}

fn push_side(page: &mut Vec<u8>, spans: u8, side: &Side) {
    for span in &side.spans {
        push_message(page, spans, |page| {
            push_number(page, 1, zigzag(i64::from(span.offset)));
            push_number(page, 2, u64::from(span.length));
        });
    }
    if !side.deltas.is_empty() {
        push_message(page, spans + 1, |page| {
            for delta in &side.deltas {
                push_varint(page, zigzag(*delta));
            }
        });
    }
}

/// `google.protobuf.Timestamp`; nothing for 0.
fn push_time(page: &mut Vec<u8>, field: u8, nanos: UnixNanos) {
    if nanos > 0 {
        push_message(page, field, |page| {
            push_number(page, 1, nanos / 1_000_000_000);
            push_number(page, 2, nanos % 1_000_000_000);
        });
    }
}

/// A field that is a message (or a packed list), which `write` appends.
#[inline]
fn push_message(page: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    push_tag(page, field, BYTES);
    let start = page.len();
    page.push(0);
    write(page);
    let size = (page.len() - start - 1) as u64;
    // Most are shorter than 128 bytes; longer ones need more bytes for their length.
    match u8::try_from(size) {
        Ok(size @ 0..128) => {
            if let Some(length) = page.get_mut(start) {
                *length = size;
            }
        }
        _ => {
            let mut length = Vec::with_capacity(10);
            push_varint(&mut length, size);
            page.splice(start..=start, length);
        }
    }
}

#[inline]
fn push_tag(page: &mut Vec<u8>, field: u8, kind: u8) {
    push_varint(page, u64::from(field) << 3 | u64::from(kind));
}

fn push_text(page: &mut Vec<u8>, field: u8, text: &str) {
    if !text.is_empty() {
        push_tag(page, field, BYTES);
        push_varint(page, text.len() as u64);
        page.extend_from_slice(text.as_bytes());
    }
}

fn push_number(page: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        push_tag(page, field, VARINT);
        push_varint(page, number);
    }
}

#[inline]
fn push_double(page: &mut Vec<u8>, field: u8, number: f64) {
    push_tag(page, field, FIXED64);
    page.extend_from_slice(&number.to_le_bytes());
}
