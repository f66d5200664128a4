// SPDX-License-Identifier: Apache-2.0

//! Joining loads into requests: the options of the `batch` processor, applied after the queue's admission.

use std::sync::Arc;
use std::time::Instant;

use super::{Action, Load, Machine, PendingRequest, cut};
use crate::batch::{BatchMetrics, Batching, Trigger};
use crate::delivery::capacity::Permits;

/// A request that waits for more loads of its batch key.
pub(super) struct Gathering<L> {
    batching: Batching,
    since: Instant,
    load: L,
    permits: Permits,
}

impl<L: Load> Gathering<L> {
    /// The time at which it goes out, whatever its size.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.checked_add(self.batching.timeout)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now) || self.size() >= self.batching.min_size
    }

    pub(super) fn items(&self) -> usize {
        self.load.items()
    }

    /// The metrics that count its requests.
    pub(super) fn metrics(&self) -> Option<Arc<BatchMetrics>> {
        self.batching.metrics.clone()
    }

    /// The reason to send it.
    fn trigger(&self) -> Trigger {
        if self.batching.timeout.is_zero() || self.size() >= self.batching.min_size {
            Trigger::Size
        } else {
            Trigger::Timeout
        }
    }

    fn size(&self) -> usize {
        self.load.size(self.batching.sizer)
    }

    fn join(&mut self, load: L, permits: Permits) {
        self.load.join(load);
        self.permits.extend(permits);
    }

    /// The finished requests, in pieces if the load is too large.
    pub(super) fn into_requests(self) -> Vec<PendingRequest<L>> {
        let (max_size, sizer) = (self.batching.max_size, self.batching.sizer);
        if max_size == 0 || self.size() <= max_size {
            return vec![PendingRequest::new(self.load, self.permits)];
        }
        let pieces = cut(self.load, &self.permits, max_size, sizer).into_iter();
        pieces
            .map(|(piece, permits)| PendingRequest::new(piece, permits))
            .collect()
    }
}

impl<L: Load> Machine<L> {
    pub(super) fn gather(&mut self, now: Instant, batching: Batching, load: L, permits: Permits) {
        let batch_key = load.batch_key();
        match self
            .gathering
            .iter_mut()
            .find(|open| open.load.batch_key() == batch_key)
        {
            Some(open) => open.join(load, permits),
            None => self.gathering.push(Gathering {
                batching,
                since: now,
                load,
                permits,
            }),
        }
        self.flush_due(now);
    }

    /// Closes the requests that are large or old enough, so that they wait to be sent.
    pub(super) fn flush_due(&mut self, now: Instant) {
        while let Some(at) = self.gathering.iter().position(|open| open.is_due(now)) {
            let full = self.gathering.swap_remove(at);
            self.flush(now, full);
        }
    }

    /// Cuts a full request. A small rest keeps gathering, because it belongs to the newest load.
    fn flush(&mut self, now: Instant, full: Gathering<L>) {
        let (batching, timed_out) = (full.batching.clone(), full.due().is_some_and(|due| due <= now));
        let trigger = full.trigger();
        let mut requests = full.into_requests();
        if requests.len() > 1 && !timed_out {
            let rest = requests.pop_if(|last| last.load.size(batching.sizer) < batching.min_size);
            self.gathering.extend(rest.map(|rest| Gathering {
                batching: batching.clone(),
                since: now,
                load: rest.load,
                permits: rest.permits,
            }));
        }
        self.count_gathered(batching.metrics, trigger, &requests);
        self.ready.extend(requests);
    }

    /// Counts requests in the metrics of the processor that configured the batching.
    pub(super) fn count_gathered(
        &mut self,
        metrics: Option<Arc<BatchMetrics>>,
        trigger: Trigger,
        requests: &[PendingRequest<L>],
    ) {
        let Some(metrics) = metrics else { return };
        self.settled
            .extend(requests.iter().map(|request| Action::Gathered {
                metrics: metrics.clone(),
                trigger,
                items: request.load.items(),
                load: metrics.bytes.is_some().then(|| request.load.clone()),
            }));
    }
}
