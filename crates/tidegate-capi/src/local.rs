// SPDX-License-Identifier: Apache-2.0

//! Values that work in the process that made them, and that other processes leave alone.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;

/// Something that the library's threads work with. A fork copies it at any moment of that work, with locks that no thread
/// will release: a child that gives it up leaves it as it is.
pub(crate) struct Local<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> Local<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            process: std::process::id(),
        }
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: no reference to it is left, and it is dropped nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
