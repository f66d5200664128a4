// SPDX-License-Identifier: Apache-2.0

//! The limits of calls.

/// The most messages of a call.
pub(crate) const MAX_CALL_MESSAGES: usize = 256;

/// The most bytes of bodies in a call, unless one body alone is larger.
pub(crate) const MAX_CALL_BYTES: usize = 1 << 20;

/// The most bytes of a message beside its body: two texts and numbers.
pub(crate) const MAX_HEAD_BYTES: usize = 8 << 10;
