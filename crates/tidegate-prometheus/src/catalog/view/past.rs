// SPDX-License-Identifier: Apache-2.0

//! How much of the past is kept: what one component asks for, and what readers need beyond it.

use std::sync::Arc;

use tidegate_promql::{History, HistoryLimits, Millis};

use super::View;
use super::entry::HistoryRule;
use super::state::ViewState;

/// The bytes that the past may take under a memory limit in bytes, if its configuration sets no limit.
pub fn max_past_bytes_within(memory: usize) -> usize {
    const USUAL: usize = 256 << 20;
    USUAL.min(memory / 8)
}

/// The past that a component asks the view to keep.
pub struct KeptPast {
    /// Milliseconds between two samples of a series.
    pub interval_ms: Millis,
    /// The milliseconds for which a sample stays.
    pub span_ms: Millis,
    /// Whether samples stay longer if readers need them, see [`View::need_past`].
    pub follows_needs: bool,
    /// Bytes that all samples together may take. `None`: [`max_past_bytes_within`] the memory limit.
    pub max_bytes: Option<usize>,
    /// The rules for the series. Empty: all series.
    pub rules: Vec<HistoryRule>,
}

impl KeptPast {
    /// The past of all series within these limits, whatever readers need.
    pub fn fixed(limits: HistoryLimits) -> Self {
        Self {
            interval_ms: limits.interval_ms,
            span_ms: limits.span_ms,
            follows_needs: false,
            max_bytes: Some(limits.max_bytes),
            rules: Vec::new(),
        }
    }
}

/// The time for which a reader needs samples, in milliseconds. The need ends when the value is dropped.
pub struct PastNeed(Millis);

impl View {
    /// Keeps a past from now on, as [`View::record`] samples it. Returns `false` if a past is kept already; it stays
    /// unchanged.
    pub fn keep_past(&self, past: KeptPast) -> bool {
        let is_first = self.past.set(past).is_ok();
        if is_first && let Some(limits) = self.past_limits() {
            let mut state = self.state();
            let mut history = History::new(limits);
            history.share(state.shared.ended.bytes());
            state.shared.history = history;
        }
        is_first
    }

    /// Registers that a reader needs the samples of the last `span_ms` milliseconds, while it holds the value. It may do so
    /// before the past is kept.
    #[must_use]
    pub fn need_past(&self, span_ms: Millis) -> Arc<PastNeed> {
        let need = Arc::new(PastNeed(span_ms));
        let mut needs = self.needs.lock();
        // Nobody else removes them where no past is kept.
        needs.retain(|need| need.strong_count() > 0);
        needs.push(Arc::downgrade(&need));
        need
    }

    /// Sets the memory limit of the past, in bytes.
    pub fn bound_past(&self, max_bytes: usize) {
        self.state().shared.history.bound(max_bytes);
    }

    /// The limits of the past with the needs of now; `None`: no past is kept. The next pass of [`View::record`] applies them.
    pub fn past_limits(&self) -> Option<HistoryLimits> {
        let past = self.past.get()?;
        let needed_ms = self.needed_span();
        let span_ms = if past.follows_needs {
            past.span_ms.max(needed_ms)
        } else {
            past.span_ms
        };
        let max_bytes = past
            .max_bytes
            .unwrap_or_else(|| max_past_bytes_within(self.memory.limit()));
        Some(HistoryLimits {
            interval_ms: past.interval_ms,
            span_ms,
            max_bytes,
        })
    }

    /// The longest time for which a reader needs samples, in milliseconds.
    fn needed_span(&self) -> Millis {
        let needs = self.needs.lock();
        let spans = needs.iter().filter_map(|need| Some(need.upgrade()?.0));
        spans.max().unwrap_or(0)
    }
}

impl ViewState {
    /// Keeps samples for so many milliseconds from now on. Those that have gone, also of another replica, do not come back.
    pub(super) fn keep_for(&mut self, span_ms: Millis) {
        let ends = self.shared.history_ends();
        if let Some((_, since)) = &mut self.borrowed {
            *since = ends.max(*since);
        }
        self.shared.keep_for(span_ms);
    }
}
