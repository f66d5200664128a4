// SPDX-License-Identifier: Apache-2.0

//! The reasons for which component types drop items.

use crate::component::Reason;
use crate::config::Class;

/// Those of every exporter that delivers through a queue.
const DELIVERY: &[Reason] = &[
    Reason::QueueFull,
    Reason::Rejected,
    Reason::RetriesExhausted,
    Reason::Limit,
    Reason::Invalid,
    Reason::Late,
    Reason::Unsupported,
    Reason::Future,
    Reason::Damaged,
    Reason::Shutdown,
];

/// Those of components with a table of series.
const TABLE: &[Reason] = &[
    Reason::Invalid,
    Reason::Limit,
    Reason::Late,
    Reason::Unsupported,
    Reason::Future,
];

/// The reasons of a component type, in the order of their counters.
pub(super) fn of(class: Class, kind: &str) -> Vec<Reason> {
    let reasons: [&[Reason]; 2] = match (class, kind) {
        (Class::Processor, "aggregate") => [TABLE, &[Reason::Shutdown, Reason::StorageFailed]],
        (Class::Processor, "attributes" | "k8sattributes" | "resource") => [&[Reason::Invalid], &[]],
        (Class::Processor, "batch") => [&[Reason::Limit], &[]],
        (Class::Processor, "composite") => [&[Reason::QueueFull], &[]],
        (Class::Processor, "filter") => [&[Reason::Filtered, Reason::Invalid], &[]],
        (Class::Exporter, "debug") => [
            &[Reason::QueueFull, Reason::Memory],
            &[Reason::Invalid, Reason::Shutdown],
        ],
        (Class::Exporter, "file" | "loadbalancing") => [DELIVERY, &[]],
        (Class::Exporter, "kafka" | "nats" | "otlp" | "otlphttp" | "plugin") => {
            [DELIVERY, &[Reason::NotLeader]]
        }
        (Class::Exporter, "prometheusremotewrite") => [DELIVERY, &[Reason::Conflict, Reason::NotLeader]],
        (Class::Exporter, "partials" | "prometheus") => [TABLE, &[]],
        _ => [&[], &[]],
    };
    let is_one = |reason: &Reason| reasons.iter().any(|some| some.contains(reason));
    Reason::ALL.into_iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::components::all;
    use crate::commands::components::testing::code_of_component;

    #[test]
    fn the_reasons_in_the_code_of_a_component_are_listed() {
        let mut found = 0;
        for about in all() {
            let Some(code) = code_of_component(about.class, about.kind) else {
                continue;
            };
            let listed = of(about.class, about.kind);
            for reason in Reason::ALL {
                if code.contains(&format!("Reason::{reason:?}")) {
                    found += 1;
                    assert!(listed.contains(&reason), "{}: {reason:?}", about.kind);
                }
            }
        }
        assert!(found >= 10, "{found} reasons");
    }
}
