//! Texts of labels, each held once: series share the names of their labels and most of the values.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Fewer texts are not worth looking through.
const SWEEP_FROM: usize = if cfg!(test) { 8 } else { 4096 };

/// Texts that somebody has.
pub(super) struct Strings {
    known: HashSet<Arc<str>, RandomState>,
    /// With so many, those that nobody has any more are let go.
    sweep_at: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            known: HashSet::default(),
            sweep_at: SWEEP_FROM,
        }
    }
}

impl Strings {
    /// The one that reads like this.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
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
    fn equal_texts_are_one_and_what_nobody_has_goes() {
        let mut strings = Strings::default();
        let kept: Vec<Arc<str>> = (0..6).map(|n| strings.share(&n.to_string())).collect();
        assert!(Arc::ptr_eq(&kept[3], &strings.share("3")));
        for n in 0..100 {
            strings.share(&format!("passing {n}"));
        }
        assert!(strings.known.len() <= 2 * SWEEP_FROM, "{}", strings.known.len());
        assert!(kept.iter().all(|text| Arc::ptr_eq(text, &strings.share(text))));
    }
}
