//! `batch`: larger requests for the destinations below. It only stamps its wishes on what passes; joining and cutting happen
//! in the destinations' queues, so nothing is held here and nothing is acknowledged before a destination has it.

mod config;

use std::sync::Arc;

use http::HeaderName;

use crate::batch::{Batch, Batching, Signal};
use crate::component::{
    ConfigType, Consumer, Factory, Flow, Lifecycle, Processor, ProcessorFactory, Refused, Stability,
};
use config::Config;

/// The factory of `batch`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "batch",
    aliases: &[],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "joins small batches into larger requests, in the queues of the exporters below",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        Ok(Arc::new(Stamp {
            batching: config.batching(),
            kept: config.kept(),
            next: cx.next,
        }))
    },
};

struct Stamp {
    batching: Batching,
    kept: Option<Vec<HeaderName>>,
    next: Arc<dyn Consumer>,
}

impl Lifecycle for Stamp {}
impl Processor for Stamp {}

impl Consumer for Stamp {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let batching = Some(self.batching);
        let client = match (&batch.client, &self.kept) {
            (Some(client), Some(kept)) => client.only(kept).map(Arc::new),
            (client, _) => client.clone(),
        };
        self.next.consume(
            Batch {
                batching,
                client,
                ..batch
            },
            flow,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
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
            self.0.lock().unwrap().push(batch);
        }
    }

    #[test]
    fn every_batch_carries_the_wishes_on() {
        let next = Arc::new(Keep::default());
        let stamp = Stamp {
            batching: options::<Config>("{timeout: 1s, send_batch_size: 10}")
                .unwrap()
                .batching(),
            kept: None,
            next: next.clone(),
        };
        stamp.push(opaque(Signal::Logs, b"x", 1)).unwrap();
        let passed = next.0.lock().unwrap();
        let expected = Batching {
            timeout: Duration::from_secs(1),
            min_size: 10,
            max_size: 0,
            sizer: Sizer::Items,
        };
        assert_eq!(passed[0].batching, Some(expected));
        assert_eq!(passed[0].items(), 1);
    }

    #[test]
    fn only_the_named_headers_stay() {
        let next = Arc::new(Keep::default());
        let config = options::<Config>("{metadata_keys: [X-Tenant]}").unwrap();
        let stamp = Stamp {
            batching: config.batching(),
            kept: config.kept(),
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
        let passed = next.0.lock().unwrap();
        let left = passed[0].client.as_ref().unwrap().headers();
        assert_eq!(
            (left.len(), &left["x-tenant"]),
            (1, &http::HeaderValue::from_static("a"))
        );
        assert!(passed[1].client.is_none(), "like one of nobody");
    }

    #[test]
    fn a_maximum_below_the_minimum_is_an_error() {
        let error = options::<Config>("{send_batch_size: 10, send_batch_max_size: 9}").unwrap_err();
        assert!(
            error.contains("must be greater than or equal to send_batch_size"),
            "{error}"
        );
        assert!(options::<Config>("{send_batch_size: 10, send_batch_max_size: 10}").is_ok());
    }
}
