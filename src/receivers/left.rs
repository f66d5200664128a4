// SPDX-License-Identifier: Apache-2.0

//! What a receiver leaves to the next one of its name, which a reload builds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::component::Context;

/// Where a receiver leaves its state when it stops. State that no other receiver takes is dropped with the last owner, and
/// the drop ends its sources.
///
/// A reload drops the old receivers when all new ones have started. If it fails before, receivers of the old plan go on with
/// all that was left. A gateway that stops drops its receivers after the stop of all processors, which count these sources
/// until their last export.
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

    /// Takes a part of the state out, if there is any. The rest stays.
    pub(super) fn take<R>(&self, part: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.lock().as_mut().map(part)
    }
}

/// Where the receivers with one path leave their state, the oldest first.
type LeftAtPath<T> = Vec<Weak<Left<T>>>;

/// Where the receivers of a gateway leave their state, by their paths.
struct AllLeft<T>(Mutex<HashMap<Arc<str>, LeftAtPath<T>>>);

impl<T> Default for AllLeft<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

/// The states of the receivers before this one, the oldest first. They are several while a reload returns to the old plan.
/// `left`: where this receiver leaves its own.
pub(super) fn succeed<T: Send + 'static>(base: &Context, left: &Arc<Left<T>>) -> Vec<Arc<Left<T>>> {
    let all = base.shared.parts.get(AllLeft::<T>::default);
    let mut all = all.0.lock();
    let receivers = all.entry(base.path.clone()).or_default();
    let before: Vec<_> = receivers.iter().filter_map(Weak::upgrade).collect();
    *receivers = before.iter().chain([left]).map(Arc::downgrade).collect();
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::context;

    /// What the receivers before this one have left.
    fn states(base: &Context, left: &Arc<Left<u8>>) -> Vec<Option<u8>> {
        let before = succeed(base, left);
        before.iter().map(|before| before.take(|state| *state)).collect()
    }

    #[test]
    fn state_goes_to_the_next_receivers_of_the_same_name() {
        let base = context("receivers", "a");
        let [first, second, third] = [(); 3].map(|()| Arc::default());
        assert!(states(&base, &first).is_empty());
        first.put(1);
        let other = Context {
            path: "receivers::b".into(),
            ..base.clone()
        };
        assert!(states(&other, &Arc::default()).is_empty());
        assert_eq!(states(&base, &second), [Some(1)]);
        second.put(2);
        // As in the return from a reload that has failed.
        assert_eq!(states(&base, &third), [Some(1), Some(2)]);
        drop([first, second]);
        assert_eq!(
            states(&base, &Arc::default()),
            [None::<u8>],
            "the third has left nothing"
        );
    }

    #[test]
    fn a_part_that_nobody_takes_goes_with_its_receiver() {
        let base = context("receivers", "a");
        let [left, next] = [(); 2].map(|()| Arc::default());
        let parts = [(); 2].map(|()| Arc::new(()));
        assert!(succeed::<Vec<Arc<()>>>(&base, &left).is_empty());
        left.put(parts.to_vec());
        let before = succeed(&base, &next);
        assert!(before[0].take(Vec::pop).flatten().is_some());
        let counts = || parts.each_ref().map(Arc::strong_count);
        assert_eq!(counts(), [2, 1]);
        drop(left);
        assert_eq!(counts(), [2, 1], "the next one may take it later");
        drop(before);
        assert_eq!(counts(), [1, 1]);
    }
}
