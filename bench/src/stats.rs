// SPDX-License-Identifier: Apache-2.0

//! Statistics of repeated measurements.

/// Measurements in order of size, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// # Panics
    /// If there are none.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Of one against the other, each run against the one of its own round: no ratio shows what the machine did meanwhile.
    pub(crate) fn ratios<T>(one: &[T], other: &[T], of: fn(&T) -> f64) -> Self {
        let rounds = one.iter().zip(other);
        Self::new(rounds.map(|(one, other)| of(one) / of(other)))
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The nearest rank: a value that was measured.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    pub(crate) fn min(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_made_of_runs_of_one_round() {
        // The machine was half as fast in the second round.
        let ratios = Samples::ratios(&[100.0, 200.0, 110.0], &[200.0, 400.0, 200.0], |cost| *cost);
        assert_eq!((ratios.min(), ratios.median(), ratios.max()), (0.5, 0.5, 0.55));
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let samples = Samples::new([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(samples.median(), 2.0);
        assert_eq!(samples.quantile(0.99), 4.0);
        assert_eq!(samples.quantile(0.0), 1.0);
        assert_eq!((samples.min(), samples.max(), samples.count()), (1.0, 4.0, 4));
    }
}
