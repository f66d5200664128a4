// SPDX-License-Identifier: Apache-2.0

//! The times of a query's evaluation, and the samples that it needs.

use super::Millis;

/// The times of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first time.
    pub start: Millis,
    /// Milliseconds between two times, 1 at least.
    pub step: Millis,
    /// The number of times.
    pub count: usize,
}

impl Steps {
    /// The time of a step.
    pub fn time(&self, step: usize) -> Millis {
        self.start + self.step * step as Millis
    }

    /// The time of the last step.
    pub fn last(&self) -> Millis {
        self.time(self.count.saturating_sub(1))
    }

    /// The times in their order.
    pub fn times(self) -> impl Iterator<Item = Millis> {
        (0..self.count).map(move |step| self.time(step))
    }
}

/// The samples of its time that a selector needs. A source may give more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The newest one; the present does where none is kept.
    Newest,
    /// At each of these times the newest one that is not later.
    Steps(Steps),
    /// Every one.
    All,
}

impl Need {
    /// Whether the present would not do.
    pub fn needs_past(self) -> bool {
        self != Self::Newest
    }

    /// The last time at which a later sample can replace one of this time.
    pub fn until(self, time: Millis) -> Millis {
        match self {
            Self::Newest => Millis::MAX,
            Self::All => time,
            Self::Steps(Steps { start, .. }) if time <= start => start,
            Self::Steps(Steps { start, step, .. }) => {
                let since = time.saturating_sub(start);
                let behind = since.checked_rem(step).unwrap_or(0);
                match behind {
                    0 => time,
                    behind => time.saturating_add(step - behind),
                }
            }
        }
    }

    /// Appends those of a series' samples, which come in the order of time, that are needed.
    pub fn keep<T>(
        self,
        samples: impl IntoIterator<Item = T>,
        kept: &mut Vec<T>,
        time: impl Fn(&T) -> Millis,
    ) {
        if self == Self::All {
            return samples.into_iter().for_each(|sample| kept.push(sample));
        }
        let mut until = None;
        for sample in samples {
            let now = time(&sample);
            match kept
                .last_mut()
                .filter(|_| until.is_some_and(|until| now <= until))
            {
                Some(newest) => *newest = sample,
                None => {
                    kept.push(sample);
                    until = Some(self.until(now));
                }
            }
        }
    }
}
