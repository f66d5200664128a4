// SPDX-License-Identifier: Apache-2.0

//! From the functions of the table to a type that implements [`Exporter`]: pointers are checked, panics are answers.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Batch, Setup, Takes};
use crate::abi::{self, ABI_VERSION, status};
use crate::response::Answer;

/// A plugin. An instance is created, called and dropped on one thread, one call at a time.
pub trait Exporter: Sized + 'static {
    /// Its name, which is also in the name of its file: `libtidegate_exporter_NAME.so`.
    const NAME: &'static CStr;
    /// Its version, as in Semantic Versioning.
    const VERSION: &'static CStr;
    /// The payloads that it takes.
    const TAKES: Takes;

    /// Makes an instance.
    ///
    /// # Errors
    /// Why it can't be made; the gateway does not start then.
    fn create(setup: &Setup<'_>) -> Result<Self, String>;

    /// Exports a batch.
    fn export(&mut self, batch: &Batch<'_>) -> Answer;

    /// Brings what is still held where it belongs: now and then after exports, and before the end.
    fn flush(&mut self) -> Answer {
        Answer::Ok
    }
}

/// The table of an exporter, for [`exporter_plugin!`](crate::exporter_plugin).
pub const fn table<E: Exporter>() -> abi::Table {
    abi::Table {
        abi_version: ABI_VERSION,
        takes: E::TAKES.0,
        struct_size: size_of::<abi::Table>(),
        name: E::NAME.as_ptr(),
        version: E::VERSION.as_ptr(),
        create: Some(create::<E>),
        export_batch: Some(export::<E>),
        flush: Some(flush::<E>),
        destroy: Some(destroy::<E>),
    }
}

unsafe extern "C" fn create<E: Exporter>(
    setup: *const abi::Setup,
    instance: *mut *mut c_void,
    answer: *mut abi::Answer,
) -> i32 {
    // SAFETY: the header's contract: the gateway's own structs, good and not shared while the call lasts.
    let (setup, instance, answer) = unsafe { (setup.as_ref(), instance.as_mut(), answer.as_mut()) };
    let made = guarded(|| {
        let (Some(setup), Some(instance)) = (setup, instance) else {
            return refused("called without a setup");
        };
        match E::create(&Setup(setup)) {
            Ok(exporter) => {
                *instance = Box::into_raw(Box::new(exporter)).cast();
                Answer::Ok
            }
            Err(why) => Answer::Refused { why },
        }
    });
    write_answer(made, answer)
}

unsafe extern "C" fn export<E: Exporter>(
    instance: *mut c_void,
    batch: *const abi::Batch,
    answer: *mut abi::Answer,
) -> i32 {
    // SAFETY: the header's contract: `instance` is what `create::<E>` stored, not destroyed yet, and called by one
    // thread at a time; the others are the gateway's own structs, good and not shared while the call lasts.
    let (exporter, batch, answer) =
        unsafe { (instance.cast::<E>().as_mut(), batch.as_ref(), answer.as_mut()) };
    let told = guarded(|| match (exporter, batch) {
        (Some(exporter), Some(batch)) => exporter.export(&Batch(batch)),
        _ => refused("called without an instance"),
    });
    write_answer(told, answer)
}

unsafe extern "C" fn flush<E: Exporter>(instance: *mut c_void, answer: *mut abi::Answer) -> i32 {
    // SAFETY: as for `export`.
    let (exporter, answer) = unsafe { (instance.cast::<E>().as_mut(), answer.as_mut()) };
    let told = guarded(|| match exporter {
        Some(exporter) => exporter.flush(),
        None => refused("called without an instance"),
    });
    write_answer(told, answer)
}

unsafe extern "C" fn destroy<E: Exporter>(instance: *mut c_void) {
    if instance.is_null() {
        return;
    }
    // SAFETY: the header's contract: what `create::<E>` stored by `Box::into_raw`, and no call follows.
    let exporter = unsafe { Box::from_raw(instance.cast::<E>()) };
    // No caller to inform.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(exporter)));
}

/// A panic must not leave the shared object. The exporter must handle the state that a panic leaves half done.
fn guarded(call: impl FnOnce() -> Answer) -> Answer {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Answer::Refused {
        why: format!("the plugin panicked: {}", message(&*panic)),
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn refused(why: &str) -> Answer {
    Answer::Refused { why: why.to_owned() }
}

fn write_answer(said: Answer, into: Option<&mut abi::Answer>) -> i32 {
    let Some(into) = into else {
        return status::REFUSED;
    };
    match &said {
        Answer::Partial { lost_items, .. } => into.lost_items = *lost_items,
        Answer::Retry {
            after: Some(after), ..
        } => {
            into.retry_after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        }
        _ => {}
    }
    let why = said.why();
    let length = why.floor_char_boundary(into.message_capacity);
    if !into.message.is_null() {
        // SAFETY: the header's contract: `message` has room for `message_capacity` bytes, and `length` is at most that.
        unsafe { std::ptr::copy_nonoverlapping(why.as_ptr(), into.message.cast::<u8>(), length) };
        into.message_length = length;
    }
    said.status()
}
