// SPDX-License-Identifier: Apache-2.0

//! The bucket of a value.

const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;

/// Up to this scale bounds are looked up.
const TABLE_SCALE: u32 = 6;
const PER_OCTAVE: usize = 1 << TABLE_SCALE;
/// The number of equal parts of an octave, in bits: each part has at most one bound in it.
const PART_BITS: u32 = TABLE_SCALE + 1;

/// Mantissas of `2^(i / 64)`, and what no mantissa is above.
const BOUNDS: [u64; PER_OCTAVE + 1] = bounds();
/// The number of bounds, from the second on, below each part.
const BELOW: [u8; 1 << PART_BITS] = below();

const fn bounds() -> [u64; PER_OCTAVE + 1] {
    // Fixed point with 62 fraction bits: its error is far below the last bit of a mantissa.
    const POINT: u32 = 62;
    let mut bounds = [0; PER_OCTAVE + 1];
    bounds[PER_OCTAVE] = MANTISSA;
    let mut at = 1;
    while at < PER_OCTAVE {
        let (mut bound, mut root) = (1_u128 << POINT, 2_u128 << POINT);
        let mut bit = PER_OCTAVE / 2;
        while bit > 0 {
            root = (root << POINT).isqrt();
            if at & bit != 0 {
                bound = (bound * root) >> POINT;
            }
            bit /= 2;
        }
        bounds[at] = (bound >> (POINT - MANTISSA_BITS)) as u64 & MANTISSA;
        at += 1;
    }
    bounds
}

const fn below() -> [u8; 1 << PART_BITS] {
    let mut below = [0; 1 << PART_BITS];
    let (mut part, mut passed) = (0, 0);
    while part < below.len() {
        while BOUNDS[passed + 1] < (part as u64) << (MANTISSA_BITS - PART_BITS) {
            passed += 1;
        }
        below[part] = passed as u8;
        part += 1;
    }
    below
}

/// The bucket of a positive, finite value: `i` with `2^(i * 2^-scale) < value <= 2^((i + 1) * 2^-scale)`. Values
/// that are not normal count as the smallest that is.
pub fn bucket_of(value: f64, scale: i32) -> i32 {
    let value = value.max(f64::MIN_POSITIVE);
    let bits = value.to_bits();
    let exponent = ((bits >> MANTISSA_BITS) & 0x7ff) as i32 - 1023;
    let mantissa = bits & MANTISSA;
    if scale <= 0 {
        return (exponent - i32::from(mantissa == 0)) >> -scale;
    }
    if mantissa == 0 {
        return (exponent << scale) - 1;
    }
    let passed = usize::from(BELOW[(mantissa >> (MANTISSA_BITS - PART_BITS)) as usize]);
    let within = (passed + usize::from(mantissa > BOUNDS[passed + 1])) as i32;
    let finer = scale - TABLE_SCALE as i32;
    if finer <= 0 {
        return ((exponent << TABLE_SCALE) + within) >> -finer;
    }
    // The fraction alone, so that the result is exact to half a bucket at the largest scale.
    let fraction = f64::from_bits(mantissa | 1023 << MANTISSA_BITS);
    let fine = (fraction.log2() * f64::from(1 << scale)).ceil() as i32 - 1;
    // Only the bucket falls with the scale.
    let fine = fine.clamp(within << finer, ((within + 1) << finer) - 1);
    (exponent << scale) + fine
}
