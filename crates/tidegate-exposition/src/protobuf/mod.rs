// SPDX-License-Identifier: Apache-2.0

//! Delimited protobuf: `io.prometheus.client.MetricFamily`, one message after another.
//!
//! A summary or classic histogram is given as the samples that it would be in a text format, so that code that reads
//! pages needs one way for all formats.

mod metric;
mod wire;

use crate::error::{ParseError, Problem};
use crate::event::{self, Escapes, Event, ExposedSample, Histogram, MetricType, SeriesSource, Text};
use crate::labels::Labels;
use crate::openmetrics::is_suffix;
use crate::parser::Options;
use crate::{NAME, number};

pub(crate) use metric::exemplar_labels;
use metric::{Metric, SampleRole, label};
use wire::{WireField, delimited, field, fields};

/// The part of a family that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Help,
    Unit,
    Type,
    Metrics,
}

#[derive(Debug)]
pub(crate) struct Protobuf<'a> {
    page: &'a [u8],
    /// The bytes of the page that have not been read.
    rest: &'a [u8],
    options: Options,
    /// How many families have been begun.
    families: usize,
    family: FamilyHeader<'a>,
    stage: Stage,
    metric: Metric<'a>,
    /// How many parts of the metric have been given.
    given: usize,
    /// Identity of a part: family, labels as they stand in the message, role and bound.
    key: Vec<u8>,
    /// Where role and bound are in it.
    key_base: usize,
}

/// The content of a `MetricFamily` message besides its metrics.
#[derive(Debug, Default)]
struct FamilyHeader<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
    kind: MetricType,
    /// The bytes of its message that have not been read.
    rest: &'a [u8],
}

/// The series of a part.
#[derive(Clone, Debug)]
pub(crate) struct ProtobufSeries<'a> {
    pub(crate) raw: &'a [u8],
    name: &'a str,
    role: SampleRole,
    bound: f64,
    /// The fields of labels.
    labels: &'a [u8],
    family: usize,
    offset: usize,
}

/// Length of role and bound in a key.
const KEY_TAIL: usize = 9;

/// A key that was made before, of the same family.
#[derive(Clone, Copy, Debug)]
struct KnownKey<'k> {
    /// Without role and bound.
    head: &'k [u8],
    labels: &'k [u8],
}

impl<'k> KnownKey<'k> {
    #[inline]
    fn of(key: &'k [u8], name: &[u8]) -> Option<Self> {
        let (head, _) = key.split_last_chunk::<KEY_TAIL>()?;
        let labels = head.strip_prefix(name)?.strip_prefix(&[u8::MAX])?;
        Some(Self { head, labels })
    }
}

impl<'a> Protobuf<'a> {
    pub(crate) fn new(page: &'a [u8], options: Options) -> Self {
        Self {
            page,
            rest: page,
            options,
            families: 0,
            family: FamilyHeader::default(),
            stage: Stage::Metrics,
            metric: Metric::default(),
            given: 0,
            key: Vec::new(),
            key_base: 0,
        }
    }

    fn error(&self, problem: Problem) -> ParseError {
        ParseError::Message {
            family: self.families,
            offset: self.page.len() - self.rest.len(),
            problem,
        }
    }

    pub(crate) fn next(&mut self, expected: &[u8]) -> Result<Option<Event<'_>>, ParseError> {
        match self.advance(expected) {
            Ok(true) => Ok(Some(self.event())),
            Ok(false) => Ok(None),
            Err(problem) => Err(self.error(problem)),
        }
    }

    /// Goes to what is given next; whether there is such.
    fn advance(&mut self, expected: &[u8]) -> Result<bool, Problem> {
        match self.stage {
            Stage::Help if !self.family.unit.is_empty() => self.stage = Stage::Unit,
            Stage::Help | Stage::Unit => self.stage = Stage::Type,
            Stage::Type | Stage::Metrics => {
                self.stage = Stage::Metrics;
                self.given += 1;
                while self.given >= self.metric.parts.len() {
                    if !self.next_metric(expected)? {
                        return self.next_family();
                    }
                    self.given = 0;
                }
            }
        }
        Ok(true)
    }

    /// Reads the family's next metric; whether there is one.
    fn next_metric(&mut self, expected: &[u8]) -> Result<bool, Problem> {
        let name = self.family.name.as_bytes();
        let known = KnownKey::of(expected, name);
        while !self.family.rest.is_empty() {
            let (number, field) = field(&mut self.family.rest)?;
            if number != 4 {
                continue;
            }
            let (kind, native) = (self.family.kind, self.options.native_histograms);
            self.key.clear();
            let message = field.bytes();
            // Labels that stand as they stood before need not be looked at.
            match known.and_then(|known| Some((known, message.strip_prefix(known.labels)?))) {
                Some((known, rest)) => {
                    self.key.extend_from_slice(known.head);
                    self.metric.read(rest, kind, native, &mut self.key)?;
                }
                None => {
                    self.key.extend_from_slice(name);
                    self.key.push(u8::MAX);
                    self.metric.read(message, kind, native, &mut self.key)?;
                }
            }
            self.key_base = self.key.len();
            self.key.extend_from_slice(&[0; KEY_TAIL]);
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads the next family that has metrics; whether there is one.
    fn next_family(&mut self) -> Result<bool, Problem> {
        while !self.rest.is_empty() {
            self.families += 1;
            let message = delimited(&mut self.rest)?;
            if let Some(family) = FamilyHeader::read(message)? {
                family.check()?;
                self.family = family;
                self.metric.parts.clear();
                self.given = 0;
                self.stage = Stage::Help;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn event(&mut self) -> Event<'_> {
        let plain = |text: &'a str| Text {
            raw: text.as_bytes(),
            escapes: Escapes::None,
        };
        let family = plain(self.family.name);
        match self.stage {
            Stage::Help => Event::Help {
                family,
                help: plain(self.family.help),
            },
            Stage::Unit => Event::Unit {
                family,
                unit: plain(self.family.unit),
            },
            Stage::Type => Event::Type {
                family,
                kind: self.family.kind,
            },
            Stage::Metrics => self.part(),
        }
    }

    fn part(&mut self) -> Event<'_> {
        // `advance` stops at a part, and `next_metric` makes room for the tail.
        let part = &self.metric.parts[self.given];
        let tail = &mut self.key[self.key_base..];
        tail[0] = part.role as u8;
        tail[1..].copy_from_slice(&part.bound.to_bits().to_le_bytes());
        let series = event::ExposedSeries(SeriesSource::Protobuf(ProtobufSeries {
            raw: &self.key,
            name: self.family.name,
            role: part.role,
            bound: part.bound,
            labels: &self.key[self.family.name.len() + 1..self.key_base],
            family: self.families,
            offset: self.page.len() - self.rest.len(),
        }));
        let (timestamp, created) = (self.metric.timestamp, self.metric.created);
        if part.role == SampleRole::Native {
            return Event::Histogram(Histogram {
                series,
                value: &self.metric.native,
                timestamp,
                created,
                exemplars: &self.metric.exemplars,
            });
        }
        Event::Sample(ExposedSample {
            series,
            value: part.value,
            timestamp,
            created,
            exemplar: part.exemplar.clone(),
        })
    }
}

impl<'a> FamilyHeader<'a> {
    /// Reads a message; nothing where it has no metrics, whatever else is in it.
    fn read(message: &'a [u8]) -> Result<Option<Self>, Problem> {
        let mut family = Self {
            kind: MetricType::Counter,
            rest: message,
            ..Self::default()
        };
        let (mut name, mut help, mut unit) = (
            WireField::Bytes(&[]),
            WireField::Bytes(&[]),
            WireField::Bytes(&[]),
        );
        let (mut kind, mut has_metrics) = (0, false);
        fields(message, |number, field| {
            match number {
                1 => name = field,
                2 => help = field,
                3 => kind = field.number(),
                4 => has_metrics = true,
                5 => unit = field,
                _ => {}
            }
            Ok(())
        })?;
        if !has_metrics {
            return Ok(None);
        }
        (family.name, family.help, family.unit) = (name.text()?, help.text()?, unit.text()?);
        family.kind = MetricType::numbered(kind).ok_or(Problem::ExpectedType)?;
        Ok(Some(family))
    }

    fn check(&self) -> Result<(), Problem> {
        let name = match self.kind {
            MetricType::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            _ => self.name,
        };
        match () {
            () if self.name.is_empty() => Err(Problem::EmptyName),
            () if !is_suffix(name.as_bytes(), self.unit.as_bytes()) => Err(Problem::ExpectedUnit),
            () => Ok(()),
        }
    }
}

impl ProtobufSeries<'_> {
    pub(crate) fn labels(&self, into: &mut Labels) -> Result<(), ParseError> {
        self.read_labels(into).map_err(|problem| ParseError::Message {
            family: self.family,
            offset: self.offset,
            problem,
        })
    }

    fn read_labels(&self, into: &mut Labels) -> Result<(), Problem> {
        into.push_joined(NAME, [self.name, self.role.suffix()]);
        fields(self.labels, |_, field| {
            let (name, value) = label(field.bytes())?;
            if name.is_empty() {
                return Err(Problem::EmptyName);
            }
            into.push(name, value);
            Ok(())
        })?;
        if let Some(name) = self.role.label() {
            into.push(name, &number::format_float(self.bound));
        }
        Ok(())
    }
}
