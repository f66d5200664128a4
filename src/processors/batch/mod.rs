// SPDX-License-Identifier: Apache-2.0

//! `batch`: larger requests for the destinations below. It only marks batches with its limits. The queues of the
//! destinations join and cut them. So it holds nothing, and nothing is acknowledged before a destination has it.

mod config;

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use http::HeaderName;
use metrics::Gauge;
use parking_lot::Mutex;

use crate::batch::{Batch, BatchMetrics, Batching, ClientMetadata, Signal};
use crate::component::{
    ConfigType, Consumer, Context, ErrorDoc, Factory, Flow, Ledger, Lifecycle, Processor, ProcessorFactory,
    Reason, Refused, Stability,
};
use config::BatchProcessorConfig;

/// The errors of `batch`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::answered(
    "Senders have more combinations of `metadata_keys` than `metadata_cardinality_limit`.",
    "OTLP senders get the number of rejected items in `partial_success`",
    "Raise `metadata_cardinality_limit`, or name fewer `metadata_keys`.",
)];

/// The factory of `batch`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "batch",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "joins small batches into larger requests, in the queues of the exporters below",
    errors: &[ERRORS],
    config: ConfigType::of::<BatchProcessorConfig>(),
    build: |settings, cx| {
        let config = settings.get::<BatchProcessorConfig>();
        let senders = metrics::gauge!(
            "otelcol_processor_batch_metadata_cardinality",
            "processor" => cx.base.id.clone(),
        );
        // Without keys, all senders are one.
        let first = u32::from(config.metadata_keys.is_empty());
        Ok(Arc::new(Stamp {
            batching: Batching {
                metrics: Some(Arc::new(batch_metrics(&cx.base))),
                ..config.batching()
            },
            kept: config.kept(),
            limit: CardinalityLimit::new(config.metadata_cardinality_limit, senders, first),
            path: cx.base.path,
            ledger: cx.ledger,
            next: cx.next,
        }))
    },
};

/// The metrics of the requests that a processor configures.
fn batch_metrics(cx: &Context) -> BatchMetrics {
    let counter = |name| metrics::counter!(name, "processor" => cx.id.clone());
    let histogram = |name| metrics::histogram!(name, "processor" => cx.id.clone());
    let wants_bytes = cx.shared.wants_details();
    BatchMetrics {
        full: counter("otelcol_processor_batch_batch_size_trigger_send"),
        late: counter("otelcol_processor_batch_timeout_trigger_send"),
        items: histogram("otelcol_processor_batch_batch_send_size"),
        bytes: wants_bytes.then(|| histogram("otelcol_processor_batch_batch_send_size_bytes")),
    }
}

struct Stamp {
    batching: Batching,
    kept: Option<Vec<HeaderName>>,
    limit: CardinalityLimit,
    path: Arc<str>,
    ledger: Arc<Ledger>,
    next: Arc<dyn Consumer>,
}

/// Limits the number of different senders.
struct CardinalityLimit {
    /// The limit; 0 = none.
    most: usize,
    /// Hashes of the senders so far.
    seen: Mutex<HashSet<u64>>,
    hasher: RandomState,
    /// The gauge of senders so far, of all processors with this id.
    shown: Gauge,
    /// Senders that are counted from the start.
    first: u32,
}

impl CardinalityLimit {
    /// Without a limit, at most this many senders are counted.
    const COUNTED: usize = 1 << 16;

    fn new(most: usize, shown: Gauge, first: u32) -> Self {
        shown.increment(f64::from(first));
        Self {
            most,
            shown,
            first,
            seen: Mutex::default(),
            hasher: RandomState::default(),
        }
    }

    /// Whether the sender with this metadata is within the limit.
    fn allows(&self, client: Option<&ClientMetadata>) -> bool {
        let mut hasher = self.hasher.build_hasher();
        for (name, value) in client.into_iter().flat_map(ClientMetadata::headers) {
            (name.as_str(), value.as_bytes()).hash(&mut hasher);
        }
        let mut seen = self.seen.lock();
        let hash = hasher.finish();
        if seen.contains(&hash) {
            return true;
        }
        let is_counted = seen.len() < if self.most == 0 { Self::COUNTED } else { self.most };
        if is_counted {
            seen.insert(hash);
            self.shown.increment(1.0);
        }
        is_counted || self.most == 0
    }
}

impl Drop for CardinalityLimit {
    /// A reload builds the processor again, and its successor counts from 0.
    fn drop(&mut self) {
        let seen = self.seen.get_mut().len() as f64;
        self.shown.decrement(seen + f64::from(self.first));
    }
}

impl Lifecycle for Stamp {}
impl Processor for Stamp {}

impl Consumer for Stamp {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let batching = Some(self.batching.clone());
        let client = match (&batch.client, &self.kept) {
            (Some(client), Some(kept)) => client.only(kept).map(Arc::new),
            (client, _) => client.clone(),
        };
        if self.kept.is_some() && !self.limit.allows(client.as_deref()) {
            self.ledger.drop_items(Reason::Limit, batch.items());
            return flow.reject(batch.items(), || {
                format!(
                    "`{}` has seen `metadata_cardinality_limit` other senders",
                    self.path
                )
            });
        }
        self.next.consume(
            Batch {
                batching,
                client,
                ..batch
            },
            flow,
        );
    }

    fn decodes(&self) -> bool {
        self.next.decodes()
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;
    use crate::batch::Sizer;
    use crate::component::testing::options;
    use crate::delivery::testing::opaque;

    #[derive(Default)]
    struct Keep(Mutex<Vec<Batch>>);

    impl Consumer for Keep {
        fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
            Ok(())
        }

        fn consume(&self, batch: Batch, _: &mut Flow) {
            self.0.lock().push(batch);
        }
    }

    #[test]
    fn every_batch_carries_the_wishes_on() {
        let next = Arc::new(Keep::default());
        let stamp = Stamp {
            batching: options::<BatchProcessorConfig>("{timeout: 1s, send_batch_size: 10}")
                .unwrap()
                .batching(),
            kept: None,
            limit: CardinalityLimit::new(0, Gauge::noop(), 0),
            path: "processors::batch".into(),
            ledger: Arc::default(),
            next: next.clone(),
        };
        stamp.push(opaque(Signal::Logs, b"x", 1)).unwrap();
        let passed = next.0.lock();
        let expected = Batching {
            timeout: Duration::from_secs(1),
            min_size: 10,
            max_size: 0,
            sizer: Sizer::Items,
            metrics: None,
        };
        assert_eq!(passed[0].batching, Some(expected));
        assert_eq!(passed[0].items(), 1);
    }

    #[test]
    fn the_gauge_of_senders_loses_those_of_a_processor_that_ends() {
        let bits = Arc::new(AtomicU64::new(0));
        let value = || f64::from_bits(bits.load(Relaxed));
        let shown = Gauge::from_arc(bits.clone());
        let old = CardinalityLimit::new(0, shown.clone(), 1);
        let _new = CardinalityLimit::new(0, shown, 1);
        assert!(old.allows(None));
        assert_eq!(value(), 3.0);
        drop(old);
        assert_eq!(value(), 1.0);
    }

    #[test]
    fn only_the_named_headers_stay() {
        let next = Arc::new(Keep::default());
        let config = options::<BatchProcessorConfig>("{metadata_keys: [X-Tenant]}").unwrap();
        let stamp = Stamp {
            batching: config.batching(),
            kept: config.kept(),
            limit: CardinalityLimit::new(config.metadata_cardinality_limit, Gauge::noop(), 0),
            path: "processors::batch".into(),
            ledger: Arc::default(),
            next: next.clone(),
        };
        for headers in [
            &[("x-tenant", "a"), ("x-request", "1")][..],
            &[("x-request", "2")],
        ] {
            let headers = headers.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            });
            let client = crate::batch::ClientMetadata::new(headers.collect());
            let batch = Batch {
                client: Some(Arc::new(client)),
                ..opaque(Signal::Logs, b"x", 1)
            };
            stamp.push(batch).unwrap();
        }
        let passed = next.0.lock();
        let left = passed[0].client.as_ref().unwrap().headers();
        assert_eq!(
            (left.len(), &left["x-tenant"]),
            (1, &http::HeaderValue::from_static("a"))
        );
        assert!(passed[1].client.is_none(), "like a batch without a sender");
    }

    #[test]
    fn senders_beyond_the_limit_are_rejected_and_counted() {
        let next = Arc::new(Keep::default());
        let config =
            options::<BatchProcessorConfig>("{metadata_keys: [x-tenant], metadata_cardinality_limit: 2}")
                .unwrap();
        let stamp = Stamp {
            batching: config.batching(),
            kept: config.kept(),
            limit: CardinalityLimit::new(config.metadata_cardinality_limit, Gauge::noop(), 0),
            path: "processors::batch".into(),
            ledger: Arc::default(),
            next: next.clone(),
        };
        let mut rejected = Vec::new();
        for tenant in ["a", "b", "c", "a", "d"] {
            let value = http::HeaderValue::from_static(tenant);
            let headers = [(HeaderName::from_static("x-tenant"), value)];
            let client = ClientMetadata::new(headers.into_iter().collect());
            let batch = Batch {
                client: Some(Arc::new(client)),
                ..opaque(Signal::Logs, b"x", 1)
            };
            if stamp.push(batch).unwrap().rejected_items == 1 {
                rejected.push(tenant);
            }
        }
        assert_eq!(rejected, ["c", "d"]);
        assert_eq!(next.0.lock().len(), 3);
        assert_eq!(stamp.ledger.balance().dropped[Reason::Limit as usize], 2);
    }

    #[test]
    fn a_maximum_below_the_minimum_is_an_error() {
        let error =
            options::<BatchProcessorConfig>("{send_batch_size: 10, send_batch_max_size: 9}").unwrap_err();
        assert!(
            error.contains("must be greater than or equal to send_batch_size"),
            "{error}"
        );
        assert!(options::<BatchProcessorConfig>("{send_batch_size: 10, send_batch_max_size: 10}").is_ok());
    }
}
