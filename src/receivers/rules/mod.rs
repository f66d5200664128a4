// SPDX-License-Identifier: Apache-2.0

//! `rules`: brings the series that a `rules` extension records into pipelines.
//!
//! Each evaluation of a group is pushed at once. Exporters that show tables read the table of the extension instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use async_trait::async_trait;
use tidegate_engine::Table;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Entry, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverContext,
    ReceiverFactory, Stability,
};
use crate::prom::recorded::RecordedSeries;

crate::options! {
    /// Options of the `rules` receiver.
    pub struct RulesReceiverConfig {
        /// Id of the `rules` extension that records the series. It must be in `service::extensions` too.
        pub rules: String = "rules".to_owned(),
    }
}

/// The errors of `rules`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::logged(
    "The option `rules` does not name a `rules` extension. The gateway does not start.",
    "is not a `rules` extension in `service::extensions`",
    "Add the extension to `service::extensions`, or correct the name.",
)];

/// The factory of the `rules` receiver.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "rules",
    aliases: &[],
    signals: &[(Signal::Metrics, Stability::Alpha)],
    help: "brings the series that the rules extension records into pipelines",
    errors: &[ERRORS],
    config: ConfigType::of::<RulesReceiverConfig>(),
    build: |settings, cx| {
        let config = settings.get::<RulesReceiverConfig>();
        Ok(Arc::new(RulesReceiver::new(&config, cx)?))
    },
};

struct RulesReceiver {
    /// The number of its entry: each instance has its own.
    number: u64,
    entry: Entry,
    recorded: Arc<RecordedSeries>,
}

impl RulesReceiver {
    fn new(config: &RulesReceiverConfig, cx: ReceiverContext) -> Result<Self, ComponentError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let entry = cx.entry(Signal::Metrics).cloned();
        let base = cx.base;
        let entry = entry.ok_or_else(|| base.error("only metrics pipelines can use it"))?;
        let recorded = RecordedSeries::find(&base.shared, &config.rules).ok_or_else(|| {
            base.error(format!(
                "rules: `{}` is not a `rules` extension in `service::extensions`",
                config.rules
            ))
        })?;
        Ok(Self {
            number: NEXT.fetch_add(1, Relaxed),
            entry,
            recorded,
        })
    }
}

impl Receiver for RulesReceiver {
    fn table(&self) -> Option<&Arc<Table>> {
        Some(self.recorded.table())
    }
}

#[async_trait]
impl Lifecycle for RulesReceiver {
    async fn start(&self) -> Result<(), ComponentError> {
        self.recorded.attach(self.number, self.entry.clone());
        Ok(())
    }

    async fn stop(&self, _deadline: Instant) {
        self.recorded.detach(self.number);
    }
}
