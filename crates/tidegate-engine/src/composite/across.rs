// SPDX-License-Identifier: Apache-2.0

//! The reduction of the series of a group to one value.

/// Puts the values of the series of a group together, after the function has reduced each series over the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Across {
    /// Their sum.
    Sum,
    /// Their mean.
    Avg,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The number of series with a value.
    Count,
    /// The value of this rank, 0 to 1, interpolated between the two nearest.
    Quantile(f64),
    /// No value per series: the function sees the observations of all series in one window.
    Pool,
}

impl Across {
    /// The name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
            Self::Quantile(_) => "quantile",
            Self::Pool => "pool",
        }
    }

    /// One value of those of the series, sorted in ascending order; `None` where there are none.
    pub(super) fn combine(self, sorted: &[f64]) -> Option<f64> {
        let (first, last) = (sorted.first()?, sorted.last()?);
        Some(match self {
            Self::Sum | Self::Pool => sorted.iter().sum(),
            Self::Avg => sorted.iter().sum::<f64>() / sorted.len() as f64,
            Self::Min => *first,
            Self::Max => *last,
            Self::Count => sorted.len() as f64,
            Self::Quantile(rank) => quantile(sorted, rank),
        })
    }
}

/// The value of a rank among sorted values, which are at least one.
pub(super) fn quantile(sorted: &[f64], rank: f64) -> f64 {
    let place = rank.clamp(0.0, 1.0) * (sorted.len().saturating_sub(1)) as f64;
    let at = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
    let (lower, upper) = (at(place.floor()), at(place.ceil()));
    match place.fract() {
        0.0 => lower,
        share => lower + (upper - lower) * share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_says_what_it_does() {
        let sorted = [1.0, 2.0, 9.0];
        let expected = [
            (Across::Sum, 12.0),
            (Across::Avg, 4.0),
            (Across::Min, 1.0),
            (Across::Max, 9.0),
            (Across::Count, 3.0),
            (Across::Quantile(0.5), 2.0),
            (Across::Quantile(0.75), 5.5),
            (Across::Quantile(1.0), 9.0),
        ];
        for (across, expected) in expected {
            assert_eq!(across.combine(&sorted), Some(expected), "{}", across.name());
            assert_eq!(across.combine(&[]), None, "{}", across.name());
        }
    }
}
