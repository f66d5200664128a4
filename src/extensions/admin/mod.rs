//! `admin`: composites as JSON, as they are at the moment of asking.
//!
//! `GET /api/v1/composites` lists all label sets of all composites, `GET /api/v1/composites/NAME` those of one.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_engine::{Answer as Reading, AttributeValue, Attributes, Composite, UnixNanos};

use super::server::{self, Answer, PageServer};
use crate::component::{
    ComponentError, ConfigType, Context, Extension, ExtensionFactory, Factory, Lifecycle, unix_now,
};
use crate::config::nearest;
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig};

/// The list of composites; below it, one by name.
const COMPOSITES: &str = "/api/v1/composites";

/// Where the pages are.
const PORT: u16 = 8080;

crate::options! {
    /// Options of the `admin` extension.
    pub struct Config {
        /// Where to listen. Whoever can connect can read.
        pub endpoint: Endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: PORT },
        /// The socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// TLS; unset: none.
        pub tls: Option<TlsServerConfig> = None,
    }
}

/// The factory of `admin`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "admin",
    aliases: &[],
    signals: &[],
    help: "serves the current values of composites as JSON",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        Ok(Arc::new(Admin {
            config: settings.get(),
            base: cx,
            server: PageServer::default(),
        }))
    },
};

struct Admin {
    config: Arc<Config>,
    base: Context,
    server: PageServer,
}

impl Extension for Admin {}

#[async_trait]
impl Lifecycle for Admin {
    async fn start(&self) -> Result<(), ComponentError> {
        let shared = self.base.shared.clone();
        let page = move |path: &str| page(path, &shared.composites.list(), unix_now());
        let place = (&self.config.endpoint, &self.config.socket);
        self.server
            .start(&self.base, place, self.config.tls.as_ref(), page)
            .await
    }

    async fn stop(&self, deadline: Instant) {
        self.server.stop(deadline).await;
    }
}

fn page(path: &str, composites: &[Arc<Composite>], now: UnixNanos) -> Answer {
    match path.strip_prefix(COMPOSITES) {
        Some("" | "/") => server::json(StatusCode::OK, &label_sets(composites.iter(), now)),
        Some(rest) if rest.starts_with('/') => one(rest.trim_start_matches('/'), composites, now),
        _ => not_found(format!("nothing here; composites are at {COMPOSITES}"), None),
    }
}

fn one(name: &str, composites: &[Arc<Composite>], now: UnixNanos) -> Answer {
    // Pipelines may each have a composite of the same name.
    let mut named = composites
        .iter()
        .filter(|composite| &*composite.declaration().name == name)
        .peekable();
    if named.peek().is_some() {
        return server::json(StatusCode::OK, &label_sets(named, now));
    }
    let names = composites.iter().map(|composite| &*composite.declaration().name);
    not_found(format!("no composite is named {name:?}"), nearest(name, names))
}

fn not_found(error: String, near: Option<&str>) -> Answer {
    let body = match near {
        Some(near) => json!({"error": error, "did_you_mean": near}),
        None => json!({"error": error}),
    };
    server::json(StatusCode::NOT_FOUND, &body)
}

fn label_sets<'a>(composites: impl Iterator<Item = &'a Arc<Composite>>, now: UnixNanos) -> Value {
    let sets = composites.flat_map(|composite| {
        let name = &composite.declaration().name;
        composite
            .read(now)
            .into_iter()
            .map(|reading| label_set(name, &reading))
    });
    Value::Array(sets.collect())
}

/// `value` and `age_ms` are null where there is none.
fn label_set(name: &str, reading: &Reading) -> Value {
    json!({
        "name": name,
        "labels": labels(&reading.attributes),
        "value": reading.value,
        "window": humantime::format_duration(reading.window).to_string(),
        "count": reading.count,
        "age_ms": reading.age.map(|age| age.as_secs_f64() * 1e3),
        "state": reading.state.name(),
        "sources": {"reporting": reading.sources_reporting, "expected": reading.sources_expected},
    })
}

fn labels(attributes: &Attributes) -> Value {
    let entries = attributes
        .iter()
        .map(|(key, value)| (key.to_string(), label(value)));
    Value::Object(Map::from_iter(entries))
}

fn label(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Empty => Value::Null,
        AttributeValue::Str(text) => text.as_ref().into(),
        AttributeValue::Bool(truth) => (*truth).into(),
        AttributeValue::Int(number) => (*number).into(),
        AttributeValue::Double(number) => (*number).into(),
        AttributeValue::Bytes(bytes) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
        AttributeValue::Array(values) => values.iter().map(label).collect(),
        AttributeValue::Map(map) => labels(map),
    }
}

#[cfg(test)]
mod tests;
