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
    ComponentError, ConfigType, Context, Entry, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverContext,
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
    stability: &[(Signal::Metrics, Stability::Alpha)],
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
    base: Context,
    /// The id of the extension.
    extension: String,
    entry: Entry,
    recorded: Arc<RecordedSeries>,
}

impl RulesReceiver {
    fn new(config: &RulesReceiverConfig, cx: ReceiverContext) -> Result<Self, ComponentError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let entry = cx.entry(Signal::Metrics).cloned();
        let base = cx.base;
        let entry = entry.ok_or_else(|| base.error("only metrics pipelines can use it"))?;
        let recorded = RecordedSeries::find(&base.shared, &config.rules);
        let recorded = recorded.ok_or_else(|| no_extension(&base, &config.rules))?;
        Ok(Self {
            number: NEXT.fetch_add(1, Relaxed),
            base,
            extension: config.rules.clone(),
            entry,
            recorded,
        })
    }
}

fn no_extension(base: &Context, id: &str) -> ComponentError {
    base.error(format!(
        "rules: `{id}` is not a `rules` extension in `service::extensions`"
    ))
}

impl Receiver for RulesReceiver {
    fn table(&self) -> Option<&Arc<Table>> {
        Some(self.recorded.table())
    }

    /// The recorded series of an extension that a reload removes still exist.
    fn check_needs(&self) -> Result<(), ComponentError> {
        let found = self.base.shared.services.get(&self.extension);
        found
            .map(|_| ())
            .ok_or_else(|| no_extension(&self.base, &self.extension))
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
