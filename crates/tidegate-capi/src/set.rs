// SPDX-License-Identifier: Apache-2.0

//! Instruments declared as a struct: a table says which member is which.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::ptr;

use crate::arguments::array;
use crate::family::{tg_description, tg_family_new, tg_family_release};
use crate::instrument::{
    tg_counter_new, tg_counter_release, tg_exponential_histogram_new, tg_float_counter_new,
    tg_float_counter_release, tg_gauge_new, tg_gauge_release, tg_histogram_new, tg_histogram_release,
    tg_up_down_counter_new, tg_up_down_counter_release,
};
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};

/// A member of a struct of instruments: TG_FIELD() and TG_FAMILY_FIELD() make one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_field {
    /// Where in the struct the member is: offsetof.
    pub offset: usize,
    /// A tg_kind: the member is a tg_counter * for TG_COUNTER, and so on; a tg_histogram * for both kinds of histograms.
    pub kind: u32,
    /// The name and the meaning of the instrument.
    pub description: *const tg_description,
    /// Names of labels: the member is a tg_family * then. NULL: it is an instrument.
    pub labels: *const *const c_char,
    /// How many labels.
    pub label_count: usize,
}

/// A member that holds a handle.
type Slot = *mut *mut c_void;

/// The member of `set` that a field says.
///
/// # Safety
/// `set` is a struct with that member.
unsafe fn slot(field: &tg_field, set: *mut c_void) -> Slot {
    // SAFETY: the caller's promise.
    unsafe { set.byte_add(field.offset) }.cast()
}

/// # Safety
/// As of [`tg_set_register`].
unsafe fn make(registry: *const tg_registry, field: &tg_field, slot: Slot) -> tg_status {
    let (described, none) = (field.description, (ptr::null(), 0));
    // SAFETY: the caller's promise; the member has the type of its kind.
    unsafe {
        if !field.labels.is_null() {
            let (names, count) = (field.labels, field.label_count);
            return tg_family_new(
                registry,
                field.kind,
                described,
                none.0,
                none.1,
                names,
                count,
                slot.cast(),
            );
        }
        match field.kind {
            0 => tg_counter_new(registry, described, none.0, none.1, slot.cast()),
            1 => tg_float_counter_new(registry, described, none.0, none.1, slot.cast()),
            2 => tg_up_down_counter_new(registry, described, none.0, none.1, slot.cast()),
            3 => tg_gauge_new(registry, described, none.0, none.1, slot.cast()),
            4 => tg_histogram_new(registry, described, none.0, none.1, slot.cast()),
            5 => tg_exponential_histogram_new(registry, described, none.0, none.1, slot.cast()),
            other => guard(|| Err(Failure::invalid(format!("`kind`: {other} is none")))),
        }
    }
}

/// # Safety
/// As of [`tg_set_release`].
unsafe fn end(field: &tg_field, slot: Slot) -> tg_status {
    // SAFETY: the caller's promise: the member has the type of its kind, and an owner unless it is NULL.
    unsafe {
        let handle = slot.replace(ptr::null_mut());
        if !field.labels.is_null() {
            return tg_family_release(handle.cast());
        }
        match field.kind {
            0 => tg_counter_release(handle.cast()),
            1 => tg_float_counter_release(handle.cast()),
            2 => tg_up_down_counter_release(handle.cast()),
            3 => tg_gauge_release(handle.cast()),
            _ => tg_histogram_release(handle.cast()),
        }
    }
}

/// Registers all instruments of a struct. `fields` says which member is which; a scope of the registry gives them a prefix
/// and labels. If one fails, all members are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_set_register(
    registry: *const tg_registry,
    fields: *const tg_field,
    field_count: usize,
    set: *mut c_void,
) -> tg_status {
    let mut status = tg_status::TG_OK;
    let checked = guard(|| {
        // SAFETY: the contract of the header, here and below.
        let fields = unsafe { array(fields, field_count, "fields") }?;
        if set.is_null() {
            return Err(Failure::null("set"));
        }
        for field in fields {
            unsafe { slot(field, set).write(ptr::null_mut()) };
        }
        for field in fields {
            status = unsafe { make(registry, field, slot(field, set)) };
            if status != tg_status::TG_OK {
                break;
            }
        }
        if status != tg_status::TG_OK {
            for field in fields {
                // A member that can't be made holds nothing.
                let _ = unsafe { end(field, slot(field, set)) };
            }
        }
        Ok(())
    });
    if checked == tg_status::TG_OK {
        status
    } else {
        checked
    }
}

/// One owner less of each instrument of a struct, whose members are NULL then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_set_release(
    fields: *const tg_field,
    field_count: usize,
    set: *mut c_void,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let fields = unsafe { array(fields, field_count, "fields") }?;
        if set.is_null() {
            return Err(Failure::null("set"));
        }
        for field in fields {
            // Releasing a handle of ours can't fail.
            let _ = unsafe { end(field, slot(field, set)) };
        }
        Ok(())
    })
}
