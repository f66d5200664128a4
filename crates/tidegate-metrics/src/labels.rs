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
    /// Its text, written to `scratch` where it is no text already.
    fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str;
}

/// Room for a number as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scratch {
    bytes: [u8; 32],
    used: usize,
}

impl Scratch {
    /// What was written, as far as there was room.
    fn as_str(&self) -> &str {
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
    ($($type:ty),*) => {$(
        impl LabelValue for $type {
            fn text<'a>(&'a self, scratch: &'a mut Scratch) -> &'a str {
                // The longest, i64::MIN, has 20 characters.
                let _ = write!(scratch, "{self}");
                scratch.as_str()
            }
        }
    )*};
}

number_labels!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

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
        assert_eq!(text(&Some("a")), "a");
        assert_eq!(text(&None::<u8>), "");
        assert_eq!(text(&true), "true");
    }
}
