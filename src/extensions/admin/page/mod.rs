// SPDX-License-Identifier: Apache-2.0

//! The page for people at `/`: static files in the binary. Its scripts read the API like any other client, so the files
//! have no data of the gateway and the page changes nothing.

use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY,
    X_FRAME_OPTIONS,
};

use crate::net::pages::{self, Answer, Request};

/// The folder of the files.
const FOLDER: &str = "/page/";

/// Only files of this server may run or be loaded, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The headers of each file. A browser asks each time whether its copy is still the newest.
const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-cache"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// A file: its name, its type and its bytes.
type Asset = (&'static str, &'static str, &'static [u8]);

macro_rules! assets {
    ($($name:literal $content_type:expr;)+) => {
        &[$(($name, $content_type, include_bytes!(concat!("assets/", $name)).as_slice())),+]
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files; the first one is the page.
const ASSETS: &[Asset] = assets! {
    "index.html" "text/html; charset=utf-8";
    "style.css" "text/css; charset=utf-8";
    "icon.svg" "image/svg+xml";
    "api.js" SCRIPT;
    "app.js" SCRIPT;
    "chart.js" SCRIPT;
    "dom.js" SCRIPT;
    "durations.js" SCRIPT;
    "exposition.js" SCRIPT;
    "format.js" SCRIPT;
    "layout.js" SCRIPT;
    "live.js" SCRIPT;
    "model.js" SCRIPT;
    "rates.js" SCRIPT;
    "view-cardinality.js" SCRIPT;
    "view-component.js" SCRIPT;
    "view-components.js" SCRIPT;
    "view-composites.js" SCRIPT;
    "view-config.js" SCRIPT;
    "view-graph.js" SCRIPT;
    "view-ledger.js" SCRIPT;
    "view-query.js" SCRIPT;
    "view-rules.js" SCRIPT;
    "view-sources.js" SCRIPT;
    "view-tap.js" SCRIPT;
    "view-targets.js" SCRIPT;
};

/// Whether a path belongs to the page. Its files are the same for everybody.
pub(super) fn is_here(path: &str) -> bool {
    path == "/" || path.starts_with(FOLDER)
}

/// The file that a request asks for; `None`: there is no such file.
pub(super) fn answer(request: &Request) -> Option<Answer> {
    let name = match &*request.path {
        "/" => "index.html",
        path => path.strip_prefix(FOLDER)?,
    };
    let (_, content_type, bytes) = ASSETS.iter().find(|(known, _, _)| *known == name)?;
    let tag = tag(bytes);
    let mut answer = if is_known(request, &tag) {
        let mut unchanged = pages::empty();
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        pages::bytes(content_type, Bytes::from_static(bytes))
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    Some(answer)
}

/// The tag of a file. It is weak, because the bytes on the wire may be compressed.
fn tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("W/\"{:016x}\"", hasher.finish())
}

/// Whether the client has the file with this tag.
fn is_known(request: &Request, tag: &str) -> bool {
    let known = request.headers.get_all(IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    known
        .flat_map(|list| list.split(','))
        .any(|one| one.trim() == tag || one.trim() == "*")
}

#[cfg(test)]
mod tests;
