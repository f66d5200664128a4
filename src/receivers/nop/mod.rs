// SPDX-License-Identifier: Apache-2.0

//! `nop`: receives nothing. It fills the required place of a receiver in a pipeline.

use std::sync::Arc;

use crate::batch::Signal;
use crate::component::{ConfigType, Factory, Lifecycle, Receiver, ReceiverFactory, Stability};

crate::options! {
    /// The `nop` receiver has no options.
    pub struct NopReceiverConfig {}
}

/// The factory of `nop`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "nop",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "produces no data",
    errors: &[],
    config: ConfigType::of::<NopReceiverConfig>(),
    build: |_, _| Ok(Arc::new(Nop)),
};

struct Nop;

impl Lifecycle for Nop {}
impl Receiver for Nop {}
