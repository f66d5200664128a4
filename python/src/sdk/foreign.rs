// SPDX-License-Identifier: Apache-2.0

//! The registry behind a C table of functions, which another extension hands over as a capsule.

#![allow(unsafe_code)]

use std::ffi::CStr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tidegate_metrics::{Foreign, ForeignVtable};

/// The name of the capsule: what is in it.
const NAME: &CStr = c"tidegate.ForeignVtable";

/// `ValueError` if the capsule is another one.
pub(super) fn foreign(capsule: &Bound<'_, PyCapsule>) -> PyResult<Foreign> {
    let table = capsule.pointer_checked(Some(NAME))?.cast::<ForeignVtable>();
    // SAFETY: a program that gives a capsule this name fulfils the contract of `Foreign::new`: the table is as long as
    // it says, and its functions may be called until `release` was.
    let registry = unsafe { Foreign::new(table.as_ptr()) };
    registry.ok_or_else(|| PyValueError::new_err("the table has no size"))
}
