// SPDX-License-Identifier: Apache-2.0

//! The limits of the wait for an answer: a deadline, the caller's departure, or short memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant as Clock;

use super::QueryError;

/// The limits of the wait for an answer. The default has none. A clone shares the same limits.
#[derive(Clone, Default)]
pub struct Patience {
    deadline: Option<Clock>,
    is_over: Arc<AtomicBool>,
    is_short: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("deadline", &self.deadline)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl Patience {
    /// Until a time.
    pub fn until(deadline: Clock) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::default()
        }
    }

    /// Adds a limit: the wait ends when `is_short` says that memory is short.
    #[must_use]
    pub fn unless(self, is_short: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            is_short: Some(Arc::new(is_short)),
            ..self
        }
    }

    /// Ends the wait: the caller no longer needs the answer.
    pub fn give_up(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Checks that the caller still waits.
    ///
    /// # Errors
    /// `Canceled`: the caller gave up. `Timeout`: the time is over. `Memory`: memory is short.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.is_over.load(Relaxed) {
            return Err(QueryError::Canceled);
        }
        if self.deadline.is_some_and(|deadline| Clock::now() > deadline) {
            return Err(QueryError::Timeout);
        }
        if self.is_short.as_ref().is_some_and(|is_short| is_short()) {
            Err(QueryError::Memory)
        } else {
            Ok(())
        }
    }
}
