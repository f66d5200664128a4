//! How long somebody waits for an answer: until a time, or until he goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant as Clock;

use super::QueryError;

/// How long an answer is waited for. The default waits for ever. A clone is the same patience.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    deadline: Option<Clock>,
    is_over: Arc<AtomicBool>,
}

impl Patience {
    /// Until a time.
    pub fn until(deadline: Clock) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::default()
        }
    }

    /// Ends it: nobody waits any more.
    pub fn give_up(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Whether somebody still waits.
    ///
    /// # Errors
    /// `Canceled`: nobody does. `Timeout`: the time is over.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.is_over.load(Relaxed) {
            return Err(QueryError::Canceled);
        }
        match self.deadline.is_some_and(|deadline| Clock::now() > deadline) {
            true => Err(QueryError::Timeout),
            false => Ok(()),
        }
    }
}
