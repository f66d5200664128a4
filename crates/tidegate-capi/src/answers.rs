// SPDX-License-Identifier: Apache-2.0

//! Texts and arrays that functions give to C to read. They live as long as the handle that owns them.

#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{CString, c_char};

use crate::arguments::tg_label;
use crate::status::terminated;

/// Owner of texts and arrays. They stay where they are, whatever happens to it until it is dropped.
#[derive(Default)]
pub(crate) struct Arena {
    texts: Vec<CString>,
    arrays: Vec<Box<dyn Any>>,
}

impl Arena {
    /// A text with its NUL.
    pub(crate) fn text(&mut self, text: &str) -> *const c_char {
        let text = terminated(text);
        let bytes = text.as_ptr();
        self.texts.push(text);
        bytes
    }

    /// An array: its beginning and its length.
    pub(crate) fn array<T: Copy + 'static>(&mut self, values: Vec<T>) -> (*const T, usize) {
        let found = (values.as_ptr(), values.len());
        self.arrays.push(Box::new(values));
        found
    }

    /// Labels.
    pub(crate) fn labels(&mut self, labels: &[(String, String)]) -> (*const tg_label, usize) {
        let pair = |(key, value): &(String, String)| tg_label {
            key: self.text(key),
            value: self.text(value),
        };
        let labels = labels.iter().map(pair).collect();
        self.array(labels)
    }
}

/// Nanoseconds for C; more than fit are as many as fit.
pub(crate) fn to_nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A number, or NaN where there is none.
pub(crate) fn or_nan(number: Option<f64>) -> f64 {
    number.unwrap_or(f64::NAN)
}
