// SPDX-License-Identifier: Apache-2.0

//! The contents of the pages.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use super::html::{HtmlPage, PAGES};
use crate::component::Reason;
use crate::component::overview::Overview;
use crate::component::shared::Health;
use crate::component::slow::{Slow, Stage};

pub(super) fn index() -> String {
    let rows = PAGES.map(|(path, name)| [path.to_owned(), name.to_owned()]);
    HtmlPage::new("tidegate").table(["path", "page"], rows).end()
}

pub(super) fn unknown() -> String {
    HtmlPage::new("No such page")
        .text("The pages are listed above.")
        .end()
}

pub(super) fn service(overview: &Overview, health: &Health) -> String {
    let uptime = SystemTime::now()
        .duration_since(overview.built)
        .unwrap_or_default();
    let whole = Duration::from_secs(uptime.as_secs());
    let rows = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("phase", format!("{:?}", health.phase()).to_lowercase()),
        (
            "started",
            humantime::format_rfc3339_seconds(overview.built).to_string(),
        ),
        ("uptime", humantime::format_duration(whole).to_string()),
        ("process", std::process::id().to_string()),
        ("pipelines", overview.pipelines.len().to_string()),
        ("extensions", overview.extensions.len().to_string()),
    ];
    let troubles = health.troubles();
    let page = HtmlPage::new("Service").table(
        ["what", "value"],
        rows.map(|(what, value)| [what.to_owned(), value]),
    );
    if troubles.is_empty() {
        page.text("No component reports trouble.").end()
    } else {
        page.table(
            ["component", "trouble"],
            troubles.into_iter().map(|(who, what)| [who, what]),
        )
        .end()
    }
}

pub(super) fn pipelines(overview: &Overview) -> String {
    let pipelines = overview.pipelines.iter().map(|pipeline| {
        let list = |ids: &[String]| ids.join(", ");
        [
            pipeline.id.clone(),
            list(&pipeline.receivers),
            list(&pipeline.processors),
            list(&pipeline.exporters),
        ]
    });
    let entries = overview.metrics.entries.iter().map(|entry| {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed).to_string();
        [
            entry.receiver.to_string(),
            entry.signal.name().to_owned(),
            count(&entry.counts.accepted),
            count(&entry.counts.refused),
            count(&entry.counts.failed),
        ]
    });
    let nodes = overview.metrics.nodes.iter().map(|node| {
        let balance = node.ledger.balance();
        let reasons = Reason::ALL.iter().filter_map(|reason| {
            let count = balance.dropped[*reason as usize];
            (count > 0).then(|| format!("{} {count}", reason.name()))
        });
        [
            node.path.to_string(),
            node.signal.name().to_owned(),
            balance.entered.to_string(),
            balance.left.to_string(),
            balance.absorbed.to_string(),
            balance.held().to_string(),
            reasons.collect::<Vec<_>>().join(", "),
        ]
    });
    HtmlPage::new("Pipelines")
        .table(["pipeline", "receivers", "processors", "exporters"], pipelines)
        .text("Items that receivers took since the start:")
        .table(["receiver", "signal", "accepted", "refused", "failed"], entries)
        .text("Items by component since the start; held now:")
        .table(
            ["component", "signal", "in", "out", "absorbed", "held", "dropped"],
            nodes,
        )
        .end()
}

pub(super) fn extensions(overview: &Overview) -> String {
    let rows = overview.extensions.iter().map(|id| [id.clone()]);
    HtmlPage::new("Extensions").table(["extension"], rows).end()
}

pub(super) fn features() -> String {
    HtmlPage::new("Feature gates")
        .text("tidegate has no feature gates: what is built in is on.")
        .end()
}

pub(super) fn slow(batches: &[Slow], threshold: Duration) -> String {
    let now = Instant::now();
    let rows = batches.iter().rev().map(|slow| {
        let stage = match slow.stage {
            Stage::Push => "push",
            Stage::Deliver => "deliver",
        };
        let milliseconds = |duration: Duration| format!("{} ms", duration.as_millis());
        [
            milliseconds(now.saturating_duration_since(slow.ended)),
            slow.component.to_string(),
            stage.to_owned(),
            slow.signal.name().to_owned(),
            slow.items.to_string(),
            milliseconds(slow.ended.saturating_duration_since(slow.started)),
            slow.error.clone().unwrap_or_default(),
        ]
    });
    let explanation = format!(
        "Batches that took {} or longer, the newest first.",
        humantime::format_duration(threshold)
    );
    HtmlPage::new("Slow batches")
        .text(&explanation)
        .table(
            [
                "ended ago",
                "component",
                "stage",
                "signal",
                "items",
                "took",
                "error",
            ],
            rows,
        )
        .end()
}
