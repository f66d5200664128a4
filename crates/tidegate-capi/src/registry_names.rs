// SPDX-License-Identifier: Apache-2.0

//! Registries by a word, so that one setting of a program says where its metrics go.

#![allow(unsafe_code)]

use std::env;
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use tidegate_metrics::{Null, Otel, Prometheus, Protocol};

use crate::arguments::{give, optional_text};
use crate::otel::pushing;
use crate::registry::tg_registry;
use crate::server::tg_server;
use crate::status::{Failure, guard, tg_status};

/// Where metrics go when the program does not say.
const VARIABLE: &str = "TIDEGATE_REGISTRY";

/// The directory of `shm` without one.
const DIRECTORY: &str = "TIDEGATE_CELLS_DIR";

/// The registry of a place: "prometheus", or "prometheus://host:port", which serves its page there until it is released;
/// "shm:/dev/shm/metrics", or "shm" for the directory in TIDEGATE_CELLS_DIR; "otlp" by the environment variables of
/// OpenTelemetry, "otlp://host:port" and "otlps://..." over gRPC, "otlp+http://..." and "otlp+https://..." over HTTP;
/// "null"; several of them with commas. NULL or empty: what TIDEGATE_REGISTRY says, else "prometheus".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_at(place: *const c_char, registry: *mut *mut tg_registry) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header.
        let place = unsafe { optional_text(place, "place") }?;
        let place = place.map(str::to_owned).filter(|place| !place.is_empty());
        let place = place.or_else(|| variable(VARIABLE));
        at(&place.unwrap_or_else(|| "prometheus".to_owned()))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, make) })
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn at(places: &str) -> Result<tg_registry, Failure> {
    let one_by_one = places.split(',').map(|place| one(place.trim()));
    let mut registries = one_by_one.collect::<Result<Vec<_>, _>>()?;
    if registries.len() == 1 {
        return Ok(registries.remove(0));
    }
    let mut fanout = tg_registry::fanout(&registries);
    fanout.servers = registries
        .into_iter()
        .flat_map(|registry| registry.servers)
        .collect();
    Ok(fanout)
}

fn one(place: &str) -> Result<tg_registry, Failure> {
    let (scheme, rest) = place.split_once(':').unwrap_or((place, ""));
    match scheme {
        "prometheus" => prometheus(rest),
        "shm" => {
            // Like a URL's, a path may have an empty host before it.
            let path = Some(rest.strip_prefix("//").unwrap_or(rest).to_owned());
            let path = path
                .filter(|path| !path.is_empty())
                .or_else(|| variable(DIRECTORY));
            let path =
                path.ok_or_else(|| Failure::invalid(format!("no directory, and {DIRECTORY} is not set")))?;
            tg_registry::in_directory(Path::new(&path), &[])
        }
        "otlp" => otlp("http", rest, Protocol::Grpc),
        "otlps" => otlp("https", rest, Protocol::Grpc),
        "otlp+http" => otlp("http", rest, Protocol::Http),
        "otlp+https" => otlp("https", rest, Protocol::Http),
        "null" if rest.is_empty() => Ok(tg_registry::of(Null::new())),
        _ => Err(Failure::invalid(format!(
            "`{place}` is not a place for metrics: expected prometheus, shm, otlp, otlps, otlp+http, otlp+https or null"
        ))),
    }
}

fn prometheus(rest: &str) -> Result<tg_registry, Failure> {
    let mut registry = tg_registry::of(Prometheus::new());
    if !rest.is_empty() {
        let address = rest
            .strip_prefix("//")
            .map(|address| address.trim_end_matches('/'));
        let meant = || Failure::invalid(format!("prometheus:{rest}: expected prometheus://host:port"));
        let server = tg_server::start(&registry, address.ok_or_else(meant)?)?;
        registry.servers.push(Arc::new(server));
    }
    Ok(registry)
}

fn otlp(scheme: &str, rest: &str, protocol: Protocol) -> Result<tg_registry, Failure> {
    let builder = Otel::builder().env()?;
    pushing(match rest {
        "" => builder,
        rest => builder.endpoint(format!("{scheme}:{rest}")).protocol(protocol),
    })
}
