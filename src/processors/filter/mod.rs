// SPDX-License-Identifier: Apache-2.0

//! `filter`: drops points, spans and log records by name, attributes and resource attributes; drops are counted.
//!
//! Wire bytes stay wire bytes: dropped items are cut out, together with messages that have nothing left.

use std::sync::Arc;

use tidegate_engine::{Events, Point, Values};

use super::actions::Decoded;
use super::select::{IncludeExclude, Matcher, MeasuredItem, Named, OnWire, Selector};
use crate::batch::wire::edit::Editor;
use crate::batch::wire::walk::{self, Header, Item, Level, Visitor};
use crate::batch::{Batch, Encoded, Payload, Points, Signal};
use crate::component::{
    ConfigType, Consumer, ErrorDoc, Factory, Flow, Ledger, Lifecycle, Processor, ProcessorFactory, Reason,
    Refused, Stability,
};
use crate::config::WithoutEffect;

crate::options! {
    /// Options of the `filter` processor.
    pub struct FilterConfig {
        /// Filter of metrics pipelines.
        pub metrics: FilterRules = FilterRules::default(),
        /// Filter of traces pipelines.
        #[alias = "traces"]
        pub spans: FilterRules = FilterRules::default(),
        /// Filter of logs pipelines.
        pub logs: FilterRules = FilterRules::default(),
        /// Action on items that do not pass the filter.
        pub action: Action = Action::Drop,
    }
    refused = OTTL;
    accepted = ABOUT_OTTL;
}

const NO_OTTL: &str = "OTTL is not supported; `include` and `exclude` select by names and attributes";

/// Options of the Collector's processor that hold OTTL conditions.
const OTTL: &[(&str, &str)] = &[
    ("metric_conditions", NO_OTTL),
    ("trace_conditions", NO_OTTL),
    ("log_conditions", NO_OTTL),
    ("profile_conditions", NO_OTTL),
    ("profiles", "tidegate carries no profiles"),
];

/// The same options below `metrics`, `traces` and `logs`.
const OTTL_RULES: &[(&str, &str)] = &[
    ("resource", NO_OTTL),
    ("metric", NO_OTTL),
    ("datapoint", NO_OTTL),
    ("span", NO_OTTL),
    ("spanevent", NO_OTTL),
    ("log_record", NO_OTTL),
];

/// The option for errors of OTTL conditions.
const ABOUT_OTTL: &WithoutEffect = &[(
    "error_mode",
    "it is about OTTL conditions, of which there are none",
)];

crate::choices! {
    /// The action on items that do not pass the filter. Both are counted.
    pub enum Action {
        /// The sender gets no notice.
        Drop = "drop",
        /// The sender gets a notice of the rejection (OTLP `partial_success`).
        Reject = "reject",
    }
}

crate::options! {
    /// A filter. Items pass if `include` selects them (unset: all) and `exclude` does not.
    pub struct FilterRules {
        /// Items that may pass. Unset: all.
        pub include: Option<Selector> = None,
        /// Items that do not pass.
        pub exclude: Option<Selector> = None,
    }
    refused = OTTL_RULES;
}

/// The errors of `filter`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::answered(
    "Items do not pass, and `action` is `reject`.",
    "OTLP senders get the number of rejected items in `partial_success`",
    "Correct the sender or the rules. With `action: drop`, senders get no notice.",
)];

/// The factory of `filter`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "filter",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "drops points, spans and log records by name and attributes",
    errors: &[ERRORS],
    config: ConfigType::of::<FilterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<FilterConfig>();
        let rules = match cx.signal {
            Signal::Metrics => &config.metrics,
            Signal::Traces => &config.spans,
            Signal::Logs => &config.logs,
        };
        let keeps = IncludeExclude::of_filter(rules.include.as_ref(), rules.exclude.as_ref(), cx.signal);
        let keeps = keeps.map_err(|error| cx.base.error(error))?;
        Ok(Arc::new(Filter {
            keeps,
            action: config.action,
            path: cx.base.path,
            next: cx.next,
            ledger: cx.ledger,
        }))
    },
};

struct Filter {
    keeps: IncludeExclude,
    action: Action,
    path: Arc<str>,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
}

impl Lifecycle for Filter {}
impl Processor for Filter {
    fn edits(&self) -> bool {
        true
    }
}

impl Consumer for Filter {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let before = batch.items();
        let kept = match &batch.payload {
            Payload::Encoded(encoded) => match self.encoded(encoded) {
                Some(kept) => batch.with(kept),
                None => return self.ledger.drop_items(Reason::Invalid, before),
            },
            Payload::Events(events) => self.events(&batch, events),
            Payload::Points(points) => self.points(&batch, points),
        };
        let after = kept.items();
        let gone = before - after;
        self.ledger.drop_items(Reason::Filtered, gone);
        if self.action == Action::Reject && gone > 0 {
            flow.reject(gone, || format!("`{}` does not take them", self.path));
        }
        if after > 0 {
            self.next.consume(kept, flow);
        }
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

impl Filter {
    fn encoded(&self, encoded: &Encoded) -> Option<Encoded> {
        walk::edit(encoded, &mut WireFilter(Matcher::new(&self.keeps))).ok()
    }

    fn events(&self, batch: &Batch, events: &Arc<Events>) -> Batch {
        let source = &events.source;
        let mut matcher = Matcher::new(&self.keeps);
        matcher.resource(&Decoded::new(&source.resource.attributes));
        matcher.scope(&source.scope);
        let keep: Vec<bool> = (events.schema.kinds.iter())
            .map(|kind| {
                matcher.item(&MeasuredItem {
                    name: &kind.name,
                    attributes: &source.attributes.merge(&kind.attributes),
                })
            })
            .collect();
        let wanted = |kind: &u16| keep.get(usize::from(*kind)).copied().unwrap_or(false);
        if events.kinds.iter().all(wanted) {
            batch.clone()
        } else {
            batch.with(select(events, wanted))
        }
    }

    fn points(&self, batch: &Batch, points: &Points) -> Batch {
        let mut matcher = Matcher::new(&self.keeps);
        let keep = |point: &&Point| {
            let series = &point.series;
            matcher.resource(&Decoded::new(&series.resource.attributes));
            matcher.scope(&series.scope);
            matcher.item(&MeasuredItem {
                name: &series.metric.name,
                attributes: &series.attributes,
            })
        };
        let kept: Vec<Point> = points.points.iter().filter(keep).cloned().collect();
        batch.with(Points { points: kept.into() })
    }
}

/// The events whose kind is selected.
fn select(events: &Events, wanted: impl Fn(&u16) -> bool) -> Events {
    fn column<T: Copy>(column: &[T], keep: &[bool]) -> Vec<T> {
        column
            .iter()
            .zip(keep)
            .filter(|(_, keep)| **keep)
            .map(|(value, _)| *value)
            .collect()
    }
    let keep: Vec<bool> = events.kinds.iter().map(wanted).collect();
    Events {
        kinds: column(&events.kinds, &keep),
        values: match &events.values {
            Values::U64(values) => Values::U64(column(values, &keep)),
            Values::F64(values) => Values::F64(column(values, &keep)),
        },
        times: events.times.as_ref().map(|times| column(times, &keep)),
        weights: events.weights.as_ref().map(|weights| column(weights, &keep)),
        ..events.clone()
    }
}

struct WireFilter<'a>(Matcher<'a>);

impl Visitor for WireFilter<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        if level == Level::Scope {
            self.0.wire_scope(message);
        }
    }

    fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        self.0.wire_resource(resource, editor);
        true
    }

    fn empty_metric(&mut self, name: &[u8]) -> bool {
        self.0.item(&Named(name))
    }

    fn item(&mut self, item: &Item<'_>, editor: &mut Editor<'_>) -> bool {
        self.0.item(&OnWire { item, editor })
    }
}

#[cfg(test)]
mod tests;
