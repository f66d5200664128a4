// SPDX-License-Identifier: Apache-2.0

//! Interns label names and values: series share the names of their labels and most of the values.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Fewer texts are not worth looking through.
const SWEEP_FROM: usize = if cfg!(test) { 8 } else { 4096 };

/// The interned strings. A sweep removes those that only the interner holds.
pub(super) struct StringInterner {
    known: HashSet<Arc<str>, RandomState>,
    /// The number of strings at which the next sweep takes place.
    sweep_at: usize,
}

impl Default for StringInterner {
    fn default() -> Self {
        Self {
            known: HashSet::default(),
            sweep_at: SWEEP_FROM,
        }
    }
}

impl StringInterner {
    /// The shared copy of a string.
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.known.shrink_to(2 * self.known.len());
            self.sweep_at = SWEEP_FROM.max(2 * self.known.len());
        }
        let text: Arc<str> = text.into();
        self.known.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        let mut interner = StringInterner::default();
        let kept: Vec<Arc<str>> = (0..6).map(|n| interner.intern(&n.to_string())).collect();
        assert!(Arc::ptr_eq(&kept[3], &interner.intern("3")));
        for n in 0..100 {
            interner.intern(&format!("passing {n}"));
        }
        assert!(interner.known.len() <= 2 * SWEEP_FROM, "{}", interner.known.len());
        assert!(kept.iter().all(|text| Arc::ptr_eq(text, &interner.intern(text))));
    }
}
