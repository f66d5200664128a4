// SPDX-License-Identifier: Apache-2.0

//! What a receiver leaves to the next one of its name, which a reload builds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::component::Context;

/// Where a receiver leaves its state when it stops. State that no other receiver takes is dropped with the last owner, and
/// the drop ends its sources.
///
/// A reload drops the old receiver after the start of the new one. A gateway that stops drops its receivers after the stop of
/// all processors, which count these sources until their last export.
pub(super) struct Left<T>(Mutex<Option<T>>);

impl<T> Default for Left<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Left<T> {
    /// Leaves the state.
    pub(super) fn put(&self, state: T) {
        let earlier = self.0.lock().replace(state);
        // Not under the lock.
        drop(earlier);
    }

    fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
}

/// Where the last receivers of a gateway leave their state, by the paths of these.
struct LastReceivers<T>(Mutex<HashMap<Arc<str>, Weak<Left<T>>>>);

impl<T> Default for LastReceivers<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

/// The state of the receiver before this one. `left`: where this receiver leaves its own.
pub(super) fn succeed<T: Send + 'static>(base: &Context, left: &Arc<Left<T>>) -> Option<T> {
    let receivers = base.shared.parts.get(LastReceivers::<T>::default);
    let before = receivers.0.lock().insert(base.path.clone(), Arc::downgrade(left));
    before?.upgrade()?.take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::context;

    #[test]
    fn state_goes_to_the_next_receiver_of_the_same_name_once() {
        let base = context("receivers", "a");
        let [first, second] = [(); 2].map(|()| Arc::<Left<u8>>::default());
        assert_eq!(succeed(&base, &first), None);
        first.put(1);
        let other = Context {
            path: "receivers::b".into(),
            ..base.clone()
        };
        assert_eq!(succeed::<u8>(&other, &Arc::default()), None);
        assert_eq!(succeed(&base, &second), Some(1));
        assert_eq!(succeed::<u8>(&base, &Arc::default()), None);
    }

    #[test]
    fn state_that_nobody_takes_goes_with_its_receiver() {
        let base = context("receivers", "a");
        let (left, state) = (Arc::default(), Arc::new(()));
        assert!(succeed::<Arc<()>>(&base, &left).is_none());
        left.put(state.clone());
        drop(left);
        assert_eq!(Arc::strong_count(&state), 1);
        assert!(succeed::<Arc<()>>(&base, &Arc::default()).is_none());
    }
}
