// SPDX-License-Identifier: Apache-2.0

//! The hook into `fork`.

use std::io;

/// Has `fork` call `prepare` before, and one of the others after it, for the rest of the process' life.
///
/// # Errors
/// As of `pthread_atfork`.
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> io::Result<()> {
    // SAFETY: functions without arguments that live as long as this code is mapped; the C library drops them
    // when the object that contains it is unloaded.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
