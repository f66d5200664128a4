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
        (Class::Exporter, "file" | "kafka" | "loadbalancing" | "nats" | "plugin") => [DELIVERY, &[]],
        (Class::Exporter, "otlp" | "otlphttp") => [DELIVERY, &[Reason::NotLeader]],
        (Class::Exporter, "prometheusremotewrite") => [DELIVERY, &[Reason::Conflict, Reason::NotLeader]],
        (Class::Exporter, "partials" | "prometheus") => [TABLE, &[]],
        _ => [&[], &[]],
    };
    let is_one = |reason: &Reason| reasons.iter().any(|some| some.contains(reason));
    Reason::ALL.into_iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::commands::components::all;

    /// The code of a folder without its tests.
    fn code_of(folder: &Path, code: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let is_test = entry.file_name().to_string_lossy().contains("test");
            if path.is_dir() && !is_test {
                code_of(&path, code);
            } else if !is_test && path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // Tests of a file stand at its end.
                code.push_str(text.split("#[cfg(test)]").next().unwrap());
            }
        }
    }

    #[test]
    fn the_reasons_in_the_code_of_a_component_are_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = 0;
        for about in all() {
            let folder = root.join(about.class.section()).join(about.kind);
            if !folder.is_dir() {
                continue;
            }
            let mut code = String::new();
            code_of(&folder, &mut code);
            let listed = of(about.class, about.kind);
            for reason in Reason::ALL {
                if code.contains(&format!("Reason::{reason:?}")) {
                    found += 1;
                    assert!(listed.contains(&reason), "{}: {reason:?}", folder.display());
                }
            }
        }
        assert!(found >= 10, "{found} reasons");
    }
}
