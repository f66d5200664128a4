// SPDX-License-Identifier: Apache-2.0

//! Factories: statics that describe a component type and build it from its configuration.

use std::any::Any;
use std::sync::Arc;

use tidegate_engine::Table;

use super::edge::Entry;
use super::{
    ComponentError, Connector, Consumer, Context, ErrorDoc, Exporter, Extension, Ledger, Processor, Receiver,
};
use crate::batch::Signal;
use tidegate_config::{Decode, Node, OptionDoc, Problems};

/// The Collector's stability ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// May change at any time.
    Development,
    /// Works, options may change.
    Alpha,
    /// Options change with notice only.
    Beta,
    /// Options don't change.
    Stable,
}

impl Stability {
    /// The name as the Collector prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "Development",
            Self::Alpha => "Alpha",
            Self::Beta => "Beta",
            Self::Stable => "Stable",
        }
    }
}

/// A component type. `B` is the signature of its build function: see [`ReceiverFactory`] and its siblings. `S` is its
/// stability: one level for each signal, or that of an extension.
pub struct Factory<B: 'static, S: 'static = &'static [(Signal, Stability)]> {
    /// The type name in the YAML.
    pub kind: &'static str,
    /// Other accepted spellings (names the Collector used before or uses now).
    pub aliases: &'static [&'static str],
    /// The supported signals with their stability. An extension has one level.
    pub stability: S,
    /// A description in one line.
    pub help: &'static str,
    /// The errors for the reference: its own, and groups that it shares with others.
    pub errors: &'static [&'static [ErrorDoc]],
    /// The options.
    pub config: ConfigType,
    /// Builds an instance.
    pub build: B,
}

/// Builds a receiver; one instance serves all signals.
pub type ReceiverFactory =
    Factory<fn(&Settings, ReceiverContext) -> Result<Arc<dyn Receiver>, ComponentError>>;
/// Builds a processor; one instance a pipeline.
pub type ProcessorFactory =
    Factory<fn(&Settings, ProcessorContext) -> Result<Arc<dyn Processor>, ComponentError>>;
/// Builds an exporter; one instance serves all signals.
pub type ExporterFactory =
    Factory<fn(&Settings, ExporterContext) -> Result<Arc<dyn Exporter>, ComponentError>>;
/// Builds a connector; one instance serves all signals.
pub type ConnectorFactory =
    Factory<fn(&Settings, ConnectorContext) -> Result<Arc<dyn Connector>, ComponentError>>;
/// Builds an extension.
pub type ExtensionFactory =
    Factory<fn(&Settings, Context) -> Result<Arc<dyn Extension>, ComponentError>, Stability>;

/// The options type of a component, erased.
#[derive(Clone, Copy)]
pub struct ConfigType {
    /// Decodes the section of a component, and reports every problem to `Problems`.
    pub decode: fn(&Node, &mut Problems) -> Option<Settings>,
    /// The help of the options.
    pub docs: fn() -> Vec<OptionDoc>,
}

impl ConfigType {
    /// The erased form of the options type `C`.
    pub const fn of<C: Decode + Send + Sync + 'static>() -> Self {
        Self {
            decode: |node, problems| Some(Settings(Arc::new(C::decode(node, problems)?))),
            docs: || C::type_help().accepts.options().unwrap_or_default(),
        }
    }
}

/// A component's decoded and checked options.
#[derive(Clone)]
pub struct Settings(Arc<dyn Any + Send + Sync>);

impl Settings {
    /// Options that were changed after they were decoded.
    pub fn of<C: Send + Sync + 'static>(options: C) -> Self {
        Self(Arc::new(options))
    }

    /// The options as the type that the factory named.
    pub fn get<C: Send + Sync + 'static>(&self) -> Arc<C> {
        self.0
            .clone()
            .downcast()
            .expect("a factory's build gets the settings that its own config decoded")
    }
}

/// The arguments of a receiver's build function.
pub struct ReceiverContext {
    /// The name and the shared services.
    pub base: Context,
    /// The entries, indexed by `Signal as usize`; `None` if no pipeline takes this signal from the receiver.
    pub entries: [Option<Entry>; 3],
}

impl ReceiverContext {
    /// The entry of `signal`, or `None` if no pipeline takes this signal.
    pub fn entry(&self, signal: Signal) -> Option<&Entry> {
        self.entries[signal as usize].as_ref()
    }
}

/// The arguments of a processor's build function.
pub struct ProcessorContext {
    /// The name and the shared services.
    pub base: Context,
    /// The pipeline of the processor: `metrics/vendor`.
    pub pipeline: Arc<str>,
    /// The pipeline's signal.
    pub signal: Signal,
    /// The next consumer. The edge to it counts what leaves.
    pub next: Arc<dyn Consumer>,
    /// The ledger. The processor counts what it absorbs, makes and drops; the edges count what enters and leaves.
    pub ledger: Arc<Ledger>,
    /// The tables of the instances that this one replaces at a reload, the newest first. A reload that fails has two.
    pub replaced: Vec<Arc<Table>>,
}

/// The arguments of an exporter's build function.
pub struct ExporterContext {
    /// The name and the shared services.
    pub base: Context,
    /// The ledgers, indexed by `Signal as usize`; `None` if no pipeline of that signal names the exporter. The
    /// exporter counts what it delivers, absorbs and drops. The edges count what enters.
    pub ledgers: [Option<Arc<Ledger>>; 3],
    /// The tables of the instances that this one replaces at a reload, the newest first. A reload that fails has two.
    pub replaced: Vec<Arc<Table>>,
}

impl ExporterContext {
    /// The ledger of `signal`, or `None` if no pipeline of it names the exporter.
    pub fn ledger(&self, signal: Signal) -> Option<&Arc<Ledger>> {
        self.ledgers[signal as usize].as_ref()
    }
}

/// The arguments of a connector's build function.
pub struct ConnectorContext {
    /// The name and the shared services.
    pub base: Context,
    /// The pipelines that name it as a receiver, indexed by `Signal as usize`. Their edges count what leaves.
    pub outputs: [Option<Arc<dyn Consumer>>; 3],
    /// The ledgers by signal, as in [`ExporterContext`].
    pub ledgers: [Option<Arc<Ledger>>; 3],
}
