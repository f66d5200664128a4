// SPDX-License-Identifier: Apache-2.0

//! The headers of messages.

use tidegate_engine::UnixNanos;

use super::PageError;

const VERSION: &str = "tg-v";
const SEQUENCE: &str = "tg-seq";
const EPOCH: &str = "tg-epoch";
const KIND: &str = "tg-kind";
const RULES: &str = "tg-rules";

/// The version of the format.
const CURRENT: &str = "1";

/// The most bytes of a value that an error shows.
const MAX_SHOWN: usize = 32;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// A page of a run.
    Page,
    /// The retained totals of ended runs.
    Retained,
    /// The end of a run.
    Bye,
}

impl PageKind {
    const ALL: [Self; 3] = [Self::Page, Self::Retained, Self::Bye];

    fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Retained => "retained",
            Self::Bye => "bye",
        }
    }
}

/// The headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeaders {
    /// The kind.
    pub kind: PageKind,
    /// A number that grows with each message of a run.
    pub sequence: u64,
    /// The run; 0 in retained totals.
    pub epoch: UnixNanos,
    /// A hash of the rules of the producer.
    pub rules: u64,
}

impl PageHeaders {
    /// The headers of retained totals.
    pub const RETAINED: Self = Self {
        kind: PageKind::Retained,
        sequence: 0,
        epoch: 0,
        rules: 0,
    };

    /// The headers as names and values.
    pub fn write(&self) -> Vec<(String, String)> {
        let headers = [
            (VERSION, CURRENT.to_owned()),
            (SEQUENCE, self.sequence.to_string()),
            (EPOCH, self.epoch.to_string()),
            (KIND, self.kind.name().to_owned()),
            (RULES, format!("{:016x}", self.rules)),
        ];
        headers.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Reads names and values. Other headers have no meaning here.
    ///
    /// # Errors
    /// A header is missing or wrong, or the version is not known.
    pub fn parse(headers: &[(String, String)]) -> Result<Self, PageError> {
        let version = value(headers, VERSION)?;
        if version != CURRENT {
            return Err(PageError::Version(version.chars().take(MAX_SHOWN).collect()));
        }
        let kind = value(headers, KIND)?;
        let kind = PageKind::ALL.into_iter().find(|known| known.name() == kind);
        let rules = u64::from_str_radix(value(headers, RULES)?, 16);
        Ok(Self {
            kind: kind.ok_or(PageError::Header(KIND))?,
            sequence: number(headers, SEQUENCE)?,
            epoch: number(headers, EPOCH)?,
            rules: rules.map_err(|_| PageError::Header(RULES))?,
        })
    }
}

fn value<'a>(headers: &'a [(String, String)], name: &'static str) -> Result<&'a str, PageError> {
    let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let (_, value) = found.ok_or(PageError::MissingHeader(name))?;
    Ok(value)
}

fn number(headers: &[(String, String)], name: &'static str) -> Result<u64, PageError> {
    value(headers, name)?.parse().map_err(|_| PageError::Header(name))
}
