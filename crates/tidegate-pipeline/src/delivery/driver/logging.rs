// SPDX-License-Identifier: Apache-2.0

//! Log lines of a destination: retries, refused credentials, outages, the stop, and data that was found on disk.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::component::Brief;
use crate::delivery::destination::{Attempt, DestinationInner};
use crate::delivery::health::{Outage, Trouble};
use crate::delivery::notices::INTERVAL;
use crate::delivery::recovery::Progress;
use crate::delivery::spill::Spill;

impl<A: Attempt> DestinationInner<A> {
    pub(in crate::delivery) fn log_retry(&self, now: Instant, items: usize, delay: Duration, why: &str) {
        /// The interval between log lines after the warning about an outage.
        const KNOWN: Duration = Duration::from_mins(5);
        let is_logged = self.standing.is_logged();
        self.standing.failed(now, Trouble::Unavailable, why);
        // The driver decides when this becomes an outage.
        self.wake.notify_one();
        let interval = if is_logged { KNOWN } else { INTERVAL };
        // A request fails once an attempt. The sum over several attempts would exceed the number of items, so the
        // log line counts none.
        if self.notices.note_every(interval, "retry", 0, now).is_some() {
            let (component, endpoint, held) = (&*self.context.path, self.endpoint(), self.waiting());
            info!(component, endpoint, items, held, delay = %Brief(delay), error = %why, "sending failed, will retry");
        }
    }

    pub(super) fn log_denied(&self, now: Instant, items: usize, is_retried: bool, why: &str) {
        self.standing.failed(now, Trouble::Denied, why);
        if let Some(items) = self.notices.note("denied", items, now) {
            let (component, endpoint) = (&*self.context.path, self.endpoint());
            let fate = if is_retried {
                "the exporter will retry".to_owned()
            } else {
                let statuses = self.attempt.denying_statuses();
                format!(
                    "this data is dropped. To keep it, set `retry_on_failure: {{retry_on_status: {statuses}}}`"
                )
            };
            error!(component, endpoint, items, error = %why, "access denied: check the credentials; {fate}");
        }
    }

    pub(super) fn log_outage(&self, Outage { lasts, why }: &Outage) {
        let (component, endpoint, held) = (&*self.context.path, self.endpoint(), self.waiting());
        warn!(component, endpoint, since = %Brief(*lasts), held, error = %why, "the destination is down");
    }

    pub(super) fn log_back(&self, ended: Option<Outage>) {
        let Some(Outage { lasts, .. }) = ended else { return };
        let (component, endpoint, held) = (&*self.context.path, self.endpoint(), self.waiting());
        info!(component, endpoint, after = %Brief(lasts), held, "the destination is back");
    }

    pub(super) fn log_recovery(&self, now: Instant) {
        let Some(spill) = self.spill.get() else { return };
        let component = &*self.context.path;
        match self.recovery.progress(spill.restored(), now) {
            None => {}
            Some(Progress::Remaining(remaining, items)) => {
                info!(component, remaining, items, "sending the batches found on disk");
            }
            Some(Progress::CaughtUp(items, took)) => {
                info!(component, items, took = %Brief(took), "caught up: sent all batches found on disk");
            }
        }
    }

    pub(in crate::delivery) fn log_drain(&self, waiting: u64, deadline: Instant) {
        if waiting > 0 {
            let (component, limit) = (
                &*self.context.path,
                deadline.saturating_duration_since(Instant::now()),
            );
            info!(component, items = waiting, limit = %Brief(limit), "stopping: sending the queue");
        }
    }

    pub(in crate::delivery) fn log_end(&self, waited: u64) {
        let kept = match self.drain_handler.get() {
            Some(_) => 0,
            None => self.spill.get().map_or(0, Spill::waiting),
        };
        let (sent, lost) = (
            self.ending.delivered.load(Relaxed),
            self.ending.lost.load(Relaxed),
        );
        let handed_over = self.ending.handed_over.load(Relaxed);
        let handed_over = (handed_over > 0).then_some(handed_over);
        let component = &*self.context.path;
        if lost > 0 {
            warn!(
                component,
                sent, kept, handed_over, lost, "stopped before the queue was empty"
            );
        } else if waited > 0 || kept > 0 {
            info!(component, sent, kept, handed_over, lost, "stopped");
        }
        if kept > 0 {
            info!(component, items = kept, "kept on disk for the next run");
        }
    }
}
