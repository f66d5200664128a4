// SPDX-License-Identifier: Apache-2.0

//! `nop`: accepts all data and discards it.

use std::sync::Arc;

use crate::batch::{Batch, Signal};
use crate::component::{
    ConfigType, Consumer, Exporter, ExporterFactory, Factory, Flow, Ledger, Lifecycle, Refused, Stability,
};

crate::options! {
    /// The `nop` exporter has no options.
    pub struct NopExporterConfig {}
}

/// The factory of `nop`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "nop",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "accepts and discards all data",
    errors: &[],
    config: ConfigType::of::<NopExporterConfig>(),
    build: |_, cx| Ok(Arc::new(Nop(cx.ledgers))),
};

struct Nop([Option<Arc<Ledger>>; 3]);

impl Lifecycle for Nop {}
impl Exporter for Nop {
    fn may_overlap(&self) -> bool {
        true
    }
}

impl Consumer for Nop {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        if let Some(ledger) = &self.0[batch.signal() as usize] {
            ledger.leave(batch.items());
        }
    }

    fn decodes(&self) -> bool {
        false
    }
}
