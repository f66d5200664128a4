// SPDX-License-Identifier: Apache-2.0

//! Numbers as Prometheus text: shortest form that reads back equal, whole numbers without a point.

/// Whole doubles below this are written without a point.
const WHOLE_BELOW: f64 = 1e15;

/// A buffer to which text is appended.
pub trait TextSink {
    /// Appends.
    fn put(&mut self, text: &str);

    /// The bytes so far.
    fn written(&self) -> &[u8];
}

impl TextSink for String {
    #[inline]
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }

    #[inline]
    fn written(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl TextSink for Vec<u8> {
    #[inline]
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn written(&self) -> &[u8] {
        self
    }
}

/// Appends a double.
pub fn push_f64(text: &mut impl TextSink, value: f64) {
    if value.is_nan() {
        text.put("NaN");
    } else if value.is_infinite() {
        text.put(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value.fract() == 0.0 && value.abs() < WHOLE_BELOW {
        push_i64(text, value as i64); // exact: whole and far below 2^63
    } else {
        text.put(zmij::Buffer::new().format_finite(value));
    }
}

/// Appends a whole number.
pub fn push_i64(text: &mut impl TextSink, value: i64) {
    text.put(itoa::Buffer::new().format(value));
}

/// Appends an unsigned whole number.
pub fn push_u64(text: &mut impl TextSink, value: u64) {
    text.put(itoa::Buffer::new().format(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        let mut text = String::new();
        push_f64(&mut text, value);
        text
    }

    #[test]
    fn doubles_read_back_equal_and_whole_ones_have_no_point() {
        for (value, expected) in [
            (0.0, "0"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (1e300, "1e+300"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(text(value), expected);
        }
        assert_eq!(text(f64::NAN), "NaN");
        for value in [f64::MIN_POSITIVE, 1.0 / 3.0, 123456789.125, -2.5e-300, f64::MAX] {
            assert_eq!(text(value).parse::<f64>().unwrap(), value);
        }
    }
}
