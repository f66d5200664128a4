//! Messages of DNS (RFC 1035): a question with one name, and the matching part of the answer.
//!
//! Answers come from outside: every length is checked, and pointers are followed only to a limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::receivers::prometheus::config::discovery::RecordType;

/// Longest name and longest part of one (RFC 1035, 2.3.4).
const MAX_NAME_BYTES: usize = 255;
const MAX_LABEL_BYTES: usize = 63;

/// The most pointers in a name. Each points backwards, so a valid name needs fewer.
const MAX_POINTERS: usize = 64;

const HEADER_BYTES: usize = 12;
const CLASS_INTERNET: u16 = 1;
const TYPE_CNAME: u16 = 5;

/// The data of one record.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Record {
    /// An address.
    Address(IpAddr),
    /// A host and a port.
    Service {
        /// The host, with a dot at the end.
        target: String,
        /// The port.
        port: u16,
    },
    /// A mail exchanger.
    Exchange(String),
    /// A name server.
    NameServer(String),
}

/// An answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Answer {
    /// Records of the type that was asked for.
    pub(super) records: Vec<Record>,
    /// The result code; see [`OK`] and [`NO_SUCH_NAME`].
    pub(super) code: u8,
    /// There is more than fits.
    pub(super) truncated: bool,
}

/// The name exists.
pub(super) const OK: u8 = 0;
/// The name does not exist.
pub(super) const NO_SUCH_NAME: u8 = 3;

/// The reason why bytes are no answer to a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Malformed {
    /// The answer ends too early, or points outside itself.
    #[error("the answer is malformed")]
    Answer,
    /// The answer is to another question.
    #[error("the answer is to another question")]
    OtherQuestion,
    /// The name can't be asked for.
    #[error("not a name that DNS can have")]
    Name,
}

fn number(record_type: RecordType) -> u16 {
    match record_type {
        RecordType::A => 1,
        RecordType::Ns => 2,
        RecordType::Mx => 15,
        RecordType::Aaaa => 28,
        RecordType::Srv => 33,
    }
}

/// A question, with recursion wanted.
pub(super) fn question(id: u16, name: &str, record_type: RecordType) -> Result<Vec<u8>, Malformed> {
    let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + 6);
    message.extend(id.to_be_bytes());
    message.extend([1, 0]);
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    let name = name.trim_end_matches('.');
    if name.is_empty() || name.len() >= MAX_NAME_BYTES {
        return Err(Malformed::Name);
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).map_err(|_| Malformed::Name)?;
        if label.is_empty() || label.len() > MAX_LABEL_BYTES {
            return Err(Malformed::Name);
        }
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(number(record_type).to_be_bytes());
    message.extend(CLASS_INTERNET.to_be_bytes());
    Ok(message)
}

/// Reads the answer to a question.
pub(super) fn answer(message: &[u8], id: u16, name: &str, wanted: RecordType) -> Result<Answer, Malformed> {
    let mut reader = Reader { message, at: 0 };
    let (answered, flags) = (reader.u16()?, reader.u16()?);
    let [questions, answers] = [reader.u16()?, reader.u16()?];
    let (_authorities, _additional) = (reader.u16()?, reader.u16()?);
    let is_answer = flags & 0x8000 != 0;
    if answered != id || !is_answer || questions != 1 {
        return Err(Malformed::OtherQuestion);
    }
    let asked = reader.name()?;
    let (kind, _class) = (reader.u16()?, reader.u16()?);
    let same_name = asked
        .trim_end_matches('.')
        .eq_ignore_ascii_case(name.trim_end_matches('.'));
    if !same_name || kind != number(wanted) {
        return Err(Malformed::OtherQuestion);
    }
    let mut found = Answer {
        code: flags.to_be_bytes()[1] & 0x0f,
        truncated: flags & 0x0200 != 0,
        records: Vec::new(),
    };
    // A truncated answer is requested again over TCP.
    let answers = if found.truncated { 0 } else { answers };
    for _ in 0..answers {
        found.records.extend(reader.record(wanted)?);
    }
    Ok(found)
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(bytes).ok_or(Malformed::Answer)?;
        let taken = self.message.get(self.at..end).ok_or(Malformed::Answer)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed::Answer)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// A name with a dot after each part.
    fn name(&mut self) -> Result<String, Malformed> {
        let mut name = String::new();
        let mut at = self.at;
        let mut end = None;
        let mut pointers = 0;
        loop {
            let length = *self.message.get(at).ok_or(Malformed::Answer)?;
            at += 1;
            match length {
                0 => break,
                1..=63 => {
                    let label = self.message.get(at..at + usize::from(length));
                    let label = label.ok_or(Malformed::Answer)?;
                    name.push_str(&String::from_utf8_lossy(label));
                    name.push('.');
                    at += usize::from(length);
                }
                0xc0.. => {
                    let low = *self.message.get(at).ok_or(Malformed::Answer)?;
                    end.get_or_insert(at + 1);
                    at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    pointers += 1;
                }
                _ => return Err(Malformed::Answer),
            }
            if pointers > MAX_POINTERS || name.len() > 4 * MAX_NAME_BYTES {
                return Err(Malformed::Answer);
            }
        }
        self.at = end.unwrap_or(at);
        Ok(name)
    }

    /// A record of the wanted type; others are passed over.
    fn record(&mut self, wanted: RecordType) -> Result<Option<Record>, Malformed> {
        self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        let _time_to_live = self.take(4)?;
        let length = usize::from(self.u16()?);
        let end = self.at.checked_add(length).ok_or(Malformed::Answer)?;
        if end > self.message.len() {
            return Err(Malformed::Answer);
        }
        let is_wanted = kind == number(wanted) && class == CLASS_INTERNET && kind != TYPE_CNAME;
        let record = is_wanted.then(|| self.data(wanted)).transpose()?;
        if self.at > end {
            return Err(Malformed::Answer);
        }
        self.at = end;
        Ok(record)
    }

    fn data(&mut self, wanted: RecordType) -> Result<Record, Malformed> {
        Ok(match wanted {
            RecordType::A => Record::Address(Ipv4Addr::from(self.array::<4>()?).into()),
            RecordType::Aaaa => Record::Address(Ipv6Addr::from(self.array::<16>()?).into()),
            RecordType::Srv => {
                let (_priority, _weight) = (self.u16()?, self.u16()?);
                let port = self.u16()?;
                let target = self.name()?;
                Record::Service { target, port }
            }
            RecordType::Mx => {
                let _preference = self.u16()?;
                Record::Exchange(self.name()?)
            }
            RecordType::Ns => Record::NameServer(self.name()?),
        })
    }
}
