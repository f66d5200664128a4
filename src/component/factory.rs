//! Factories: plain statics that say what a component is and make it from its configuration.

use std::any::Any;
use std::sync::Arc;

use super::edge::Entry;
use super::{ComponentError, Connector, Consumer, Context, Exporter, Extension, Ledger, Processor, Receiver};
use crate::batch::Signal;
use crate::config::{Decode, Node, OptionDoc, Problems};

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

/// A component type. `B` is how an instance is built: see `ReceiverFactory` and its siblings.
pub struct Factory<B: 'static> {
    /// Type name in the YAML.
    pub kind: &'static str,
    /// Other accepted spellings (names the Collector used before or uses now).
    pub aliases: &'static [&'static str],
    /// Signals it handles, with their stability. Empty for extensions.
    pub signals: &'static [(Signal, Stability)],
    /// One line for people.
    pub help: &'static str,
    /// Its options.
    pub config: ConfigType,
    /// Makes an instance.
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
pub type ExtensionFactory = Factory<fn(&Settings, Context) -> Result<Arc<dyn Extension>, ComponentError>>;

/// The options type of a component, erased.
#[derive(Clone, Copy)]
pub struct ConfigType {
    /// Decodes a component's section; every problem is noted in `Problems`.
    pub decode: fn(&Node, &mut Problems) -> Option<Settings>,
    /// What the options are.
    pub docs: fn() -> Vec<OptionDoc>,
}

impl ConfigType {
    /// The options type `C`.
    pub const fn of<C: Decode + Send + Sync + 'static>() -> Self {
        Self {
            decode: |node, problems| Some(Settings(Arc::new(C::decode(node, problems)?))),
            docs: || {
                C::type_help()
                    .options
                    .map(|options| options())
                    .unwrap_or_default()
            },
        }
    }
}

/// A component's decoded and checked options.
#[derive(Clone)]
pub struct Settings(Arc<dyn Any + Send + Sync>);

impl Settings {
    /// The options as the type that the factory named.
    pub fn get<C: Send + Sync + 'static>(&self) -> Arc<C> {
        self.0
            .clone()
            .downcast()
            .expect("a factory's build gets the settings that its own config decoded")
    }
}

/// What a receiver is built with.
pub struct ReceiverContext {
    /// Names and shared services.
    pub base: Context,
    /// Where data goes; `None` for a signal that no pipeline wants from this receiver. Indexed by `Signal as usize`.
    pub entries: [Option<Entry>; 3],
}

impl ReceiverContext {
    /// Where data of `signal` goes, if any pipeline wants it.
    pub fn entry(&self, signal: Signal) -> Option<&Entry> {
        self.entries[signal as usize].as_ref()
    }
}

/// What a processor is built with.
pub struct ProcessorContext {
    /// Names and shared services.
    pub base: Context,
    /// `metrics/vendor`: the pipeline it belongs to.
    pub pipeline: Arc<str>,
    /// The pipeline's signal.
    pub signal: Signal,
    /// Where it hands on. Counts what leaves by itself.
    pub next: Arc<dyn Consumer>,
    /// Its books: it notes what it absorbs, makes and drops; what enters and leaves is noted by the edges.
    pub ledger: Arc<Ledger>,
}

/// What an exporter is built with.
pub struct ExporterContext {
    /// Names and shared services.
    pub base: Context,
    /// The books by signal; `None` where no pipeline of that signal names it. It notes what leaves (delivered),
    /// is absorbed and dropped; what enters is noted by the edges. Indexed by `Signal as usize`.
    pub ledgers: [Option<Arc<Ledger>>; 3],
}

impl ExporterContext {
    /// The books of `signal`, if any pipeline sends it here.
    pub fn ledger(&self, signal: Signal) -> Option<&Arc<Ledger>> {
        self.ledgers[signal as usize].as_ref()
    }
}

/// What a connector is built with.
pub struct ConnectorContext {
    /// Names and shared services.
    pub base: Context,
    /// Pipelines that name it as receiver, by `Signal as usize`; pushing there counts what leaves.
    pub outputs: [Option<Arc<dyn Consumer>>; 3],
    /// The books by signal, as for exporters.
    pub ledgers: [Option<Arc<Ledger>>; 3],
}
