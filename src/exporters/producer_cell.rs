// SPDX-License-Identifier: Apache-2.0

//! The producer of an exporter to a broker: it connects when it is needed first, and again after it is of no use.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// At most one producer at a time. Attempts share it.
pub(super) struct ProducerCell<P>(Mutex<Arc<OnceCell<Arc<P>>>>);

impl<P> Default for ProducerCell<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P> ProducerCell<P> {
    /// The producer. One of several callers connects, and the others wait for it.
    ///
    /// # Errors
    /// It can't connect. The next caller tries again.
    pub(super) async fn get<E>(&self, connect: impl AsyncFnOnce() -> Result<P, E>) -> Result<Arc<P>, E> {
        let cell = self.0.lock().clone();
        let connected = cell.get_or_try_init(async || connect().await.map(Arc::new));
        connected.await.cloned()
    }

    /// Takes a producer out of use, so that the next caller connects again.
    pub(super) fn replace(&self, broken: &Arc<P>) {
        self.replace_if(|current| Arc::ptr_eq(current, broken));
    }

    /// The same, if `is_broken` says so of the present one.
    pub(super) fn replace_if(&self, is_broken: impl FnOnce(&Arc<P>) -> bool) {
        let mut cell = self.0.lock();
        if cell.get().is_some_and(is_broken) {
            *cell = Arc::default();
        }
    }

    /// Takes out the present producer.
    pub(super) fn take(&self) -> Option<Arc<P>> {
        let cell = std::mem::take(&mut *self.0.lock());
        cell.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_producer_stays_until_it_is_replaced() {
        let cell = ProducerCell::<u32>::default();
        assert!(cell.get(async || Err::<u32, _>("refused")).await.is_err());
        let first = cell.get(async || Ok::<_, ()>(1)).await.unwrap();
        let same = cell.get(async || Ok::<_, ()>(2)).await.unwrap();
        assert_eq!((*first, *same), (1, 1));
        cell.replace(&first);
        // The attempts that had it say so too, and must not replace the next one.
        let second = cell.get(async || Ok::<_, ()>(3)).await.unwrap();
        cell.replace(&first);
        assert_eq!(cell.take(), Some(second));
        assert_eq!(cell.take(), None);
    }
}
