// SPDX-License-Identifier: Apache-2.0

//! Messages on the socket between the gateway and a plugin's process.
//!
//! A frame is its length (u32, little-endian, of what follows), a byte that says what it is, and its fields: numbers
//! little-endian, texts and columns behind their lengths (u32). OTLP is the same bytes as in a call.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::batch::{EventKind, Events, ExportBatch, Values};
use super::instance::{answer_of, printable};
use super::{Description, Setup, Wanted};
use crate::plugin::{Instrument, Signal, Takes};
use crate::response::Answer;

/// Largest frame towards the plugin. The gateway cuts its requests long before.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 30;
/// Largest frame from the plugin: an answer with its message.
pub(super) const MAX_ANSWER_BYTES: usize = 64 << 10;

/// To the plugin's process.
#[derive(Debug)]
pub(super) enum Request {
    /// Load this and make an instance: file, name, version, id, configuration.
    Create(Wanted, Setup),
    /// Export.
    Export(ExportBatch),
    /// Flush.
    Flush,
    /// Flush no more, destroy, end.
    Close,
}

/// From the plugin's process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Response {
    /// There is an instance.
    Created(Description),
    /// There is none, and never will be.
    Refused(String),
    /// The answer of a call.
    Answered(Answer),
}

impl std::fmt::Debug for Setup {
    /// Configuration may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Bytes that are not a frame.
fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed frame")
}

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| malformed())?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(body)
}

/// Reads a frame; `None` at the end of the stream. Memory grows with what really comes.
pub(super) fn read(from: &mut impl Read, max: usize) -> io::Result<Option<Bytes>> {
    let mut length = Vec::new();
    from.take(4).read_to_end(&mut length)?;
    let length = match <[u8; 4]>::try_from(length) {
        Ok(length) => u32::from_le_bytes(length) as usize,
        Err(nothing) if nothing.is_empty() => return Ok(None),
        Err(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    if length > max {
        return Err(malformed());
    }
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() == length {
        Ok(Some(body.into()))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Out(Vec::new());
        match self {
            Self::Create(wanted, setup) => {
                to.u8(b'C');
                to.text(&wanted.path.to_string_lossy());
                to.text(wanted.name.as_deref().unwrap_or_default());
                to.text(
                    &wanted
                        .version
                        .as_ref()
                        .map(ToString::to_string)
                        .unwrap_or_default(),
                );
                to.text(&setup.id);
                to.text(&setup.config);
            }
            Self::Export(batch) => to.batch(batch),
            Self::Flush => to.u8(b'F'),
            Self::Close => to.u8(b'D'),
        }
        to.0
    }

    pub(super) fn decode(body: Bytes) -> io::Result<Self> {
        let mut from = In(body);
        let request = match from.u8()? {
            b'C' => {
                let path = from.text()?.to_string().into();
                let (name, version) = (from.text()?, from.text()?);
                let version = (!version.is_empty()).then(|| version.parse());
                let wanted = Wanted {
                    path,
                    name: (!name.is_empty()).then(|| name.to_string()),
                    version: version.transpose().map_err(|_| malformed())?,
                };
                let (id, config) = (from.text()?.to_string(), from.text()?.to_string());
                Self::Create(wanted, Setup { id, config })
            }
            b'E' => Self::Export(from.batch()?),
            b'F' => Self::Flush,
            b'D' => Self::Close,
            _ => return Err(malformed()),
        };
        from.end(request)
    }
}

impl Response {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Out(Vec::new());
        match self {
            Self::Created(description) => {
                to.u8(b'C');
                to.text(&description.name);
                to.text(&description.version);
                to.u32(description.takes.0);
            }
            Self::Refused(why) => {
                to.u8(b'R');
                to.text(why);
            }
            Self::Answered(answer) => {
                let (lost, after) = match answer {
                    Answer::Partial { lost_items, .. } => (*lost_items, 0),
                    Answer::Retry { after, .. } => (0, after.map_or(0, |after| after.as_nanos() as u64)),
                    _ => (0, 0),
                };
                to.u8(b'A');
                to.u32(answer.status().cast_unsigned());
                to.u64(lost);
                to.u64(after);
                to.text(answer.why());
            }
        }
        to.0
    }

    pub(super) fn decode(body: Bytes) -> io::Result<Self> {
        let mut from = In(body);
        let response = match from.u8()? {
            b'C' => Self::Created(Description {
                name: printable(&from.text()?),
                version: printable(&from.text()?),
                takes: Takes(from.u32()?).known(),
            }),
            b'R' => Self::Refused(printable(&from.text()?)),
            b'A' => {
                let (status, lost, after) = (from.u32()?.cast_signed(), from.u64()?, from.u64()?);
                Self::Answered(answer_of(status, lost, after, &from.text()?))
            }
            _ => return Err(malformed()),
        };
        from.end(response)
    }
}

struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Lengths beyond u32 make the frame too long, which `write` says.
    fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
    }

    fn pairs(&mut self, pairs: &[(Arc<str>, Arc<str>)]) {
        self.length(pairs.len());
        for (key, value) in pairs {
            self.text(key);
            self.text(value);
        }
    }

    fn column<T, const N: usize>(&mut self, values: &[T], bytes: impl Fn(&T) -> [u8; N]) {
        self.length(values.len());
        self.0.extend(values.iter().flat_map(bytes));
    }

    fn batch(&mut self, batch: &ExportBatch) {
        self.0.reserve(batch.otlp.len() + 64);
        self.u8(b'E');
        self.u8(batch.signal as u8);
        self.u64(batch.items);
        self.length(batch.otlp.len());
        self.0.extend_from_slice(&batch.otlp);
        self.length(batch.events.len());
        for events in &batch.events {
            self.events(events);
        }
    }

    fn events(&mut self, events: &Events) {
        self.text(&events.source);
        self.pairs(&events.attributes);
        self.length(events.kinds.len());
        for kind in &events.kinds {
            for text in [&kind.name, &kind.category, &kind.unit, &kind.description] {
                self.text(text);
            }
            self.u8(kind.instrument as u8);
            self.pairs(&kind.attributes);
        }
        self.column(&events.kind, |kind| kind.to_le_bytes());
        match &events.values {
            Values::U64(values) => {
                self.u8(0);
                self.column(values, |value| value.to_le_bytes());
            }
            Values::F64(values) => {
                self.u8(1);
                self.column(values, |value| value.to_le_bytes());
            }
        }
        self.column(&events.times_ns, |time| time.to_le_bytes());
        self.u8(u8::from(events.weights.is_some()));
        if let Some(weights) = &events.weights {
            self.column(weights, |weight| weight.to_le_bytes());
        }
    }
}

struct In(Bytes);

impl In {
    fn take(&mut self, length: usize) -> io::Result<Bytes> {
        if length <= self.0.len() {
            Ok(self.0.split_to(length))
        } else {
            Err(malformed())
        }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.as_ref().try_into().map_err(|_| malformed())
    }

    fn u8(&mut self) -> io::Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn length(&mut self) -> io::Result<usize> {
        self.u32().map(|length| length as usize)
    }

    fn text(&mut self) -> io::Result<Arc<str>> {
        let length = self.length()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(&bytes)
            .map(Arc::from)
            .map_err(|_| malformed())
    }

    /// So many of something, each of at least one byte: no memory is taken on the word of a number.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let length = self.length()?;
        (0..length).map(|_| one(self)).collect()
    }

    fn pairs(&mut self) -> io::Result<Vec<(Arc<str>, Arc<str>)>> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }

    fn column<T, const N: usize>(&mut self, value: impl Fn([u8; N]) -> T) -> io::Result<Vec<T>> {
        let length = self.length()?;
        let bytes = self.take(length.checked_mul(N).ok_or_else(malformed)?)?;
        let (values, _) = bytes.as_chunks::<N>();
        Ok(values.iter().copied().map(value).collect())
    }

    fn batch(&mut self) -> io::Result<ExportBatch> {
        let signal = Signal::from_number(u32::from(self.u8()?)).ok_or_else(malformed)?;
        let items = self.u64()?;
        let length = self.length()?;
        Ok(ExportBatch {
            signal,
            items,
            otlp: self.take(length)?,
            events: self.list(Self::events)?,
        })
    }

    fn events(&mut self) -> io::Result<Events> {
        let events = Events {
            source: self.text()?,
            attributes: self.pairs()?,
            kinds: self.list(Self::kind)?,
            kind: self.column(u16::from_le_bytes)?,
            values: match self.u8()? {
                0 => Values::U64(self.column(u64::from_le_bytes)?),
                1 => Values::F64(self.column(f64::from_le_bytes)?),
                _ => return Err(malformed()),
            },
            times_ns: self.column(u64::from_le_bytes)?,
            weights: match self.u8()? {
                0 => None,
                _ => Some(self.column(f64::from_le_bytes)?),
            },
        };
        events.is_sound().then_some(events).ok_or_else(malformed)
    }

    fn kind(&mut self) -> io::Result<EventKind> {
        Ok(EventKind {
            name: self.text()?,
            category: self.text()?,
            unit: self.text()?,
            description: self.text()?,
            instrument: Instrument::from_number(u32::from(self.u8()?)).ok_or_else(malformed)?,
            attributes: self.pairs()?,
        })
    }

    fn end<T>(self, value: T) -> io::Result<T> {
        self.0.is_empty().then_some(value).ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests;
