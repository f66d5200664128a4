// SPDX-License-Identifier: Apache-2.0

//! The component types of this binary, and their descriptions.

use crate::batch::Signal;
use crate::component::{ConfigType, ErrorDoc, Factory, Stability};
use crate::config::Class;
use crate::{connectors, exporters, extensions, processors, receivers};

/// The description of a component type.
#[derive(Clone, Copy)]
pub struct About {
    /// Class of the component.
    pub class: Class,
    /// Type name.
    pub kind: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// Signals with stability. Empty for extensions.
    pub signals: &'static [(Signal, Stability)],
    /// The level of an extension.
    pub stability: Option<Stability>,
    /// One line.
    pub help: &'static str,
    /// Errors, in groups.
    pub errors: &'static [&'static [ErrorDoc]],
    /// Options.
    pub config: ConfigType,
}

impl About {
    fn of<B>(class: Class, factory: &'static Factory<B>) -> Self {
        Self::new(class, factory, factory.stability, None)
    }

    fn new<B, S>(
        class: Class,
        factory: &'static Factory<B, S>,
        signals: &'static [(Signal, Stability)],
        stability: Option<Stability>,
    ) -> Self {
        let Factory {
            kind,
            aliases,
            help,
            errors,
            config,
            ..
        } = factory;
        Self {
            class,
            kind,
            aliases,
            signals,
            stability,
            help,
            errors,
            config: *config,
        }
    }

    /// The signals with their levels. An extension has one level, at the name of its class.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let signals = self
            .signals
            .iter()
            .map(|(signal, level)| (signal.name(), level.name()));
        let of_extension = self.stability.map(|level| (self.class.as_str(), level.name()));
        signals.chain(of_extension)
    }
}

/// Every component type of this binary, in the order of their lists.
pub fn all() -> Vec<About> {
    let mut all = Vec::new();
    all.extend(
        receivers::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Receiver, factory)),
    );
    all.extend(
        processors::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Processor, factory)),
    );
    all.extend(
        exporters::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Exporter, factory)),
    );
    all.extend(
        connectors::FACTORIES
            .iter()
            .map(|factory| About::of(Class::Connector, factory)),
    );
    all.extend(
        extensions::FACTORIES
            .iter()
            .map(|factory| About::new(Class::Extension, factory, &[], Some(factory.stability))),
    );
    all
}
