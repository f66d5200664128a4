// SPDX-License-Identifier: Apache-2.0

//! Bounds of classic histograms, by what they measure.

use std::sync::Arc;

use crate::RegisterError;

/// Seconds of a request or a step: 1 ms to 1 minute, three a decade and denser where service levels lie.
pub const LATENCY: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Seconds of something fast, such as a transfer in a node: 1 µs to 1 s.
pub const FAST: &[f64] = &[
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.1, 1.0,
];

/// Bytes: 256 to 4 GiB by fours.
pub const BYTES: &[f64] = &[
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
];

/// Tokens of a prompt or an answer: 1 to 131072 by twos.
pub const TOKENS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16_384.0,
    32_768.0, 65_536.0, 131_072.0,
];

/// Shares of a whole: 5 % to 100 %.
pub const RATIO: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// The bounds of this name: `latency`, `fast`, `bytes`, `tokens`, `ratio`.
///
/// # Errors
/// There are none of this name.
pub fn named(name: &str) -> Result<Arc<[f64]>, RegisterError> {
    Ok(match name {
        "latency" => LATENCY.into(),
        "fast" => FAST.into(),
        "bytes" => BYTES.into(),
        "tokens" => TOKENS.into(),
        "ratio" => RATIO.into(),
        other => return Err(RegisterError::UnknownBuckets(other.to_owned())),
    })
}

/// `count` bounds from `first` on, each `factor` times the one before.
pub fn exponential(first: f64, factor: f64, count: usize) -> Arc<[f64]> {
    std::iter::successors(Some(first), |bound| Some(bound * factor))
        .take(count)
        .collect()
}

/// `count` bounds from `first` on, `step` apart.
pub fn linear(first: f64, step: f64, count: usize) -> Arc<[f64]> {
    (0..count).map(|at| first + step * at as f64).collect()
}

/// Whether a histogram can have these bounds.
pub(crate) fn are_valid(bounds: &[f64]) -> bool {
    bounds.iter().all(|bound| bound.is_finite()) && bounds.windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_named_bounds_are_valid_and_wrong_ones_are_not() {
        let names = ["latency", "fast", "bytes", "tokens", "ratio"];
        for name in names {
            assert!(are_valid(&named(name).unwrap()), "{name}");
        }
        let refused = named("furlongs").unwrap_err().to_string();
        let listed: Vec<_> = refused.split('`').skip(3).step_by(2).collect();
        assert_eq!(listed, names, "{refused}");
        assert_eq!(*exponential(1.0, 4.0, 3), [1.0, 4.0, 16.0]);
        assert_eq!(*linear(0.0, 0.5, 3), [0.0, 0.5, 1.0]);
        for wrong in [&[1.0, 1.0][..], &[2.0, 1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(!are_valid(wrong), "{wrong:?}");
        }
    }
}
