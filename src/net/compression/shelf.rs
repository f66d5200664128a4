//! Coders that wait for their next body: making one costs as much as a small body does.

use std::io;
use std::sync::{Mutex, PoisonError};

/// So many of a kind wait at most. Others are made where they are needed, and not kept.
const KEPT: usize = 4;

/// Coders of one kind that are not in use.
pub(super) struct Shelf<T>(Mutex<Vec<T>>);

impl<T> Shelf<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Has a coder do something. It does not come back from a failure.
    pub(super) fn with<R, E: From<io::Error>>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut coder = match waiting {
            Some(coder) => coder,
            None => make()?,
        };
        let result = work(&mut coder)?;
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < KEPT {
            waiting.push(coder);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_succeeded_is_asked_again_and_no_more_than_a_few_wait() {
        let shelf = Shelf::new();
        let ask = |made: u32, fails: bool| {
            shelf.with(
                || Ok(made),
                |coder| match fails {
                    true => Err(io::Error::other("no")),
                    false => Ok(*coder),
                },
            )
        };
        assert_eq!(ask(1, false).unwrap(), 1);
        assert_eq!(ask(2, false).unwrap(), 1, "the one that waits");
        assert!(ask(3, true).is_err());
        assert_eq!(ask(4, false).unwrap(), 4, "the one that failed is gone");

        fn nest(shelf: &Shelf<u32>, depth: usize) {
            let deeper = |_: &mut u32| -> io::Result<()> {
                if depth > 0 {
                    nest(shelf, depth - 1);
                }
                Ok(())
            };
            shelf.with(|| Ok(0), deeper).unwrap();
        }
        nest(&shelf, 2 * KEPT);
        assert_eq!(shelf.0.lock().unwrap().len(), KEPT);
    }
}
