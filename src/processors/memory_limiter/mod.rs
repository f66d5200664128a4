//! `memory_limiter`: refuses data while the process uses too much memory, so that senders keep it and come back.
//!
//! What the process uses is measured every `check_interval`; what queues and requests have taken in since then is
//! added, so that a burst between two measurements is seen too.

mod config;
mod measure;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::batch::{Batch, Signal};
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, Factory, Flow, Lifecycle, Processor, ProcessorFactory,
    Refused, Stability,
};
use config::Config;

/// The factory of `memory_limiter`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "memory_limiter",
    aliases: &[],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "refuses data while the process uses too much memory",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        let total = measure::total_bytes().map_err(|error| cx.base.error(error.to_string()))?;
        let gauge = Gauge {
            soft_limit_bytes: config.soft_limit_bytes(total),
            context: cx.base,
            measured_bytes: AtomicU64::new(0),
            held_then_bytes: AtomicU64::new(0),
            over: AtomicBool::new(false),
        };
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
        self.gauge.measure();
        let (gauge, interval) = (self.gauge.clone(), self.check_interval);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            loop {
                ticks.tick().await;
                gauge.measure();
            }
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(())
    }

    async fn stop(&self, _deadline: Instant) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // Cancelled is how it should end.
            let _ = task.await;
        }
        self.gauge.set_over(false);
        self.gauge.context.shared.memory.set_most_held(usize::MAX);
    }
}

impl Consumer for MemoryLimiter {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        if self.gauge.used_bytes() > self.gauge.soft_limit_bytes {
            count_refused(&self.gauge.context.id, batch);
            let reason = format!(
                "{}: data refused due to high memory usage",
                self.gauge.context.path
            );
            return Err(Refused::busy(reason, self.check_interval));
        }
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        self.next.consume(batch, flow);
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

/// How much memory is in use, and whether that is too much.
struct Gauge {
    context: Context,
    soft_limit_bytes: u64,
    measured_bytes: AtomicU64,
    held_then_bytes: AtomicU64,
    over: AtomicBool,
}

impl Gauge {
    fn measure(&self) {
        match measure::resident_bytes() {
            Ok(bytes) => self.note(bytes),
            Err(error) => {
                warn!(component = %self.context.path, %error, "can't measure memory");
            }
        }
    }

    fn note(&self, resident_bytes: u64) {
        let held_bytes = self.held_bytes();
        self.measured_bytes.store(resident_bytes, Relaxed);
        self.held_then_bytes.store(held_bytes, Relaxed);
        // This measurement leaves out what receivers read until the next one.
        let room = held_in(self.soft_limit_bytes.saturating_sub(resident_bytes));
        let most_held = usize::try_from(held_bytes.saturating_add(room)).unwrap_or(usize::MAX);
        self.context.shared.memory.set_most_held(most_held);
        self.set_over(resident_bytes > self.soft_limit_bytes);
    }

    /// Tells the whole gateway, at changes only: several limiters may each say so.
    fn set_over(&self, over: bool) {
        if self.over.swap(over, Relaxed) == over {
            return;
        }
        self.context.shared.memory.set_over_limit(over);
        let (component, limit_mib) = (&*self.context.path, self.soft_limit_bytes >> 20);
        let used_mib = self.measured_bytes.load(Relaxed) >> 20;
        match over {
            true => warn!(
                component,
                used_mib, limit_mib, "memory usage is above the soft limit, refusing data"
            ),
            false => info!(
                component,
                used_mib, limit_mib, "memory usage is back within the limits"
            ),
        }
    }

    fn used_bytes(&self) -> u64 {
        let taken_since = self
            .held_bytes()
            .saturating_sub(self.held_then_bytes.load(Relaxed));
        self.measured_bytes
            .load(Relaxed)
            .saturating_add(resident_of(taken_since))
    }

    fn held_bytes(&self) -> u64 {
        self.context.shared.memory.held_bytes() as u64
    }
}

/// What so many bytes that are held make resident: a quarter more, for what the allocator rounds up and for what lies in
/// the windows of connections.
fn resident_of(held: u64) -> u64 {
    held.saturating_add(held / 4)
}

/// How many bytes may be held in so much memory; see [`resident_of`].
fn held_in(room: u64) -> u64 {
    room / 5 * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::testing::{context, opaque};

    struct Sink;

    impl Consumer for Sink {
        fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
            Ok(())
        }

        fn consume(&self, _: Batch, _: &mut Flow) {}
    }

    fn limiter(context: &Context, soft_limit_bytes: u64) -> MemoryLimiter {
        let gauge = Gauge {
            context: context.clone(),
            soft_limit_bytes,
            measured_bytes: AtomicU64::new(0),
            held_then_bytes: AtomicU64::new(0),
            over: AtomicBool::new(false),
        };
        MemoryLimiter {
            check_interval: Duration::from_secs(3),
            gauge: Arc::new(gauge),
            next: Arc::new(Sink),
            task: Mutex::default(),
        }
    }

    #[test]
    fn data_is_refused_above_the_soft_limit_and_taken_again_below() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1000);
        let push = || limiter.push(opaque(Signal::Metrics, b"x", 1));
        limiter.gauge.note(1000);
        assert!(push().is_ok());
        limiter.gauge.note(1001);
        let refused = push().unwrap_err();
        assert_eq!(refused.retry_after, Some(Duration::from_secs(3)));
        assert!(context.shared.memory.over_limit());
        limiter.gauge.note(900);
        assert!(push().is_ok());
        assert!(!context.shared.memory.over_limit());
    }

    #[test]
    fn what_is_taken_in_between_two_measurements_counts() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1000);
        context.shared.memory.hold(500);
        limiter.gauge.note(900);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
        assert!(!context.shared.memory.over_limit());
        context.shared.memory.hold(80);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
        assert!(!context.shared.memory.over_limit());
        context.shared.memory.hold(1);
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_err());
        assert!(context.shared.memory.over_limit(), "nor is anything read");
        context.shared.memory.release(300);
        assert!(!context.shared.memory.over_limit());
        assert!(limiter.push(opaque(Signal::Logs, b"x", 1)).is_ok());
    }

    #[test]
    fn one_limiter_does_not_call_off_what_another_one_says() {
        let context = context("processors::memory_limiter");
        let (strict, lax) = (limiter(&context, 10), limiter(&context, 1000));
        strict.gauge.note(500);
        lax.gauge.note(500);
        assert!(context.shared.memory.over_limit());
        strict.gauge.note(5);
        assert!(!context.shared.memory.over_limit());
    }

    #[tokio::test]
    async fn the_process_is_measured_from_the_start_on() {
        let context = context("processors::memory_limiter");
        let limiter = limiter(&context, 1);
        limiter.start().await.unwrap();
        assert!(limiter.push(opaque(Signal::Traces, b"x", 1)).is_err());
        limiter.stop(Instant::now()).await;
        assert!(!context.shared.memory.over_limit());
    }
}
