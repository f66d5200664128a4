// SPDX-License-Identifier: Apache-2.0

//! `memory_limiter`: refuses data while the process uses too much memory, so that senders keep it and retry.
//!
//! Above the soft limit, components that keep data in memory refuse it, and tables accept no new series. Points of
//! known series still arrive. Above the hard limit, everything is refused.
//!
//! The memory of the process is measured every `check_interval`. The account of memory (`tidegate-runtime`) adds
//! all reservations and allocations since then, so that it also detects a burst between two measurements.

mod config;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::batch::{Batch, Signal};
use crate::component::account::measure;
use crate::component::{
    Account, ComponentError, ConfigType, Consumer, Context, ErrorDoc, Factory, Flow, Lifecycle, Limit,
    Processor, ProcessorFactory, Refused, Stability,
};
use config::MemoryLimiterConfig;

/// The errors of `memory_limiter`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The process uses more memory than the soft limit.",
        "503 or `UNAVAILABLE` for data that would stay in queues; new series are rejected",
        "Raise the limit, keep fewer series, or repair the destination of a full queue.",
    )
    .logged_as(
        "memory usage is above the soft limit: new series, and data that stays in queues, are refused",
    ),
    ErrorDoc::answered(
        "The process uses more memory than the limit.",
        "503 or `UNAVAILABLE`, with the time to wait",
        "Raise the limit, or add replicas. Senders try again by themselves.",
    )
    .logged_as("memory usage is above the limit: all data is refused until it falls"),
    ErrorDoc::logged(
        "The operating system does not report the memory of the process.",
        "can't measure memory",
        "Let the gateway read `/proc/self`.",
    ),
];

/// The factory of `memory_limiter`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "memory_limiter",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "refuses data while the process uses too much memory",
    errors: &[ERRORS],
    config: ConfigType::of::<MemoryLimiterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<MemoryLimiterConfig>();
        let total = measure::total_bytes().map_err(|error| cx.base.error(error.to_string()))?;
        let gauge = Gauge {
            limit: config.limits(total),
            context: cx.base,
            runs: AtomicBool::new(false),
            over: AtomicU8::new(0),
        };
        // Components that start before this one derive their own limits from it.
        gauge.begin();
        Ok(Arc::new(MemoryLimiter {
            check_interval: config.check_interval,
            gauge: Arc::new(gauge),
            next: cx.next,
            task: Mutex::default(),
        }))
    },
};

struct MemoryLimiter {
    check_interval: Duration,
    gauge: Arc<Gauge>,
    next: Arc<dyn Consumer>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Processor for MemoryLimiter {}

#[async_trait]
impl Lifecycle for MemoryLimiter {
    async fn start(&self) -> Result<(), ComponentError> {
        self.gauge.begin();
        self.gauge.measure();
        let (gauge, interval) = (self.gauge.clone(), self.check_interval);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            loop {
                ticks.tick().await;
                gauge.measure();
            }
        });
        *self.task.lock() = Some(task);
        Ok(())
    }

    async fn stop(&self, _deadline: Instant) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // The expected result is a cancellation.
            let _ = task.await;
        }
        self.gauge.end();
    }
}

impl Consumer for MemoryLimiter {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let (memory, Limit { soft, hard }) = (self.gauge.memory(), self.gauge.limit);
        if !memory.uses_more_than(soft) {
            return self.next.admit(batch, flow);
        }
        let admitted = if memory.uses_more_than(hard) {
            None
        } else {
            flow.short_of_memory(|flow| self.next.admit(batch, flow))
        };
        admitted.unwrap_or_else(|| Err(self.refuse(batch)))
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.next.consume(batch, flow);
    }

    fn decodes(&self) -> bool {
        self.next.decodes()
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

impl MemoryLimiter {
    fn refuse(&self, batch: &Batch) -> Refused {
        count_refused(&self.gauge.context.id, batch);
        let reason = format!(
            "{}: data refused due to high memory usage",
            self.gauge.context.path
        );
        Refused::busy(reason, self.check_interval)
    }
}

fn count_refused(processor: &Arc<str>, batch: &Batch) {
    let name = match batch.signal() {
        Signal::Metrics => "otelcol_processor_memory_limiter_refused_metric_points",
        Signal::Traces => "otelcol_processor_memory_limiter_refused_spans",
        Signal::Logs => "otelcol_processor_memory_limiter_refused_log_records",
    };
    metrics::counter!(name, "processor" => processor.to_string()).increment(batch.items() as u64);
}

/// The memory in use, compared with the limits.
struct Gauge {
    context: Context,
    limit: Limit,
    /// Whether the account has the limit.
    runs: AtomicBool,
    /// The number of exceeded limits, 0 to 2.
    over: AtomicU8,
}

/// A limiter may be built and never started.
impl Drop for Gauge {
    fn drop(&mut self) {
        self.end();
    }
}

impl Gauge {
    fn memory(&self) -> &Account {
        &self.context.shared.memory
    }

    fn begin(&self) {
        if !self.runs.swap(true, Relaxed) {
            self.memory().add_limit(self.limit);
        }
    }

    fn end(&self) {
        if self.runs.swap(false, Relaxed) {
            self.memory().remove_limit(self.limit);
        }
    }

    fn measure(&self) {
        match self.memory().measure() {
            Ok(resident) => self.log_change(resident),
            Err(error) => {
                warn!(component = %self.context.path, %error, "can't measure memory");
            }
        }
    }

    /// Logs a crossing of a limit, upwards or downwards.
    fn log_change(&self, used: usize) {
        let Limit { soft, hard } = self.limit;
        let over = u8::from(used > soft) + u8::from(used > hard);
        let before = self.over.swap(over, Relaxed);
        if before == over {
            return;
        }
        let (component, used_mib) = (&*self.context.path, used >> 20);
        let (soft_limit_mib, limit_mib) = (soft >> 20, hard >> 20);
        let live_mib = measure::live_bytes().map(|bytes| bytes >> 20);
        match (before, over) {
            (_, 0) => info!(
                component,
                used_mib, soft_limit_mib, limit_mib, "memory usage is back within the limits"
            ),
            (0, 1) => warn!(
                component,
                used_mib,
                live_mib,
                soft_limit_mib,
                limit_mib,
                "memory usage is above the soft limit: new series, and data that stays in queues, are refused"
            ),
            (_, 1) => info!(
                component,
                used_mib,
                soft_limit_mib,
                limit_mib,
                "memory usage is below the limit again, and above the soft limit"
            ),
            _ => warn!(
                component,
                used_mib,
                live_mib,
                soft_limit_mib,
                limit_mib,
                "memory usage is above the limit: all data is refused until it falls"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::Ceiling;
    use crate::delivery::testing::{context, opaque};

    /// A queue, which keeps its data, or a table.
    enum Sink {
        Queue,
        Table,
    }

    impl Consumer for Sink {
        fn admit(&self, _: &Batch, flow: &mut Flow) -> Result<(), Refused> {
            match self {
                Self::Queue => flow.keep_in_memory(),
                Self::Table => Ok(()),
            }
        }

        fn consume(&self, _: Batch, _: &mut Flow) {}
    }

    fn limiter(context: &Context, soft_limit_bytes: usize) -> MemoryLimiter {
        limiter_before(Sink::Queue, context, soft_limit_bytes)
    }

    /// The hard limit is 200 bytes above the soft one.
    fn limiter_before(sink: Sink, context: &Context, soft_limit_bytes: usize) -> MemoryLimiter {
        let gauge = Gauge {
            context: context.clone(),
            limit: Limit {
                soft: soft_limit_bytes,
                hard: soft_limit_bytes + 200,
            },
            runs: AtomicBool::new(false),
            over: AtomicU8::new(0),
        };
        gauge.begin();
        MemoryLimiter {
            check_interval: Duration::from_secs(3),
            gauge: Arc::new(gauge),
            next: Arc::new(sink),
            task: Mutex::default(),
        }
    }

    #[test]
    fn data_is_refused_above_the_soft_limit_and_taken_again_below() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1000);
        let push = || limiter.push(opaque(Signal::Metrics, b"x", 1));
        context.shared.memory.note(1000);
        assert!(push().is_ok());
        context.shared.memory.note(1001);
        let refused = push().unwrap_err();
        assert_eq!(refused.retry_after, Some(Duration::from_secs(3)));
        assert!(context.shared.memory.is_over(Ceiling::Soft));
        context.shared.memory.note(900);
        assert!(push().is_ok());
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
    }

    #[test]
    fn tables_take_data_up_to_the_hard_limit() {
        let context = context("processors::memory_limiter");
        let tables = limiter_before(Sink::Table, &context, 1000);
        let queues = limiter(&context, 1000);
        for (used, in_tables, in_queues) in [
            (1000, true, true),
            (1001, true, false),
            (1200, true, false),
            (1201, false, false),
        ] {
            context.shared.memory.note(used);
            let push = |limiter: &MemoryLimiter| limiter.push(opaque(Signal::Metrics, b"x", 1)).is_ok();
            assert_eq!((push(&tables), push(&queues)), (in_tables, in_queues), "{used}");
        }
    }

    #[test]
    fn what_is_taken_in_between_two_measurements_counts() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1000);
        context.shared.memory.hold(500);
        context.shared.memory.note(900);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
        context.shared.memory.hold(80);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
        context.shared.memory.hold(1);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_err());
        assert!(
            context.shared.memory.is_over(Ceiling::Soft),
            "nor is anything read"
        );
        context.shared.memory.release(300);
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
    }

    #[tokio::test]
    async fn a_stopped_limiter_clears_only_its_own_limit() {
        let context = context("processors::memory_limiter");
        let (strict, lax) = (limiter(&context, 10), limiter(&context, 1000));
        context.shared.memory.note(500);
        context.shared.memory.note(500);
        assert!(context.shared.memory.is_over(Ceiling::Soft));
        strict.stop(Instant::now()).await;
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
        assert!(lax.push(opaque(Signal::Logs, b"x", 1)).is_ok());
    }

    #[tokio::test]
    async fn the_process_is_measured_from_the_start_on() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1);
        limiter.start().await.unwrap();
        assert!(limiter.push(opaque(Signal::Traces, b"x", 1)).is_err());
        limiter.stop(Instant::now()).await;
        assert!(!context.shared.memory.is_over(Ceiling::Soft));
    }
}
