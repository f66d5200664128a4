// SPDX-License-Identifier: Apache-2.0

//! The protobuf wire format: tags, varints, lengths (protobuf encoding guide). Nothing is copied.

pub use tidegate_model::varint::varint;

/// How a field's payload is written: the low three bits of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// A number of one to ten bytes.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length, and that number of bytes.
    Bytes = 2,
    /// Four bytes.
    Fixed32 = 5,
}

/// A field as it stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Field number, at least 1.
    pub number: u32,
    /// How the payload is written.
    pub wire: WireType,
    /// The payload: behind the length for `Bytes`, the varint's bytes for `Varint`.
    pub payload: &'a [u8],
}

/// The fields of a message, one after another; `Err` says what is wrong and ends it.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a message.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The bytes behind the fields that have been read.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn fail(&mut self, problem: &'static str) -> Option<Result<Field<'a>, &'static str>> {
        self.rest = &[];
        Some(Err(problem))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (payload, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(payload)
    }

    /// The next field where its tag, and its varint if it is one, are one byte: nearly all are.
    #[inline]
    fn short(&mut self) -> Option<Field<'a>> {
        let (&tag, behind) = self.rest.split_first()?;
        let (wire, (payload, rest)) = match tag & 7 {
            2 => (WireType::Bytes, delimited(behind)?),
            1 => (WireType::Fixed64, behind.split_at_checked(8)?),
            0 => {
                let varint = Some(behind.split_at_checked(1)?);
                (WireType::Varint, varint.filter(|(byte, _)| byte.is_ascii())?)
            }
            _ => return None,
        };
        if !(0x08..0x80).contains(&tag) {
            return None;
        }
        self.rest = rest;
        Some(Field {
            number: u32::from(tag >> 3),
            wire,
            payload,
        })
    }

    /// The next field, whatever it is; there are bytes left.
    #[cold]
    fn long(&mut self) -> Option<Result<Field<'a>, &'static str>> {
        let Some((tag, used)) = varint(self.rest) else {
            return self.fail("a broken tag");
        };
        let Ok(tag) = u32::try_from(tag) else {
            return self.fail("a tag beyond 32 bits");
        };
        self.rest = self.rest.get(used..).unwrap_or_default();
        let number = tag >> 3;
        if number == 0 {
            return self.fail("field number 0");
        }
        let (wire, length) = match tag & 7 {
            0 => (WireType::Varint, varint(self.rest).map(|(_, used)| used)),
            1 => (WireType::Fixed64, Some(8)),
            2 => {
                let length = varint(self.rest).and_then(|(length, used)| {
                    self.rest = self.rest.get(used..)?;
                    usize::try_from(length).ok()
                });
                (WireType::Bytes, length)
            }
            5 => (WireType::Fixed32, Some(4)),
            // Groups are gone from proto3; no OTLP message has ever had one.
            _ => return self.fail("an unknown wire type"),
        };
        match length.and_then(|length| self.take(length)) {
            Some(payload) => Some(Ok(Field {
                number,
                wire,
                payload,
            })),
            None => self.fail("a value that ends beyond its message"),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.short() {
            Some(field) => Some(Ok(field)),
            None => self.long(),
        }
    }
}

/// A length and that number of bytes, and what is behind them. `None`: they are not there.
#[inline]
pub(crate) fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = match *bytes {
        [length @ 0..0x80, ref behind @ ..] => (usize::from(length), behind),
        [low @ 0x80..=0xff, high @ 0..0x80, ref behind @ ..] => {
            (usize::from(low & 0x7f) | usize::from(high) << 7, behind)
        }
        _ => return long_delimited(bytes),
    };
    behind.split_at_checked(length)
}

/// The same, of a length of three bytes or more.
#[cold]
fn long_delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, used) = varint(bytes)?;
    bytes.get(used..)?.split_at_checked(usize::try_from(length).ok()?)
}
