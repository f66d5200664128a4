// SPDX-License-Identifier: Apache-2.0

//! The registry that pushes to an OpenTelemetry collector.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tidegate_metrics::{Otel, OtelBuilder, Protocol, Temporality};

use crate::arguments::{Growing, borrow, give, growing, labels, nanos, optional_text, output, tg_label};
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};

/// How a tg_registry_otel pushes. Zero is the default of every field; TG_OTEL() makes one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_otel_options {
    /// sizeof(tg_otel_options).
    pub size: usize,
    /// http://host:port or https://host:port. NULL: what the environment variables of OpenTelemetry say, or
    /// http://127.0.0.1:4317. Those variables hold for whatever is not said here.
    pub endpoint: *const c_char,
    /// A tg_otel_protocol.
    pub protocol: u32,
    /// A tg_otel_temporality.
    pub temporality: u32,
    /// Between two pushes; 0: a minute.
    pub interval_ns: u64,
    /// A push may take so long; 0: ten seconds.
    pub timeout_ns: u64,
    /// Headers of each push.
    pub headers: *const tg_label,
    /// How many headers.
    pub header_count: usize,
    /// Attributes of the resource: "service.name" and the like.
    pub resource: *const tg_label,
    /// How many attributes.
    pub resource_count: usize,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_otel_options {}

/// How pushes travel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_otel_protocol {
    /// As the environment says, or gRPC.
    TG_OTEL_PROTOCOL_DEFAULT = 0,
    /// gRPC.
    TG_OTEL_GRPC = 1,
    /// HTTP with protobuf, to /v1/metrics below the endpoint.
    TG_OTEL_HTTP = 2,
}

/// The range of values that a pushed point covers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_otel_temporality {
    /// As the environment says, or cumulative.
    TG_OTEL_TEMPORALITY_DEFAULT = 0,
    /// Everything since the registry was made.
    TG_OTEL_CUMULATIVE = 1,
    /// The increase since the last accepted push. Up-down counters stay cumulative.
    TG_OTEL_DELTA = 2,
}

/// Keeps values in memory and pushes them to an OpenTelemetry collector, on a thread of its own. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_otel(
    options: *const tg_otel_options,
    registry: *mut *mut tg_registry,
) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, || otel(options)) })
}

/// # Safety
/// As of [`tg_registry_otel`].
unsafe fn otel(options: *const tg_otel_options) -> Result<tg_registry, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { growing(options, "options") }?;
    let mut builder = Otel::builder().env()?;
    // SAFETY: as above.
    if let Some(endpoint) = unsafe { optional_text(options.endpoint, "endpoint") }? {
        builder = builder.endpoint(endpoint);
    }
    builder = match options.protocol {
        0 => builder,
        1 => builder.protocol(Protocol::Grpc),
        2 => builder.protocol(Protocol::Http),
        other => return Err(Failure::invalid(format!("`protocol`: {other} is none"))),
    };
    builder = match options.temporality {
        0 => builder,
        1 => builder.temporality(Temporality::Cumulative),
        2 => builder.temporality(Temporality::Delta),
        other => return Err(Failure::invalid(format!("`temporality`: {other} is none"))),
    };
    if options.interval_ns > 0 {
        builder = builder.interval(nanos(options.interval_ns));
    }
    if options.timeout_ns > 0 {
        builder = builder.timeout(nanos(options.timeout_ns));
    }
    // SAFETY: as above.
    for (name, value) in unsafe { labels(options.headers, options.header_count, "headers") }? {
        builder = builder.header(name, value);
    }
    // SAFETY: as above.
    for (key, value) in unsafe { labels(options.resource, options.resource_count, "resource") }? {
        builder = builder.resource(key, value);
    }
    pushing(builder)
}

/// A registry that pushes, and tells how that went.
pub(crate) fn pushing(builder: OtelBuilder) -> Result<tg_registry, Failure> {
    let otel = builder.build()?;
    let mut registry = tg_registry::of(otel.clone());
    registry.otel = Some(otel);
    Ok(registry)
}

/// How many pushes failed so far (the next successful push carries their values), and how many points the collector
/// received and refused. TG_INVALID: it is not a registry that pushes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_push_failures(
    registry: *const tg_registry,
    failed_pushes: *mut u64,
    rejected_points: *mut u64,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let failed = unsafe { output(failed_pushes, 0, "failed_pushes") }?;
        let rejected = unsafe { output(rejected_points, 0, "rejected_points") }?;
        let otel = unsafe { borrow(registry, "registry") }?.otel.as_ref();
        let otel = otel.ok_or_else(|| Failure::invalid("the registry does not push"))?;
        (*failed, *rejected) = (otel.failed_pushes(), otel.rejected_points());
        Ok(())
    })
}
