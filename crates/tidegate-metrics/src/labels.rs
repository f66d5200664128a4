// SPDX-License-Identifier: Apache-2.0

//! Label sets with types: names fixed when the program is compiled, values without allocation.

use std::fmt::Write;

/// Labels as a type. `#[derive(LabelSet)]` makes one of a struct whose fields are [`LabelValue`]s; the fields are the
/// labels.
pub trait LabelSet {
    /// Names, in order.
    const NAMES: &'static [&'static str];

    /// Calls `use_values` with the values, in the order of the names.
    fn with_values<R>(&self, use_values: impl FnOnce(&[&str]) -> R) -> R;
}

/// Something that can be the value of a label.
pub trait LabelValue {
    /// Its text, written to `scratch` if it is not text already.
    fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str;
}

/// Room for a number as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scratch {
    bytes: [u8; 32],
    used: usize,
}

impl Scratch {
    /// The text that was written, as far as there was room.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.used).unwrap_or_default()).unwrap_or_default()
    }
}

impl Write for Scratch {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.used + text.len();
        let room = self.bytes.get_mut(self.used..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

impl Scratch {
    /// A number's digits. `Display` takes ten times as long, longer than all else that a look-up does.
    fn decimal(&mut self, is_negative: bool, mut size: u64) -> &str {
        // u64::MAX has 20 digits.
        let (digits, mut first) = (&mut self.bytes[..21], 21);
        while first > 1 {
            first -= 1;
            digits[first] = b'0' + (size % 10) as u8;
            size /= 10;
            if size == 0 {
                break;
            }
        }
        if is_negative {
            first -= 1;
            digits[first] = b'-';
        }
        std::str::from_utf8(&digits[first..]).unwrap_or_default()
    }
}

macro_rules! text_labels {
    ($($type:ty),*) => {$(
        impl LabelValue for $type {
            fn text<'a>(&'a self, _: &'a mut Scratch) -> &'a str {
                self
            }
        }
    )*};
}

text_labels!(
    str,
    String,
    Box<str>,
    std::sync::Arc<str>,
    std::borrow::Cow<'_, str>
);

macro_rules! number_labels {
    ($($type:ty: $number:ident => $is_negative:expr, $size:expr;)*) => {$(
        impl LabelValue for $type {
            #[allow(clippy::cast_lossless, reason = "the sizes of the types differ")]
            fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str {
                let $number = *self;
                scratch.decimal($is_negative, $size as u64)
            }
        }
    )*};
}

number_labels! {
    u8: number => false, number;
    u16: number => false, number;
    u32: number => false, number;
    u64: number => false, number;
    usize: number => false, number;
    i8: number => number < 0, number.unsigned_abs();
    i16: number => number < 0, number.unsigned_abs();
    i32: number => number < 0, number.unsigned_abs();
    i64: number => number < 0, number.unsigned_abs();
    isize: number => number < 0, number.unsigned_abs();
}

impl LabelValue for bool {
    fn text<'a>(&'a self, _: &'a mut Scratch) -> &'a str {
        if *self { "true" } else { "false" }
    }
}

impl<T: LabelValue + ?Sized> LabelValue for &T {
    fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str {
        (**self).text(scratch)
    }
}

impl<T: LabelValue> LabelValue for Option<T> {
    fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str {
        self.as_ref().map_or("", |value| value.text(scratch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_text() {
        let text = |value: &dyn LabelValue| value.text(&mut Scratch::default()).to_owned();
        assert_eq!(text(&i64::MIN), "-9223372036854775808");
        assert_eq!(text(&u64::MAX), "18446744073709551615");
        for number in [i32::MIN, -10, -1, 0, 7, 10, 200, i32::MAX] {
            assert_eq!(text(&number), number.to_string());
        }
        assert_eq!(text(&Some("a")), "a");
        assert_eq!(text(&None::<u8>), "");
        assert_eq!(text(&true), "true");
    }
}
