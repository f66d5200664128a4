// SPDX-License-Identifier: Apache-2.0

//! The headers of messages.

use std::time::Duration;

use tidegate_engine::UnixNanos;

use super::PageError;

const VERSION: &str = "tg-v";
const SEQUENCE: &str = "tg-seq";
const EPOCH: &str = "tg-epoch";
const KIND: &str = "tg-kind";
const RULES: &str = "tg-rules";
const INTERVAL: &str = "tg-interval";

/// The interval of a producer that does not write it (1 s).
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// A shorter interval counts as this one (100 ms). A wrong page must not keep replicas from being ready.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

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
    /// The time between two heartbeats of the producer, and between two versions of a page.
    pub interval: Duration,
}

impl PageHeaders {
    /// The headers of retained totals.
    pub const RETAINED: Self = Self {
        kind: PageKind::Retained,
        sequence: 0,
        epoch: 0,
        rules: 0,
        interval: DEFAULT_INTERVAL,
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
        let mut headers = Vec::from(headers.map(|(name, value)| (name.to_owned(), value)));
        if self.interval != DEFAULT_INTERVAL {
            headers.push((INTERVAL.to_owned(), self.interval.as_millis().to_string()));
        }
        headers
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
            interval: interval(headers)?,
        })
    }
}

fn value<'a>(headers: &'a [(String, String)], name: &'static str) -> Result<&'a str, PageError> {
    optional(headers, name).ok_or(PageError::MissingHeader(name))
}

fn optional<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn interval(headers: &[(String, String)]) -> Result<Duration, PageError> {
    let Some(millis) = optional(headers, INTERVAL) else {
        return Ok(DEFAULT_INTERVAL);
    };
    let millis = millis.parse::<u64>();
    let millis = millis.map_err(|_| PageError::Header(INTERVAL))?;
    Ok(Duration::from_millis(millis).max(MIN_INTERVAL))
}

fn number(headers: &[(String, String)], name: &'static str) -> Result<u64, PageError> {
    value(headers, name)?.parse().map_err(|_| PageError::Header(name))
}
