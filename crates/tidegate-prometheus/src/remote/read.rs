// SPDX-License-Identifier: Apache-2.0

//! Reads requests one series after another, without keeping earlier ones. A request takes the memory of its bytes
//! and of one series, whatever it contains. A series with too much text or too many labels is removed before its
//! strings are copied or hashed.

use prost::Message;

use super::Version;
use super::histogram::Native;
use super::series::{Kind, Sample, numbered};
use super::weight::Extent;
use crate::model::{MAX_LABELS, MAX_TEXT_BYTES};
use tidegate_pipeline::batch::wire::proto::{Field, Fields, WireType, varint};

/// The error of reading a request.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not protobuf, or another message.
    #[error("not a write request: {0}")]
    Malformed(&'static str),
    /// A native histogram in it can't be read.
    #[error("not a write request: {0}")]
    Histogram(#[from] prost::DecodeError),
}

/// One series of a request. Strings are those of the request.
#[derive(Debug, Default)]
pub struct SeriesIn<'a> {
    /// The labels as sent: in any order, with any repetition.
    pub labels: Vec<(&'a str, &'a str)>,
    /// The samples.
    pub samples: Vec<Sample>,
    /// The native histograms.
    pub histograms: Vec<Native>,
    /// The exemplars, with value, time and their share of `exemplar_labels`.
    pub exemplars: Vec<ExemplarIn>,
    exemplar_labels: Vec<(&'a str, &'a str)>,
    /// Room for references that are resolved.
    texts: Vec<&'a str>,
    /// 2.0 only.
    pub metadata: Option<Metadata<'a>>,
    /// The size of its strings.
    pub extent: Extent,
}

/// An exemplar of the series that is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExemplarIn {
    /// The observed value.
    pub value: f64,
    /// The time of the observation, in milliseconds.
    pub time: i64,
    /// The end of its labels.
    end: usize,
}

/// The metadata of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The metric; empty if it is that of the series.
    pub family: &'a str,
    /// The kind of the metric.
    pub kind: Kind,
    /// The description.
    pub help: &'a str,
    /// The unit.
    pub unit: &'a str,
}

impl<'a> SeriesIn<'a> {
    /// Every exemplar with its labels.
    pub fn each_exemplar(&self) -> impl Iterator<Item = (&ExemplarIn, &[(&'a str, &'a str)])> {
        let mut start = 0;
        self.exemplars.iter().map(move |exemplar| {
            let labels = self.exemplar_labels.get(start..exemplar.end).unwrap_or_default();
            start = exemplar.end;
            (exemplar, labels)
        })
    }

    fn clear(&mut self) {
        self.labels.clear();
        self.samples.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.exemplar_labels.clear();
        self.texts.clear();
        self.metadata = None;
        self.extent = Extent::default();
    }

    /// Shows it to a visitor, or what is wrong with it.
    fn show(&mut self, visitor: &mut dyn Visitor<'a>) {
        if self.extent.is_absurd() {
            visitor.absurd(self);
        } else {
            visitor.series(self);
        }
    }
}

/// Receives the parts of a request.
pub trait Visitor<'a> {
    /// The next series.
    fn series(&mut self, series: &mut SeriesIn<'a>);

    /// The next series has more text or labels than a series may have. Not all of its labels are there.
    fn absurd(&mut self, series: &SeriesIn<'a>);

    /// Receives metadata of 1.0, which belongs to a metric. All of it comes before the series of the request.
    fn metadata(&mut self, metadata: Metadata<'a>);
}

/// Reads a whole request. An error returns before the visitor gets any wrong part.
///
/// # Errors
/// `Malformed`: the bytes are not a request of this version.
/// `Histogram`: a native histogram can't be decoded.
pub fn read<'a>(version: Version, request: &'a [u8], visitor: &mut dyn Visitor<'a>) -> Result<(), ReadError> {
    match version {
        Version::One => one(request, visitor),
        Version::Two => two(request, visitor),
    }
}

/// Parts of one kind that a series may have. The smallest takes two bytes, and its decoded form many times that.
const MAX_PARTS: usize = 100_000;

/// Appends a part of a series.
fn push<T>(parts: &mut Vec<T>, part: T) -> Result1<()> {
    if parts.len() >= MAX_PARTS {
        return Err(ReadError::Malformed("a series of too many parts"));
    }
    parts.push(part);
    Ok(())
}

type Result1<T> = Result<T, ReadError>;

fn fields(message: &[u8]) -> impl Iterator<Item = Result1<Field<'_>>> {
    Fields::new(message).map(|field| field.map_err(ReadError::Malformed))
}

fn one<'a>(request: &'a [u8], visitor: &mut dyn Visitor<'a>) -> Result1<()> {
    for field in fields(request) {
        let field = field?;
        if field.number == 3 {
            let metadata = family(message(&field)?)?;
            // Metadata without a reader is not kept.
            if metadata.family.len() + metadata.help.len() + metadata.unit.len() <= MAX_TEXT_BYTES {
                visitor.metadata(metadata);
            }
        }
    }
    let mut series = SeriesIn::default();
    for field in fields(request) {
        let field = field?;
        if field.number == 1 {
            series.clear();
            series_one(message(&field)?, &mut series)?;
            series.show(visitor);
        }
    }
    Ok(())
}

fn family(bytes: &[u8]) -> Result1<Metadata<'_>> {
    let mut metadata = Metadata::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => metadata.kind = numbered(number(&field)?),
            2 => metadata.family = text(&field)?,
            4 => metadata.help = text(&field)?,
            5 => metadata.unit = text(&field)?,
            _ => {}
        }
    }
    Ok(metadata)
}

fn series_one<'a>(bytes: &'a [u8], series: &mut SeriesIn<'a>) -> Result1<()> {
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => {
                let label = label(message(&field)?)?;
                series.extent.text += label.0.len() + label.1.len();
                series.extent.labels += 1;
                if series.extent.labels <= MAX_LABELS {
                    series.labels.push(label);
                }
            }
            2 => push(&mut series.samples, sample(message(&field)?)?)?,
            3 => {
                let mut exemplar = ExemplarIn::default();
                let mut labels = 0;
                for field in fields(message(&field)?) {
                    let field = field?;
                    match field.number {
                        1 => {
                            let label = label(message(&field)?)?;
                            series.extent.text += label.0.len() + label.1.len();
                            labels += 1;
                            push(&mut series.exemplar_labels, label)?;
                        }
                        number => exemplar.set(number, &field)?,
                    }
                }
                series.extent.exemplar_labels = series.extent.exemplar_labels.max(labels);
                exemplar.end = series.exemplar_labels.len();
                push(&mut series.exemplars, exemplar)?;
            }
            4 => push(&mut series.histograms, Native::decode(message(&field)?)?)?,
            _ => {}
        }
    }
    Ok(())
}

fn two<'a>(request: &'a [u8], visitor: &mut dyn Visitor<'a>) -> Result1<()> {
    let mut symbols = Vec::new();
    for field in fields(request) {
        let field = field?;
        if field.number == 4 {
            symbols.push(text(&field)?);
        }
    }
    if symbols.first().is_some_and(|first| !first.is_empty()) {
        return Err(ReadError::Malformed("the first symbol is not empty"));
    }
    let mut series = SeriesIn::default();
    for field in fields(request) {
        let field = field?;
        if field.number == 5 {
            series.clear();
            series_two(message(&field)?, &symbols, &mut series)?;
            series.show(visitor);
        }
    }
    Ok(())
}

fn series_two<'a>(bytes: &'a [u8], symbols: &[&'a str], series: &mut SeriesIn<'a>) -> Result1<()> {
    // Until release candidate 3 a start was said once a series.
    let mut start = 0;
    let mut texts = std::mem::take(&mut series.texts);
    let mut of_exemplar = Vec::new();
    let (mut text, mut references) = (0, 0);
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => references += refs(&field, symbols, &mut texts, &mut text)?,
            2 => push(&mut series.samples, sample(message(&field)?)?)?,
            3 => push(&mut series.histograms, Native::decode(message(&field)?)?)?,
            4 => {
                let mut exemplar = ExemplarIn::default();
                let mut references = 0;
                for field in fields(message(&field)?) {
                    let field = field?;
                    match field.number {
                        1 => references += refs(&field, symbols, &mut of_exemplar, &mut text)?,
                        number => exemplar.set(number, &field)?,
                    }
                }
                series.extent.exemplar_labels = series.extent.exemplar_labels.max(references.div_ceil(2));
                pair(&mut of_exemplar, &mut series.exemplar_labels)?;
                if series.exemplar_labels.len() > MAX_PARTS {
                    return Err(ReadError::Malformed("a series of too many parts"));
                }
                exemplar.end = series.exemplar_labels.len();
                push(&mut series.exemplars, exemplar)?;
            }
            5 => {
                let metadata = metadata_two(message(&field)?, symbols)?;
                text += metadata.help.len() + metadata.unit.len();
                series.metadata = Some(metadata);
            }
            6 => start = signed(&field)?,
            _ => {}
        }
    }
    series.extent.text = text;
    series.extent.labels = references.div_ceil(2);
    pair(&mut texts, &mut series.labels)?;
    series.texts = texts;
    let samples = series.samples.iter_mut().map(|sample| &mut sample.start);
    let histograms = series
        .histograms
        .iter_mut()
        .map(|native| &mut native.start_timestamp);
    for own in samples.chain(histograms).filter(|own| **own == 0) {
        *own = start;
    }
    Ok(())
}

fn metadata_two<'a>(bytes: &'a [u8], symbols: &[&'a str]) -> Result1<Metadata<'a>> {
    let mut metadata = Metadata::default();
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => metadata.kind = numbered(number(&field)?),
            3 => metadata.help = symbol(number(&field)?, symbols)?,
            4 => metadata.unit = symbol(number(&field)?, symbols)?,
            _ => {}
        }
    }
    Ok(metadata)
}

impl ExemplarIn {
    fn set(&mut self, number: u32, field: &Field<'_>) -> Result1<()> {
        match number {
            2 => self.value = double(field)?,
            3 => self.time = signed(field)?,
            _ => {}
        }
        Ok(())
    }
}

fn label(bytes: &[u8]) -> Result1<(&str, &str)> {
    let (mut name, mut value) = ("", "");
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => name = text(&field)?,
            2 => value = text(&field)?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn sample(bytes: &[u8]) -> Result1<Sample> {
    let mut sample = Sample {
        time: 0,
        start: 0,
        value: 0.0,
        point: 0,
    };
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            1 => sample.value = double(&field)?,
            2 => sample.time = signed(&field)?,
            3 => sample.start = signed(&field)?,
            _ => {}
        }
    }
    Ok(sample)
}

/// References to symbols, packed or one by one: how many. Of more than labels may have, not all are added to `texts`.
fn refs<'a>(
    field: &Field<'a>,
    symbols: &[&'a str],
    texts: &mut Vec<&'a str>,
    bytes: &mut usize,
) -> Result1<usize> {
    let mut rest = match field.wire {
        WireType::Bytes | WireType::Varint => field.payload,
        _ => return Err(ReadError::Malformed("references of another type")),
    };
    let mut references = 0;
    while !rest.is_empty() {
        let (number, used) = varint(rest).ok_or(ReadError::Malformed("a broken reference"))?;
        rest = rest.get(used..).unwrap_or_default();
        let symbol = symbol(number, symbols)?;
        *bytes = bytes.saturating_add(symbol.len());
        references += 1;
        if texts.len() < 2 * MAX_LABELS {
            texts.push(symbol);
        }
    }
    Ok(references)
}

/// Names and values out of texts that take turns.
fn pair<'a>(texts: &mut Vec<&'a str>, labels: &mut Vec<(&'a str, &'a str)>) -> Result1<()> {
    let mut pairs = texts.chunks_exact(2);
    labels.extend(
        pairs
            .by_ref()
            .filter_map(|pair| Some((*pair.first()?, *pair.last()?))),
    );
    let is_whole = pairs.remainder().is_empty();
    texts.clear();
    if is_whole {
        Ok(())
    } else {
        Err(ReadError::Malformed("a label without a value"))
    }
}

fn symbol<'a>(number: u64, symbols: &[&'a str]) -> Result1<&'a str> {
    let at = usize::try_from(number).ok();
    let found = at.and_then(|at| symbols.get(at)).copied();
    // A request without symbols can't name strings.
    found
        .or((number == 0).then_some(""))
        .ok_or(ReadError::Malformed("a reference beyond the symbols"))
}

fn message<'a>(field: &Field<'a>) -> Result1<&'a [u8]> {
    match field.wire {
        WireType::Bytes => Ok(field.payload),
        _ => Err(ReadError::Malformed("a field is not a message")),
    }
}

fn text<'a>(field: &Field<'a>) -> Result1<&'a str> {
    let bytes = message(field)?;
    std::str::from_utf8(bytes).map_err(|_| ReadError::Malformed("a string that is not UTF-8"))
}

fn number(field: &Field<'_>) -> Result1<u64> {
    match (field.wire, varint(field.payload)) {
        (WireType::Varint, Some((number, _))) => Ok(number),
        _ => Err(ReadError::Malformed("a field is not a number")),
    }
}

fn signed(field: &Field<'_>) -> Result1<i64> {
    number(field).map(u64::cast_signed)
}

fn double(field: &Field<'_>) -> Result1<f64> {
    match (field.wire, field.payload.try_into()) {
        (WireType::Fixed64, Ok(bytes)) => Ok(f64::from_bits(u64::from_le_bytes(bytes))),
        _ => Err(ReadError::Malformed("a field is not a double")),
    }
}
