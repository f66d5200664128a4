// SPDX-License-Identifier: Apache-2.0

//! The reports about a plugin: metrics, health, the log.

use std::sync::Arc;

use metrics::{counter, gauge};
use tidegate_plugin::host::{Call, Description, Note, Notes, Reply, Trouble};
use tracing::{info, warn};

use super::config::Isolation;
use crate::component::Context;

/// Hears of every call.
pub(super) fn listener(cx: Context) -> Notes {
    Arc::new(move |note| record(&cx, note))
}

/// Says which plugin it is.
pub(super) fn loaded(cx: &Context, path: &std::path::Path, found: &Description, isolation: Isolation) {
    let (component, path) = (&*cx.path, path.display());
    let Description { name, version, .. } = found;
    let isolation = match isolation {
        Isolation::None => "none",
        Isolation::Process => "process",
    };
    info!(component, plugin = %name, %version, %path, isolation, "plugin loaded");
    let labels = [
        ("exporter", cx.id.to_string()),
        ("plugin", name.clone()),
        ("version", version.clone()),
        ("isolation", isolation.to_owned()),
    ];
    gauge!("tidegate_plugin_info", &labels).set(1.0);
    stuck(cx, false);
}

fn record(cx: &Context, note: Note) {
    let component = &*cx.path;
    match note {
        Note::Called(call, _, reply) => {
            count(cx, call, result(&reply));
            if let Err(trouble @ (Trouble::Crashed(_) | Trouble::TimedOut(_))) = &reply {
                warn!(component, call = call.name(), error = %trouble, "plugin");
            }
            let ill = reply.as_ref().err().map(ToString::to_string);
            cx.shared.health.trouble(&cx.path, ill);
        }
        Note::Overran(call, time) => {
            let call_name = call.name();
            warn!(
                component,
                call = call_name,
                ?time,
                "a call of the plugin takes too long: no other call begins until it returns"
            );
            count(cx, call, "timed_out");
            stuck(cx, true);
            let ill = format!("the plugin is stuck in a call of `{call_name}`");
            cx.shared.health.trouble(&cx.path, Some(ill));
        }
        Note::Returned(call, time) => {
            info!(
                component,
                call = call.name(),
                ?time,
                "a call of the plugin that took too long has returned"
            );
            stuck(cx, false);
            cx.shared.health.trouble(&cx.path, None);
        }
    }
}

fn count(cx: &Context, call: Call, result: &'static str) {
    let exporter = cx.id.to_string();
    counter!("tidegate_plugin_calls_total", "exporter" => exporter, "call" => call.name(), "result" => result)
        .increment(1);
}

fn stuck(cx: &Context, is_stuck: bool) {
    gauge!("tidegate_plugin_stuck", "exporter" => cx.id.to_string()).set(f64::from(u8::from(is_stuck)));
}

fn result(reply: &Reply) -> &'static str {
    match reply {
        Ok(answer) => answer.name(),
        Err(Trouble::TimedOut(_)) => "timed_out",
        Err(Trouble::Crashed(_)) => "crashed",
        Err(Trouble::Down { .. }) => "down",
        Err(Trouble::Stuck(_) | Trouble::Closed) => "none",
    }
}
