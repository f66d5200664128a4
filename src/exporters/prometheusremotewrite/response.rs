// SPDX-License-Identifier: Apache-2.0

//! The answers of receivers, and their meaning for the request (Remote-Write 2.0, "Response").

use std::time::Duration;

use http::HeaderMap;

use super::Dialect;
use super::progress::Chunk;
use crate::component::Reason;
use crate::delivery::http::HttpAnswer;
use crate::prom::remote::{Version, WRITTEN_HEADERS};

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The receiver has it.
    Taken,
    /// The receiver permanently refuses some points, and accepts the others.
    Lost {
        items: usize,
        reason: Reason,
        why: String,
    },
    /// A part of it may pass; `searches`: for what is wrong with it, not because it is too large.
    Halve { why: String, searches: bool },
    /// The receiver can't take the request now.
    Again { after: Option<Duration>, why: String },
    /// The receiver does not accept our credentials; `retries`: they may be renewed.
    Denied {
        retries: bool,
        after: Option<Duration>,
        why: String,
    },
    /// The receiver does not know this message.
    Strange { why: String },
}

impl WriteOutcome {
    /// The reason, unless the receiver accepts all points.
    fn why_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Taken => None,
            Self::Lost { why, .. }
            | Self::Halve { why, .. }
            | Self::Again { why, .. }
            | Self::Strange { why }
            | Self::Denied { why, .. } => Some(why),
        }
    }

    /// Replaces the reason.
    pub(super) fn reworded(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        if let Some(why) = self.why_mut() {
            *why = reword(why);
        }
        self
    }

    /// Makes a final outcome retryable. A request that is too large is still cut.
    pub(super) fn tried_again(self) -> Self {
        match self {
            Self::Denied { after, why, .. } => Self::Denied {
                retries: true,
                after,
                why,
            },
            Self::Lost { why, .. } | Self::Halve { why, searches: true } => Self::Again { after: None, why },
            other => other,
        }
    }
}

/// The contents of the sent request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) points: usize,
    /// Samples and native histograms, which may be several a point.
    pub(super) samples: usize,
}

impl Sent {
    pub(super) fn of(chunk: &Chunk) -> Self {
        let samples = chunk
            .series()
            .map(|series| series.samples.len() + series.histograms.len());
        Self {
            points: chunk.points(),
            samples: samples.sum(),
        }
    }
}

/// Samples and histograms that a receiver says it wrote; `None`: it says nothing.
fn written(headers: &HeaderMap) -> Option<usize> {
    let said = WRITTEN_HEADERS.map(|name| headers.get(name)?.to_str().ok()?.trim().parse::<usize>().ok());
    if said.iter().all(Option::is_none) {
        return None;
    }
    let [samples, histograms, _] = said;
    Some(samples.unwrap_or(0).saturating_add(histograms.unwrap_or(0)))
}

/// The outcome that an answer means.
pub(super) fn outcome(answer: &HttpAnswer, version: Version, dialect: Dialect, sent: &Sent) -> WriteOutcome {
    let why = answer.text();
    let written = written(&answer.headers).filter(|_| version == Version::Two);
    let partly = |written: usize| {
        // Each missing sample may belong to another point, so this is the most incomplete points.
        let missing = sent.samples.saturating_sub(written).min(sent.points);
        WriteOutcome::Lost {
            items: missing,
            reason: Reason::Rejected,
            why: format!("{written} of {} samples were written: {why}", sent.samples),
        }
    };
    match (answer.status.as_u16(), version, written) {
        (200..300, Version::One, _) => WriteOutcome::Taken,
        (200..300, Version::Two, Some(written)) if written >= sent.samples => WriteOutcome::Taken,
        (200..300, Version::Two, Some(written)) => partly(written),
        // "Senders SHOULD assume 415": it decoded nothing and noticed nothing.
        (200..300, Version::Two, None) => WriteOutcome::Strange {
            why: format!("{why}, without the number of written samples"),
        },
        (415, Version::Two, _) => WriteOutcome::Strange { why },
        // Older receivers say it like that.
        (400, Version::Two, None) if dialect == Dialect::Two => WriteOutcome::Strange { why },
        (400 | 422, Version::Two, Some(written @ 1..)) => partly(written),
        (400 | 422, _, _) => WriteOutcome::Halve { why, searches: true },
        (401 | 403, _, _) => WriteOutcome::Denied {
            retries: false,
            after: answer.after,
            why,
        },
        (413, _, _) => WriteOutcome::Halve { why, searches: false },
        (429 | 500.., _, _) => WriteOutcome::Again {
            after: answer.after,
            why,
        },
        _ => WriteOutcome::Lost {
            items: sent.points,
            reason: Reason::Rejected,
            why,
        },
    }
}
