//! Pushes the metrics of the page by OTLP: OpenTelemetry's SDK asks for what the page shows.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter, MeterProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::books::Page;
use super::config::Periodic;
use super::family::{Family, Kind, Sample};
use super::logs::Every;

/// The SDK's own timer is not used: new families must be known to it before each push.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
/// A peer that is down is complained of this often.
const COMPLAIN: Duration = Duration::from_secs(60);
/// The last push at the end may take this long.
const LAST_PUSH: Duration = Duration::from_secs(1);

/// A reader that pushes, in operation.
pub(super) struct Pusher {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Pusher {
    pub(super) fn start(config: &Periodic, page: Arc<Page>, resource: Resource) -> Result<Self, String> {
        let reader = PeriodicReader::builder(config.exporter.otlp.metrics()?)
            .with_interval(NEVER)
            .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource)
            .build();
        let instruments = Instruments {
            meter: provider.meter("tidegate"),
            known: HashSet::new(),
            now: Arc::default(),
        };
        let (stop, stopped) = watch::channel(false);
        let push = Push {
            endpoint: config.exporter.otlp.endpoint.clone(),
            page,
            instruments,
            provider,
            complaints: Every::new(COMPLAIN),
        };
        let task = tokio::spawn(push.run(config.interval.0, stopped));
        Ok(Self { stop, task })
    }

    /// Pushes a last time, if that is quickly done.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(LAST_PUSH, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

struct Push {
    endpoint: String,
    page: Arc<Page>,
    instruments: Instruments,
    provider: SdkMeterProvider,
    complaints: Every,
}

impl Push {
    async fn run(mut self, interval: Duration, mut stopped: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            let over = tokio::select! {
                _ = ticks.tick() => false,
                _ = stopped.changed() => true,
            };
            self.push().await;
            if over {
                return;
            }
        }
    }

    async fn push(&mut self) {
        self.instruments.show(self.page.families());
        let provider = self.provider.clone();
        let flushed = tokio::task::spawn_blocking(move || provider.force_flush()).await;
        let error = match flushed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        metrics::counter!("tidegate_telemetry_push_failures_total", "signal" => "metrics").increment(1);
        if self.complaints.ready().is_some() {
            tracing::warn!(endpoint = %self.endpoint, %error, "tidegate's own metrics could not be pushed");
        }
    }
}

/// One observable instrument for each family, all of which read what was shown last.
struct Instruments {
    meter: Meter,
    known: HashSet<String>,
    now: Arc<Mutex<HashMap<String, Vec<Observed>>>>,
}

struct Observed {
    attributes: Vec<KeyValue>,
    value: f64,
}

impl Instruments {
    fn show(&mut self, families: Vec<Family>) {
        for family in &families {
            if self.known.insert(family.name.clone()) {
                self.make(&family.name, family.kind);
            }
        }
        let observed = families.into_iter().map(|family| {
            (
                family.name,
                family.samples.into_iter().map(Observed::from).collect(),
            )
        });
        *lock(&self.now) = observed.collect();
    }

    fn make(&self, name: &str, kind: Kind) {
        let (now, key) = (self.now.clone(), name.to_owned());
        let callback = move |instrument: &dyn AsyncInstrument<f64>| {
            for observed in lock(&now).get(&key).into_iter().flatten() {
                instrument.observe(observed.value, &observed.attributes);
            }
        };
        // The meter keeps what it builds; the handle is of no use.
        match kind {
            Kind::Counter => {
                let builder = self.meter.f64_observable_counter(name.to_owned());
                let _ = builder.with_callback(callback).build();
            }
            Kind::Gauge => {
                let builder = self.meter.f64_observable_gauge(name.to_owned());
                let _ = builder.with_callback(callback).build();
            }
        }
    }
}

impl From<Sample> for Observed {
    fn from(sample: Sample) -> Self {
        let attribute = |(key, value): (String, String)| KeyValue::new(key, value);
        Self {
            attributes: sample.labels.into_iter().map(attribute).collect(),
            value: sample.value,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
