// SPDX-License-Identifier: Apache-2.0

//! Options of the `plugin` exporter.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_plugin::host::{Refusal, VersionReq, Wanted};

use crate::config::{ByteSize, Decode, Node, NodeValue, Problems, Secret, TypeHelp, YamlType, wrong_type};
use crate::delivery::{Delivery, QueueConfig, RetryConfig, Shape, Speaks, TemporalityChoice};
use crate::exporters::vendor::check_led;

crate::options! {
    /// Options of the `plugin` exporter.
    pub struct PluginExporterConfig {
        /// Name of the plugin. Its file is `libtidegate_exporter_NAME.so`, and the plugin must report the same
        /// name.
        pub name: Option<String> = None,
        /// Directories that are searched for the file, in this order. Unset: /usr/local/lib/tidegate/plugins,
        /// /usr/lib/tidegate/plugins.
        pub directories: Option<Vec<PathBuf>> = None,
        /// Path of the plugin's file. It replaces the search.
        pub path: Option<PathBuf> = None,
        /// Accepted versions of the plugin. Unset: all.
        pub version: Option<VersionRange> = None,
        /// Place where the plugin runs.
        pub isolation: Isolation = Isolation::None,
        /// Most memory of a plugin in its own process, at least 64MiB. Beyond it, allocations fail. The process
        /// then usually ends and starts again.
        pub memory_limit: ByteSize = ByteSize::mib(1024),
        /// Configuration of the plugin. Text is passed unchanged, a map or list as JSON. The gateway never prints
        /// it.
        pub config: PluginConfig = PluginConfig::default(),
        /// Longest duration of one call of the plugin. Its creation is a call too.
        pub timeout: Duration = Duration::from_secs(5),
        /// Delay between an export and the flush of the plugin. 0: it is flushed only at the stop.
        pub flush_interval: Duration = Duration::from_secs(1),
        /// Temporality of sums and histograms that the plugin gets.
        pub temporality: TemporalityChoice = TemporalityChoice::Preserve,
        /// Id of a `cluster` extension. The exporter drops and counts metrics while this replica does not lead the
        /// cluster. Each replica exports its traces and logs. Unset: every replica exports all data.
        pub only_leader: Option<String> = None,
        /// Retries of failed requests.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait for delivery.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    check = PluginExporterConfig::check
}

crate::choices! {
    /// The place where a plugin runs.
    pub enum Isolation {
        /// The gateway's process, on its own thread.
        None = "none",
        /// Its own process. The gateway starts it again when it ends.
        Process = "process",
    }
}

/// The default directories of plugins.
const DIRECTORIES: [&str; 2] = ["/usr/local/lib/tidegate/plugins", "/usr/lib/tidegate/plugins"];

/// The least memory limit. A smaller one leaves a plugin no memory beside the process itself.
const MIN_MEMORY: ByteSize = ByteSize::mib(64);

impl PluginExporterConfig {
    /// The file that is meant.
    pub(super) fn wanted(&self) -> Result<Wanted, Refusal> {
        let version = self.version.clone().map(|range| range.0);
        let (path, name) = match (&self.path, &self.name) {
            (Some(path), name) => (path.clone(), name.clone()),
            (None, name) => {
                let directories = self.directories.clone();
                let directories = directories.unwrap_or_else(|| DIRECTORIES.map(PathBuf::from).into());
                let name = name.as_deref().unwrap_or_default();
                let found = Wanted::find(name, &directories)?;
                (found.path, found.name)
            }
        };
        Ok(Wanted { path, name, version })
    }

    /// One call at a time, and the worker bounds it.
    pub(super) fn delivery(&self) -> Delivery {
        let mut queue = self.sending_queue.clone();
        queue.num_consumers = NonZeroUsize::MIN;
        Delivery {
            queue,
            retry: self.retry_on_failure.clone(),
            timeout: None,
            temporality: self.temporality,
            refuses_falling: false,
            shape: Shape::NONE,
            in_order: false,
            together: None,
        }
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        let (leader, queue) = (self.only_leader.as_ref(), Some(&self.sending_queue));
        check_led(leader, self.temporality, queue, at, cx);
        self.retry_on_failure.check_statuses(Speaks::Other, at, cx);
        match (&self.name, &self.path) {
            (None, None) => cx.at(at).error("one of `name` and `path` must be specified"),
            (Some(name), _) if !Wanted::is_name(name) => cx
                .at(at.child("name"))
                .error("a plugin's name has letters, digits, `_` and `-`"),
            (_, Some(_)) if self.directories.is_some() => cx
                .at(at.child("directories"))
                .error("can't be combined with `path`: nothing is looked for"),
            _ => {}
        }
        if self.memory_limit < MIN_MEMORY {
            cx.at(at.child("memory_limit"))
                .error("must be at least 64MiB: the process itself needs about 20MiB");
        }
        if self.timeout.is_zero() {
            cx.at(at.child("timeout"))
                .error("must be greater than zero: every call of a plugin is bounded");
        }
    }
}

/// A range of versions.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRange(VersionReq);

impl Decode for VersionRange {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(text) = node.as_text() else {
            return wrong_type::<Self>(node, cx);
        };
        let parsed = text.parse();
        let wrong = |error| {
            cx.at(node)
                .error(format!("{} is not a range of versions: {error}", node.shown()));
        };
        parsed.map(Self).map_err(wrong).ok()
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("range of versions", "1.2 (from there, below 2) or \">=1, <3\"")
            .accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The configuration that creates a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginConfig(pub Secret);

impl Decode for PluginConfig {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        cx.hide(node);
        let text = match node.value() {
            NodeValue::Scalar(_) => node.as_text().map(str::to_owned),
            NodeValue::Map(_) | NodeValue::List(_) => Some(node.to_json().to_string()),
        };
        match text {
            Some(text) => Some(Self(Secret::new(text))),
            None => wrong_type::<Self>(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("text, map or list")
    }
}
