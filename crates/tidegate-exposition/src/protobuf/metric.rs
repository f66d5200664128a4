// SPDX-License-Identifier: Apache-2.0

//! One `Metric` message: its labels as part of a key, its value as parts that are samples.

use tidegate_model::varint::{push_varint, unzigzag};

use crate::error::Problem;
use crate::event::{Exemplar, ExemplarLabels, MetricType};
use crate::labels::Labels;
use crate::native::{BucketSpan, Counts, NativeHistogram, Side};
use crate::parser::NativeHistograms;
use crate::protobuf::wire::{WireField, doubles, fields, varints};

/// Which sample of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleRole {
    Number,
    Count,
    Sum,
    Bucket,
    Quantile,
    Native,
}

impl SampleRole {
    /// The suffix behind the family's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Number | Self::Quantile | Self::Native => "",
            Self::Count => "_count",
            Self::Sum => "_sum",
            Self::Bucket => "_bucket",
        }
    }

    /// The label that it has besides those of the metric.
    pub(super) fn label(self) -> Option<&'static str> {
        match self {
            Self::Bucket => Some("le"),
            Self::Quantile => Some("quantile"),
            _ => None,
        }
    }
}

/// A sample of a metric.
#[derive(Clone, Debug)]
pub(super) struct MetricPart<'a> {
    pub(super) role: SampleRole,
    /// The value of its own label.
    pub(super) bound: f64,
    pub(super) value: f64,
    pub(super) exemplar: Option<Exemplar<'a>>,
}

/// Parts and exemplars that a metric may have.
const MAX_PARTS: usize = 100_000;

/// The content of a `Metric` message. It keeps its memory for the next one.
#[derive(Debug, Default)]
pub(super) struct Metric<'a> {
    /// The samples, in the order in which Prometheus has them.
    pub(super) parts: Vec<MetricPart<'a>>,
    pub(super) native: NativeHistogram,
    /// Those of the native histogram.
    pub(super) exemplars: Vec<Exemplar<'a>>,
    pub(super) timestamp: Option<i64>,
    pub(super) created: Option<i64>,
}

impl<'a> Metric<'a> {
    /// Reads a message. Labels go to `key` as the fields that they are.
    pub(super) fn read(
        &mut self,
        message: &'a [u8],
        kind: MetricType,
        which: NativeHistograms,
        key: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        self.parts.clear();
        self.exemplars.clear();
        (self.timestamp, self.created) = (None, None);
        let own = match kind {
            MetricType::Gauge => 2,
            MetricType::Counter => 3,
            MetricType::Summary => 4,
            MetricType::Histogram | MetricType::GaugeHistogram => 7,
            _ => 5,
        };
        let mut value: &[u8] = &[];
        fields(message, |number, field| {
            match number {
                1 => put_label(key, field.bytes()),
                6 => self.timestamp = Some(field.signed()).filter(|time| *time != 0),
                _ if number == own => value = field.bytes(),
                _ => {}
            }
            Ok(())
        })?;
        match kind {
            MetricType::Summary => self.summary(value),
            MetricType::Histogram | MetricType::GaugeHistogram => {
                self.native.clear();
                self.native.is_gauge = kind == MetricType::GaugeHistogram;
                self.histogram(value, which)
            }
            _ => self.number(value),
        }
    }

    fn part(
        &mut self,
        role: SampleRole,
        bound: f64,
        value: f64,
        exemplar: Option<Exemplar<'a>>,
    ) -> Result<(), Problem> {
        self.check_room()?;
        self.parts.push(MetricPart {
            role,
            bound,
            value,
            exemplar,
        });
        Ok(())
    }

    fn check_room(&self) -> Result<(), Problem> {
        if self.parts.len() + self.exemplars.len() < MAX_PARTS {
            Ok(())
        } else {
            Err(Problem::TooMany)
        }
    }

    /// Counter, Gauge or Untyped; only the first has more than field 1.
    fn number(&mut self, message: &'a [u8]) -> Result<(), Problem> {
        let (mut value, mut example) = (0.0, None);
        fields(message, |number, field| {
            match number {
                1 => value = field.double(),
                2 => example = Some(exemplar(field.bytes())?),
                3 => self.created = timestamp(field.bytes())?,
                _ => {}
            }
            Ok(())
        })?;
        self.part(SampleRole::Number, 0.0, value, example)
    }

    fn summary(&mut self, message: &'a [u8]) -> Result<(), Problem> {
        self.part(SampleRole::Count, 0.0, 0.0, None)?;
        self.part(SampleRole::Sum, 0.0, 0.0, None)?;
        fields(message, |number, field| {
            match number {
                1 => self.parts[0].value = field.number() as f64,
                2 => self.parts[1].value = field.double(),
                3 => {
                    let (mut quantile, mut value) = (0.0, 0.0);
                    fields(field.bytes(), |number, field| {
                        match number {
                            1 => quantile = field.double(),
                            2 => value = field.double(),
                            _ => {}
                        }
                        Ok(())
                    })?;
                    self.part(SampleRole::Quantile, quantile, value, None)?;
                }
                4 => self.created = timestamp(field.bytes())?,
                _ => {}
            }
            Ok(())
        })
    }

    fn histogram(&mut self, message: &'a [u8], which: NativeHistograms) -> Result<(), Problem> {
        fields(message, |number, field| self.histogram_field(number, field))?;
        let native = &mut self.native;
        let is_native = !native.positive.spans.is_empty()
            || !native.negative.spans.is_empty()
            || native.zero_threshold > 0.0
            || native.zero_count > 0
            || native.zero_count_float > 0.0;
        if native.count_float > 0.0 || native.zero_count_float > 0.0 {
            native.counts = Counts::Float;
        }
        let count = match native.count_float {
            0.0 => native.count as f64,
            float => float,
        };
        let sum = native.sum;
        let has_native = is_native && which != NativeHistograms::Classic;
        if has_native {
            native.check()?;
            self.native_exemplars();
        }
        // So far all parts are buckets.
        let has_classic = !has_native || (which == NativeHistograms::Both && !self.parts.is_empty());
        if has_classic {
            self.complete(count);
        } else {
            self.parts.clear();
        }
        let part = |role, value| MetricPart {
            role,
            bound: 0.0,
            value,
            exemplar: None,
        };
        let native = has_native.then(|| part(SampleRole::Native, 0.0));
        let totals = has_classic.then(|| [part(SampleRole::Count, count), part(SampleRole::Sum, sum)]);
        self.parts
            .splice(0..0, native.into_iter().chain(totals.into_iter().flatten()));
        Ok(())
    }

    /// The bucket that holds everything is the last one, added where it is missing.
    fn complete(&mut self, count: f64) {
        let is_last = |bucket: &MetricPart<'_>| bucket.bound == f64::INFINITY;
        match self.parts.iter().position(is_last) {
            Some(at) => self.parts.truncate(at + 1),
            None => self.parts.push(MetricPart {
                role: SampleRole::Bucket,
                bound: f64::INFINITY,
                value: count,
                exemplar: None,
            }),
        }
    }

    /// The native histogram's own, or else those of its classic buckets; only such as have a time.
    fn native_exemplars(&mut self) {
        if self.exemplars.is_empty() {
            let examples = self.parts.iter().filter_map(|bucket| bucket.exemplar.clone());
            self.exemplars.extend(examples);
        }
        self.exemplars.retain(|exemplar| exemplar.timestamp.is_some());
    }

    fn histogram_field(&mut self, number: u32, field: WireField<'a>) -> Result<(), Problem> {
        let native = &mut self.native;
        match number {
            1 => native.count = field.number(),
            2 => native.sum = field.double(),
            3 => return self.bucket(field.bytes()),
            4 => native.count_float = field.double(),
            5 => native.schema = unzigzag(field.number()) as i32,
            6 => native.zero_threshold = field.double(),
            7 => native.zero_count = field.number(),
            8 => native.zero_count_float = field.double(),
            9..=11 => side(&mut native.negative, number - 9, field)?,
            12..=14 => side(&mut native.positive, number - 12, field)?,
            15 => self.created = timestamp(field.bytes())?,
            16 => {
                self.check_room()?;
                self.exemplars.push(exemplar(field.bytes())?);
            }
            _ => {}
        }
        Ok(())
    }

    fn bucket(&mut self, message: &'a [u8]) -> Result<(), Problem> {
        let (mut count, mut float, mut bound, mut example) = (0, 0.0, 0.0, None);
        fields(message, |number, field| {
            match number {
                1 => count = field.number(),
                2 => bound = field.double(),
                3 => example = Some(exemplar(field.bytes())?),
                4 => float = field.double(),
                _ => {}
            }
            Ok(())
        })?;
        let value = if float == 0.0 { count as f64 } else { float };
        self.part(SampleRole::Bucket, bound, value, example)
    }
}

/// Spans, deltas and floats of one side, which follow one another in both.
fn side(side: &mut Side, which: u32, field: WireField<'_>) -> Result<(), Problem> {
    match which {
        0 => {
            let mut span = BucketSpan::default();
            fields(field.bytes(), |number, field| {
                match number {
                    1 => span.offset = unzigzag(field.number()) as i32,
                    2 => span.length = field.number() as u32,
                    _ => {}
                }
                Ok(())
            })?;
            side.spans.push(span);
            Ok(())
        }
        1 => varints(field, |number| side.deltas.push(unzigzag(number))),
        _ => doubles(field, &mut side.floats),
    }
}

/// A `google.protobuf.Timestamp` in milliseconds.
fn timestamp(message: &[u8]) -> Result<Option<i64>, Problem> {
    let (mut seconds, mut nanos) = (0i64, 0i64);
    fields(message, |number, field| {
        match number {
            1 => seconds = field.signed(),
            2 => nanos = field.signed(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Some(
        seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000),
    ))
}

fn exemplar(message: &[u8]) -> Result<Exemplar<'_>, Problem> {
    let mut exemplar = Exemplar {
        labels: ExemplarLabels::Protobuf(message),
        value: 0.0,
        timestamp: None,
    };
    fields(message, |number, field| {
        match number {
            1 => drop(label(field.bytes())?),
            2 => exemplar.value = field.double(),
            3 => exemplar.timestamp = timestamp(field.bytes())?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(exemplar)
}

/// The labels of an exemplar.
pub(crate) fn exemplar_labels(message: &[u8], into: &mut Labels) -> Result<(), Problem> {
    fields(message, |number, field| {
        if number == 1 {
            let (name, value) = label(field.bytes())?;
            into.push(name, value);
        }
        Ok(())
    })
}

/// Name and value of a `LabelPair`.
pub(super) fn label(message: &[u8]) -> Result<(&str, &str), Problem> {
    let (mut name, mut value) = ("", "");
    fields(message, |number, field| {
        match number {
            1 => name = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, value))
}

/// The tag of a label in a metric: field 1, a message.
const LABEL: u8 = 0x0a;

fn put_label(key: &mut Vec<u8>, message: &[u8]) {
    key.push(LABEL);
    push_varint(key, message.len() as u64);
    key.extend_from_slice(message);
}
