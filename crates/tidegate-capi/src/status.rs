// SPDX-License-Identifier: Apache-2.0

//! How a call went: a code for the program, a text for people, and nothing that unwinds.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_metrics::{CompositeError, ExportError, OpenError, OtelError, RegisterError};

/// Raised when a program that was compiled against an older header would break.
pub const TG_ABI_VERSION: u32 = 1;

/// The result of a call. tg_error_text() describes an error in words.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tg_status {
    /// Done.
    TG_OK = 0,
    /// A pointer that must not be NULL is.
    TG_NULL_POINTER = 1,
    /// A text is not UTF-8.
    TG_BAD_TEXT = 2,
    /// An argument makes no sense: a name, bounds, a number, an address.
    TG_INVALID = 3,
    /// Something else has this name.
    TG_CONFLICT = 4,
    /// There is nothing to give: no value, no such group, no registry that keeps values.
    TG_NONE = 5,
    /// The buffer is too small; the call says how large it must be.
    TG_TOO_SMALL = 6,
    /// It took longer than it may.
    TG_TIMEOUT = 7,
    /// The system refused.
    TG_IO = 8,
    /// This process may not.
    TG_PERMISSION = 9,
    /// The peer, or a foreign registry, refused.
    TG_REFUSED = 10,
    /// A fault of the library itself; nothing of it reaches the program but this.
    TG_INTERNAL = 11,
}

use tg_status::{
    TG_CONFLICT, TG_INTERNAL, TG_INVALID, TG_IO, TG_NONE, TG_NULL_POINTER, TG_OK, TG_PERMISSION, TG_REFUSED,
    TG_TIMEOUT,
};

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: tg_status,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: tg_status, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(TG_INVALID, text)
    }

    /// There is nothing to give.
    pub(crate) fn none(text: impl Into<String>) -> Self {
        Self::new(TG_NONE, text)
    }

    #[cold]
    pub(crate) fn null(what: &str) -> Self {
        Self::new(TG_NULL_POINTER, format!("`{what}` is NULL"))
    }

    /// Keeps the text for anyone who asks on this thread.
    #[cold]
    fn store(self) -> tg_status {
        // No caller can ask after the thread has ended.
        let _ = ERROR.try_with(|error| *error.borrow_mut() = terminated(&self.text));
        self.status
    }
}

/// Text with its NUL. One within would end it: it is replaced.
pub(crate) fn terminated(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

thread_local! {
    /// The error of the last failed call of this thread.
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a call; an error becomes a status.
#[inline]
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> tg_status {
    // Locks protect the state of a call that unwound, and calls take them whether or not they are poisoned.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => TG_OK,
        Ok(Err(failure)) => failure.store(),
        Err(panic) => unwound(panic),
    }
}

#[cold]
fn unwound(panic: Box<dyn Any + Send>) -> tg_status {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    let failure = Failure::new(TG_INTERNAL, format!("a fault of tidegate: {text}"));
    // The value of a panic may panic when it is dropped.
    std::mem::forget(panic);
    failure.store()
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        let status = match &error {
            RegisterError::Conflict { .. } | RegisterError::ShownTwice { .. } => TG_CONFLICT,
            RegisterError::Store { .. } => TG_IO,
            RegisterError::Foreign { .. } => TG_REFUSED,
            _ => TG_INVALID,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CompositeError> for Failure {
    fn from(error: CompositeError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        let status = match &error {
            ExportError::Timeout => TG_TIMEOUT,
            ExportError::Io(_) => TG_IO,
            _ => TG_REFUSED,
        };
        Self::new(status, error.to_string())
    }
}

impl From<OtelError> for Failure {
    fn from(error: OtelError) -> Self {
        let status = match &error {
            OtelError::Io(_) => TG_IO,
            _ => TG_INVALID,
        };
        Self::new(status, error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match &error {
            OpenError::Io { source, .. } => of_kind(source.kind()),
            OpenError::NoRoom { .. } => TG_IO,
            _ => TG_INVALID,
        };
        Self::new(status, error.to_string())
    }
}

impl From<tidegate_ring::Error> for Failure {
    fn from(error: tidegate_ring::Error) -> Self {
        let status = match &error {
            tidegate_ring::Error::Io { source, .. } => of_kind(source.kind()),
            tidegate_ring::Error::PermissionDenied { .. } => TG_PERMISSION,
            tidegate_ring::Error::Rejected { .. } => TG_INVALID,
        };
        Self::new(status, error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(of_kind(error.kind()), error.to_string())
    }
}

fn of_kind(kind: io::ErrorKind) -> tg_status {
    match kind {
        io::ErrorKind::PermissionDenied => TG_PERMISSION,
        io::ErrorKind::InvalidInput => TG_INVALID,
        _ => TG_IO,
    }
}

/// Why the last call of this thread that failed did so, for people: UTF-8, empty when none has failed. Valid until the
/// next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn tg_error_text() -> *const c_char {
    const NONE: &CStr = c"";
    let text = ERROR.try_with(|error| error.borrow().as_ptr());
    text.unwrap_or(NONE.as_ptr())
}

/// The name of a status, such as "TG_INVALID"; "TG_UNKNOWN" for a number that is none.
#[unsafe(no_mangle)]
pub extern "C" fn tg_status_name(status: i32) -> *const c_char {
    const NAMES: [&CStr; 12] = [
        c"TG_OK",
        c"TG_NULL_POINTER",
        c"TG_BAD_TEXT",
        c"TG_INVALID",
        c"TG_CONFLICT",
        c"TG_NONE",
        c"TG_TOO_SMALL",
        c"TG_TIMEOUT",
        c"TG_IO",
        c"TG_PERMISSION",
        c"TG_REFUSED",
        c"TG_INTERNAL",
    ];
    let name = usize::try_from(status).ok().and_then(|at| NAMES.get(at));
    name.unwrap_or(&c"TG_UNKNOWN").as_ptr()
}

/// The version of the ABI of the library that runs. A program that needs what TG_ABI_VERSION said when it was compiled
/// compares the two.
#[unsafe(no_mangle)]
pub extern "C" fn tg_abi_version() -> u32 {
    TG_ABI_VERSION
}

/// The version of the library that runs, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tg_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// How often this process used an instrument in a way that has no meaning: a counter that would fall, an observed value that
/// is not finite, a NaN added to a gauge. Each time nothing was recorded.
#[unsafe(no_mangle)]
pub extern "C" fn tg_misused() -> u64 {
    tidegate_metrics::misused()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text() -> String {
        // SAFETY: it is a text of this thread, which fails no call until it is copied.
        let text = unsafe { CStr::from_ptr(tg_error_text()) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn nothing_unwinds_out_of_a_call() {
        assert_eq!(guard(|| panic!("number {}", 7)), TG_INTERNAL);
        assert_eq!(error_text(), "a fault of tidegate: number 7");
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        assert_eq!(guard(|| std::panic::panic_any(Loud)), TG_INTERNAL);
        assert_eq!(guard(|| Ok(())), TG_OK);
        assert_eq!(error_text(), "a fault of tidegate: no text");
    }

    #[test]
    fn what_failed_is_said_to_the_thread_that_called() {
        assert_eq!(guard(|| Err(Failure::none("a\0b"))), TG_NONE);
        assert_eq!(error_text(), "a\u{fffd}b");
        let elsewhere = std::thread::spawn(error_text).join().expect("no panic");
        assert_eq!(elsewhere, "");
    }

    #[test]
    fn every_status_has_its_name() {
        for (status, name) in [
            (TG_OK, c"TG_OK"),
            (TG_INTERNAL, c"TG_INTERNAL"),
            (TG_TIMEOUT, c"TG_TIMEOUT"),
        ] {
            // SAFETY: names live forever.
            assert_eq!(unsafe { CStr::from_ptr(tg_status_name(status as i32)) }, name);
        }
    }
}
