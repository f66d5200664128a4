// SPDX-License-Identifier: Apache-2.0

//! `POST /-/reload`: reads the configuration again and applies what has changed.

use http::StatusCode;
use serde_json::{Value, json};

use crate::component::Shared;
use crate::component::reloads::{NotReloaded, ReloadResult};
use crate::net::pages::{self, Answer};

/// The path of the request.
pub(super) const PATH: &str = "/-/reload";

/// Reloads, and answers with the result. Only clients that have authenticated may do so.
pub(super) async fn page(shared: &Shared, is_authenticated: bool) -> Answer {
    if !is_authenticated {
        let why =
            "a reload needs a client that authenticates: set `auth` of the `admin` extension, or send SIGHUP";
        return pages::error(StatusCode::FORBIDDEN, "forbidden", why);
    }
    match shared.reloads.ask("POST /-/reload").await {
        Ok(ReloadResult {
            error: None,
            changed,
            is_same,
            ..
        }) => {
            let outcome = if is_same {
                "nothing has changed\n"
            } else {
                "the new configuration runs\n"
            };
            let mut text = outcome.to_owned();
            changed.iter().for_each(|line| text.extend([line, "\n"]));
            pages::text(StatusCode::OK, "text/plain; charset=utf-8", text)
        }
        Ok(ReloadResult { error: Some(why), .. }) => {
            let runs = shared.health.after_refusal();
            let why = format!("the new configuration does not run, {runs}:\n{why}");
            pages::error(StatusCode::INTERNAL_SERVER_ERROR, "bad_config", &why)
        }
        Err(why @ NotReloaded::Unsupported) => {
            pages::error(StatusCode::NOT_IMPLEMENTED, "unsupported", &why.to_string())
        }
        Err(why) => pages::busy(&why.to_string()),
    }
}

/// The past reloads for the page of the configuration, newest first.
pub(super) fn past(shared: &Shared) -> Vec<Value> {
    let past = shared.reloads.past().into_iter();
    let shown = past.map(|result| {
        json!({
            "time": humantime::format_rfc3339_millis(result.at).to_string(),
            "cause": result.cause,
            "success": result.error.is_none(),
            "changed": result.changed,
            "error": result.error,
        })
    });
    shown.collect()
}
