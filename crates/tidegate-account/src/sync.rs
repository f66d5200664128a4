// SPDX-License-Identifier: Apache-2.0

//! The standard library's atomics, or loom's where it runs the tests.

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
