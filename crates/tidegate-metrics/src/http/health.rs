// SPDX-License-Identifier: Apache-2.0

//! Whether the program is ready.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Whether the program is ready, as a whole and by endpoint. Ready by default.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    parts: Mutex<Parts>,
}

#[derive(Debug)]
struct Parts {
    is_ready: bool,
    endpoints: BTreeMap<String, bool>,
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Inner {
            started: Instant::now(),
            parts: Mutex::new(Parts {
                is_ready: true,
                endpoints: BTreeMap::new(),
            }),
        }))
    }
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program as a whole is ready, or not.
    pub fn set_ready(&self, is_ready: bool) {
        self.lock().is_ready = is_ready;
    }

    /// An endpoint is ready, or not.
    pub fn set_endpoint(&self, name: &str, is_ready: bool) {
        self.lock().endpoints.insert(name.to_owned(), is_ready);
    }

    /// The endpoint has gone.
    pub fn remove_endpoint(&self, name: &str) {
        self.lock().endpoints.remove(name);
    }

    /// Whether the program and all its endpoints are ready.
    pub fn is_ready(&self) -> bool {
        let parts = self.lock();
        parts.is_ready && parts.endpoints.values().all(|is_ready| *is_ready)
    }

    /// The answer of `/health`: as Dynamo's status server gives it.
    pub(super) fn json(&self) -> (bool, String) {
        let is_ready = self.is_ready();
        let endpoints: Vec<String> = self
            .lock()
            .endpoints
            .iter()
            .map(|(name, is_ready)| format!("{}:\"{}\"", quoted(name), word(*is_ready)))
            .collect();
        let (status, uptime, endpoints) = (word(is_ready), self.uptime(), endpoints.join(","));
        let text = format!("{{\"status\":\"{status}\",\"uptime\":{uptime},\"endpoints\":{{{endpoints}}}}}\n");
        (is_ready, text)
    }

    /// The answer of `/live`.
    pub(super) fn live_json(&self) -> String {
        format!("{{\"status\":\"live\",\"uptime\":{}}}\n", self.uptime())
    }

    fn uptime(&self) -> String {
        let up = self.0.started.elapsed();
        format!("{{\"secs\":{},\"nanos\":{}}}", up.as_secs(), up.subsec_nanos())
    }
}

fn word(is_ready: bool) -> &'static str {
    if is_ready { "ready" } else { "notready" }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c < ' ' => {
                // A String takes everything.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
