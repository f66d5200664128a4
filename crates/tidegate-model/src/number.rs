// SPDX-License-Identifier: Apache-2.0

//! Numbers that stay integers as long as they can.

use crate::Value;

/// The value of a number point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Whole.
    Int(i64),
    /// Floating point.
    Double(f64),
}

impl Number {
    /// Zero, as an integer.
    pub const ZERO: Self = Self::Int(0);

    /// The number as a double; integers beyond 2^53 lose precision.
    #[inline]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Double(number) => number,
        }
    }

    /// The sum: whole when both are and it fits.
    #[must_use]
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        let whole = match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.checked_add(b),
            _ => None,
        };
        whole.map_or_else(|| Self::Double(self.as_f64() + other.as_f64()), Self::Int)
    }

    /// The difference: whole when both are and it fits.
    #[must_use]
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        let whole = match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.checked_sub(b),
            _ => None,
        };
        whole.map_or_else(|| Self::Double(self.as_f64() - other.as_f64()), Self::Int)
    }

    /// Whether it is smaller than `other`; never for NaN.
    #[inline]
    pub fn less(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a < b,
            _ => self.as_f64() < other.as_f64(),
        }
    }

    /// Whether it is a number that can be added up.
    #[inline]
    pub fn is_finite(self) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Double(number) => number.is_finite(),
        }
    }

    /// Equal in kind and bits, so that NaN equals itself.
    #[inline]
    pub fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(number) => Self::Int(number),
            Number::Double(number) => Self::Double(number),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u128> for Number {
    fn from(number: u128) -> Self {
        i64::try_from(number).map_or(Self::Double(number as f64), Self::Int)
    }
}

impl Value {
    /// The number, where the value is one.
    #[inline]
    pub fn number(&self) -> Option<Number> {
        match self {
            Self::Int(number) => Some(Number::Int(*number)),
            Self::Double(number) => Some(Number::Double(*number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_whole_until_they_no_longer_fit() {
        assert_eq!(Number::Int(2).plus(Number::Int(3)), Number::Int(5));
        assert_eq!(
            Number::Int(i64::MAX).plus(Number::Int(1)),
            Number::Double(2f64.powi(63))
        );
        assert_eq!(Number::Int(2).minus(Number::Double(0.5)), Number::Double(1.5));
        assert_eq!(Number::from(1u128 << 64), Number::Double(2f64.powi(64)));
    }
}
