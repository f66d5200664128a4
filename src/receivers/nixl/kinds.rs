// SPDX-License-Identifier: Apache-2.0

//! Maps NIXL's event kinds to the gateway's: name, unit, instrument, and the attributes `category` and `status`.

use std::sync::Arc;

use glob::Pattern;
use tidegate_engine::{Attributes, EventKind, Instrument, Schema};
use tidegate_ring::{Category, Names};

use super::config::{self, NixlConfig};
use crate::receivers::globs;

/// Descriptions of the NIXL events, from the table of event types (NIXL telemetry, version 4).
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("agent_tx_bytes", "Bytes of a finished write"),
    ("agent_rx_bytes", "Bytes of a finished read"),
    ("agent_tx_requests_num", "Finished writes"),
    ("agent_rx_requests_num", "Finished reads"),
    ("agent_memory_registered", "Bytes registered"),
    ("agent_memory_deregistered", "Bytes deregistered"),
    ("agent_xfer_time", "Time of a transfer from start to completion"),
    (
        "agent_xfer_post_time",
        "Time of a transfer from start to posting to the back-end",
    ),
    (
        "agent_telemetry_events_dropped",
        "Events that the agent dropped before they reached the ring",
    ),
];

/// The selected events.
pub(super) struct Selection {
    categories: Vec<Category>,
    events: Vec<Pattern>,
}

impl Selection {
    pub(super) fn new(config: &NixlConfig) -> Self {
        Self {
            categories: config
                .categories
                .iter()
                .map(|category| ring_category(*category))
                .collect(),
            events: globs::patterns(&config.events),
        }
    }

    /// Whether all events are selected, so that no check is necessary.
    pub(super) fn is_all(&self) -> bool {
        self.categories.is_empty() && self.events.is_empty()
    }

    fn wants(&self, name: &str, category: Category) -> bool {
        (self.categories.is_empty() || self.categories.contains(&category))
            && (self.events.is_empty() || self.events.iter().any(|glob| glob.matches(name)))
    }
}

fn ring_category(category: config::Category) -> Category {
    // Both lists hold NIXL's eight names, so every configured one is found.
    Category::by_name(category.as_str()).unwrap_or(Category::Custom)
}

/// The kinds of one ring, following its table of names as it grows.
pub(super) struct Kinds {
    pub(super) schema: Arc<Schema>,
    wanted: Vec<bool>,
}

impl Kinds {
    pub(super) fn new() -> Self {
        Self {
            schema: Arc::default(),
            wanted: Vec::new(),
        }
    }

    /// Learns the names that have come up since the last call.
    pub(super) fn follow(&mut self, names: &Names, selection: &Selection) {
        let known = self.schema.kinds.len();
        if names.len() <= known {
            return;
        }
        let mut kinds = self.schema.kinds.clone();
        for index in known..names.len() {
            let Ok(index) = u16::try_from(index) else { break };
            kinds.push(kind(names, index));
            self.wanted
                .push(selection.wants(names.name(index), names.category(index)));
        }
        self.schema = Arc::new(Schema { kinds });
    }

    pub(super) fn wants(&self, kind: u16) -> bool {
        self.wanted.get(usize::from(kind)).copied().unwrap_or(false)
    }
}

fn kind(names: &Names, index: u16) -> EventKind {
    let name = names.name(index);
    let described = DESCRIPTIONS.iter().find(|(described, _)| *described == name);
    let category = ("category", names.category(index).name());
    let status = names.status(index).map(|status| ("status", status));
    EventKind {
        name: name.into(),
        description: described.map(|(_, text)| *text).unwrap_or_default().into(),
        unit: names.unit(index).into(),
        // Values are amounts per operation, never totals; times are observations of a distribution.
        instrument: match names.unit(index) {
            "us" => Instrument::Histogram,
            _ => Instrument::Counter,
        },
        attributes: std::iter::once(category).chain(status).collect::<Attributes>(),
    }
}
