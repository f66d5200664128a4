// SPDX-License-Identifier: Apache-2.0

//! The arguments that C hands over (texts, arrays and structs that may be NULL), and the places for answers.
//!
//! All of it rests on the contract of the header: a pointer is NULL or leads to values of its type and count, for the
//! length of the call.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use crate::status::tg_status::{TG_BAD_TEXT, TG_TOO_SMALL};
use crate::status::{Failure, guard, tg_status};

/// A label: its name and its value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_label {
    /// Its name.
    pub key: *const c_char,
    /// Its value; empty stands for no label.
    pub value: *const c_char,
}

/// A text that has to be there.
///
/// # Safety
/// `bytes` is NULL or leads to a text with a NUL.
pub(crate) unsafe fn text<'a>(bytes: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(bytes, what) }?.ok_or_else(|| Failure::null(what))
}

/// A text, or none where it is NULL.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn optional_text<'a>(bytes: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if bytes.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and the caller promises a NUL.
    let text = unsafe { CStr::from_ptr(bytes) };
    let text = text.to_str();
    text.map(Some)
        .map_err(|error| Failure::new(TG_BAD_TEXT, format!("`{what}` is not UTF-8: {error}")))
}

/// An array; NULL is one of nothing.
///
/// # Safety
/// `first` is NULL or leads to `count` values.
pub(crate) unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Failure::null(what));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) || !first.is_aligned() {
        return Err(Failure::invalid(format!(
            "`{what}` can't have {count} elements there"
        )));
    }
    // SAFETY: it is not NULL, aligned, of a length that can be, and the caller promises the values.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// An array of texts.
///
/// # Safety
/// As of [`array`] and [`text`].
pub(crate) unsafe fn texts<'a>(
    first: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<Vec<&'a str>, Failure> {
    // SAFETY: the caller's promise.
    let texts = unsafe { array(first, count, what) }?;
    // SAFETY: as above.
    texts.iter().map(|bytes| unsafe { text(*bytes, what) }).collect()
}

/// Labels as the SDK takes them.
///
/// # Safety
/// As of [`array`] and [`text`].
pub(crate) unsafe fn labels<'a>(
    first: *const tg_label,
    count: usize,
    what: &str,
) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    // SAFETY: the caller's promise.
    let labels = unsafe { array(first, count, what) }?;
    let pair = |label: &tg_label| {
        // SAFETY: as above.
        unsafe { Ok((text(label.key, what)?, text(label.value, what)?)) }
    };
    labels.iter().map(pair).collect()
}

/// Structs that grow at their end and begin with their size, as the program that made them knew it.
///
/// # Safety
/// `#[repr(C)]`, the first field is a `usize` with the size, and zero is a valid value of every field.
pub(crate) unsafe trait Growing: Copy {}

/// A copy in which what the program did not know of is zero. NULL is a struct of zeros.
///
/// # Safety
/// `given` is NULL or leads to as many bytes as it says.
pub(crate) unsafe fn growing<T: Growing>(given: *const T, what: &str) -> Result<T, Failure> {
    let mut own = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: `T` begins with its size, as `Growing` demands, and the caller promises that it is there.
        let size = unsafe { given.cast::<usize>().read_unaligned() };
        if size < size_of::<usize>() {
            return Err(Failure::invalid(format!("`{what}`: `size` is not set")));
        }
        let known = size.min(size_of::<T>());
        // SAFETY: `known` bytes are in both.
        unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), own.as_mut_ptr().cast(), known) };
    }
    // SAFETY: every field is zero or what the program set.
    Ok(unsafe { own.assume_init() })
}

/// Where an answer goes, which is NULL or zero until there is one.
///
/// # Safety
/// `place` is NULL or may be written to.
pub(crate) unsafe fn output<'a, T>(place: *mut T, nothing: T, what: &str) -> Result<&'a mut T, Failure> {
    if place.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: it is not NULL, and the caller promises that it may be written to; its old content is not read.
    unsafe {
        place.write(nothing);
        Ok(&mut *place)
    }
}

/// The value behind a handle.
///
/// # Safety
/// `handle` is NULL or one of `T` that has an owner.
#[inline]
pub(crate) unsafe fn borrow<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise: the owner of the handle keeps the value during the call.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null(what))
}

/// Makes a handle with one owner and puts it where the program wants it.
///
/// # Safety
/// `to` is NULL or may be written to.
pub(crate) unsafe fn give<T>(
    to: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let to = unsafe { output(to, std::ptr::null_mut(), "the place for the handle") }?;
    *to = Arc::into_raw(Arc::new(make()?)).cast_mut();
    Ok(())
}

/// One owner more.
///
/// # Safety
/// As of [`borrow`].
pub(crate) unsafe fn retain<T>(handle: *const T) -> tg_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { borrow(handle, "the handle") }?;
        // SAFETY: handles come from `Arc::into_raw`, and this one has an owner.
        unsafe { Arc::increment_strong_count(handle) };
        Ok(())
    })
}

/// One owner less. NULL has none.
///
/// # Safety
/// As of [`borrow`]; the caller gives up that owner.
pub(crate) unsafe fn release<T>(handle: *const T) -> tg_status {
    guard(|| {
        if !handle.is_null() {
            // SAFETY: handles come from `Arc::into_raw`, and the caller's ownership of this one ends here.
            drop(unsafe { Arc::from_raw(handle) });
        }
        Ok(())
    })
}

/// Copies text and a NUL to a buffer, and says how many bytes that takes.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `needed` is NULL or may be written to.
pub(crate) unsafe fn copy_text(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    let length = text.len() + 1;
    // SAFETY: the caller's promise.
    if let Some(needed) = unsafe { needed.as_mut() } {
        *needed = length;
    }
    if buffer.is_null() || capacity < length {
        let text = format!("{length} bytes are needed, there is room for {capacity}");
        return Err(Failure::new(TG_TOO_SMALL, text));
    }
    // SAFETY: there is room for `length` bytes, and our text lies elsewhere.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// Nanoseconds as the SDK takes them.
pub(crate) fn nanos(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
