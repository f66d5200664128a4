// SPDX-License-Identifier: Apache-2.0

//! Value types that configuration has and Rust has not: sizes in bytes, maps in written order, headers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::secret::Secret;

/// A number of bytes, written plainly or with a unit: `65536`, `64KiB`, `64 MiB`, `1GB`.
///
/// ```
/// use tidegate_config::ByteSize;
/// assert_eq!("64KiB".parse(), Ok(ByteSize(65_536)));
/// assert_eq!(ByteSize::mib(4).to_string(), "4MiB");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// So many times 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// So many times 1,048,576 bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The bytes as a length in memory, at most `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Unit names, smallest first; the binary ones are those that `Display` uses.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// The text is not a size, or too large a one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a size in bytes such as 65536 or 64MiB")]
pub struct NotASize;

impl FromStr for ByteSize {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| NotASize)?;
        let unit = unit.trim().to_ascii_lowercase();
        let factor = match unit.as_str() {
            "" => 1,
            unit => SIZE_UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, factor)| *factor)
                .ok_or(NotASize)?,
        };
        number.checked_mul(factor).map(Self).ok_or(NotASize)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: &[(u64, &str)] = &[
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        let unit = BINARY
            .iter()
            .find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size));
        match unit {
            Some((size, name)) => write!(f, "{}{name}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A map that keeps the written order of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered<T>(pub Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ordered<T> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Keys and values in written order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }
}

/// Headers in written order, as a map or as a list of `name` and `value`. A list may repeat a name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers(pub Vec<(String, Secret)>);

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The first value of a name, in any case.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        let mut all = self.iter();
        let found = all.find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Names and values in written order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// Go's and humantime's spellings (`10ms`, `1h30m`, `1.5s`), and a bare `0`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    match text {
        "0" => Some(Duration::ZERO),
        text => humantime::parse_duration(text).ok(),
    }
}
