// SPDX-License-Identifier: Apache-2.0

//! `forward`: hands every batch of the pipelines that export to it to the pipelines that receive from it,
//! signal by signal and unchanged. Joins or splits pipelines of the same signal.

use std::sync::Arc;

use crate::batch::{Batch, Signal};
use crate::component::{
    ConfigType, Connector, ConnectorFactory, Consumer, Factory, Flow, Lifecycle, Refused, Stability,
};

crate::options! {
    /// Options of the `forward` connector: none.
    pub struct ForwardConfig {}
}

/// The factory of `forward`.
pub static FACTORY: ConnectorFactory = Factory {
    kind: "forward",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "passes batches from pipelines to pipelines of the same signal",
    errors: &[],
    config: ConfigType::of::<ForwardConfig>(),
    build: |_, cx| Ok(Arc::new(Forward { outputs: cx.outputs })),
};

struct Forward {
    outputs: [Option<Arc<dyn Consumer>>; 3],
}

impl Forward {
    fn output(&self, batch: &Batch) -> Option<&Arc<dyn Consumer>> {
        self.outputs[batch.signal() as usize].as_ref()
    }
}

impl Lifecycle for Forward {}
impl Connector for Forward {}

impl Consumer for Forward {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        match self.output(batch) {
            Some(output) => output.admit(batch, flow),
            None => Err(Refused::permanent(
                "forward: no pipeline receives this signal from it",
            )),
        }
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        if let Some(output) = self.output(&batch) {
            output.consume(batch, flow);
        }
    }

    fn decodes(&self) -> bool {
        self.outputs.iter().flatten().any(|output| output.decodes())
    }

    fn absorbs(&self) -> bool {
        self.outputs.iter().flatten().any(|output| output.absorbs())
    }
}
