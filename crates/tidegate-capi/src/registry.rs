// SPDX-License-Identifier: Apache-2.0

//! Registries: where instruments are registered, and what becomes of what they record.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use tidegate_metrics::text::{Format, render};
use tidegate_metrics::{Fanout, Foreign, ForeignVtable, MetricsRegistry, Null, Otel, Prometheus, Scope, Shm};

use crate::arguments::{
    Growing, array, borrow, copy_text, give, growing, labels, nanos, optional_text, release, retain, text,
    tg_label,
};
use crate::server::tg_server;
use crate::status::{Failure, guard, tg_status};

/// Where instruments are registered. Several threads may use one at once.
pub struct tg_registry {
    scope: Scope,
    shm: Option<Shm>,
    pub(crate) otel: Option<Otel>,
    /// Serve its page as long as it is there.
    pub(crate) servers: Vec<Arc<tg_server>>,
}

impl tg_registry {
    pub(crate) fn of(registry: impl MetricsRegistry + 'static) -> Self {
        Self {
            scope: Scope::new(Arc::new(registry)),
            shm: None,
            otel: None,
            servers: Vec::new(),
        }
    }

    pub(crate) fn in_directory(directory: &Path, resource: &[(&str, &str)]) -> Result<Self, Failure> {
        let shm = Shm::create(directory, resource)?;
        let mut registry = Self::of(shm.clone());
        registry.shm = Some(shm);
        Ok(registry)
    }

    pub(crate) fn fanout<'a>(behind: impl IntoIterator<Item = &'a Self>) -> Self {
        let scope = |registry: &'a Self| {
            let registry: Arc<dyn MetricsRegistry> = Arc::new(registry.scope.clone());
            registry
        };
        Self::of(Fanout::new(behind.into_iter().map(scope).collect()))
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }
}

/// The prefixes and labels that a scope adds. Zero is the default of every field; TG_SCOPE() makes one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_scope {
    /// sizeof(tg_scope).
    pub size: usize,
    /// Before all names, joined by "_"; NULL: none.
    pub prefix: *const c_char,
    /// Labels of all series.
    pub labels: *const tg_label,
    /// How many labels.
    pub label_count: usize,
    /// The label dynamo_namespace; NULL: as it is.
    pub level_namespace: *const c_char,
    /// The label dynamo_component; NULL: as it is.
    pub level_component: *const c_char,
    /// The label dynamo_endpoint; NULL: as it is.
    pub level_endpoint: *const c_char,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_scope {}

/// A format of pages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_format {
    /// Prometheus' own text, version 0.0.4.
    TG_PROMETHEUS_TEXT = 0,
    /// OpenMetrics 1.0.0.
    TG_OPENMETRICS = 1,
}

/// Keeps values in memory, for pages. Of a family `max_series` are kept apart, further ones share one that says
/// otel_metric_overflow="true"; 0: 2000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_prometheus(
    max_series: usize,
    registry: *mut *mut tg_registry,
) -> tg_status {
    let make = || {
        Ok(tg_registry::of(match max_series {
            0 => Prometheus::new(),
            max_series => Prometheus::with_max_series(max_series),
        }))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, make) })
}

/// Keeps values in a new file of `directory`, which is made if it is not there: any process of the node that uses the
/// directory sees what all of them recorded, and it outlives the process. `resource` says what the process is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_shm(
    directory: *const c_char,
    resource: *const tg_label,
    resource_count: usize,
    registry: *mut *mut tg_registry,
) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header.
        let directory = unsafe { text(directory, "directory") }?;
        // SAFETY: as above.
        let resource = unsafe { labels(resource, resource_count, "resource") }?;
        tg_registry::in_directory(Path::new(directory), &resource)
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, make) })
}

/// Keeps nothing: its instruments do nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_null(registry: *mut *mut tg_registry) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, || Ok(tg_registry::of(Null::new()))) })
}

/// Passes everything on to several registries, of which it becomes an owner. Reads return the values of the first
/// registry that keeps values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_fanout(
    registries: *const *const tg_registry,
    count: usize,
    registry: *mut *mut tg_registry,
) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header.
        let registries = unsafe { array(registries, count, "registries") }?;
        // SAFETY: as above.
        let behind = registries.iter().map(|one| unsafe { borrow(*one, "registries") });
        let behind = behind.collect::<Result<Vec<&tg_registry>, _>>()?;
        Ok(tg_registry::fanout(behind))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, make) })
}

/// Passes everything on to a table of functions. Values are kept here as well: they can be read back, and composites and
/// callbacks work. The table is copied; its `release` is called when the registry and all its instruments are gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_foreign(
    table: *const ForeignVtable,
    registry: *mut *mut tg_registry,
) -> tg_status {
    let make = || {
        if table.is_null() {
            return Err(Failure::null("table"));
        }
        // SAFETY: the contract of the header.
        let foreign = unsafe { Foreign::new(table) };
        foreign
            .map(tg_registry::of)
            .ok_or_else(|| Failure::invalid("`table`: `size` is not set"))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, make) })
}

/// The same registry with a prefix before all names and labels on all series, on top of those of `parent`. A level of
/// the hierarchy (namespace, component, endpoint) that is set leaves those below it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_scope(
    parent: *const tg_registry,
    scope: *const tg_scope,
    registry: *mut *mut tg_registry,
) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(registry, || within(borrow(parent, "parent")?, scope)) })
}

/// # Safety
/// As of [`tg_registry_scope`].
unsafe fn within(parent: &tg_registry, given: *const tg_scope) -> Result<tg_registry, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { growing(given, "scope") }?;
    let mut scope = parent.scope.clone();
    // SAFETY: as above.
    if let Some(prefix) = unsafe { optional_text(given.prefix, "prefix") }? {
        scope = scope.prefix(prefix);
    }
    // SAFETY: as above.
    for (key, value) in unsafe { labels(given.labels, given.label_count, "labels") }? {
        scope = scope.label(key, value);
    }
    // SAFETY: as above.
    if let Some(name) = unsafe { optional_text(given.level_namespace, "level_namespace") }? {
        scope = scope.namespace(name);
    }
    // SAFETY: as above.
    if let Some(name) = unsafe { optional_text(given.level_component, "level_component") }? {
        scope = scope.component(name);
    }
    // SAFETY: as above.
    if let Some(name) = unsafe { optional_text(given.level_endpoint, "level_endpoint") }? {
        scope = scope.endpoint(name);
    }
    Ok(tg_registry {
        scope,
        shm: parent.shm.clone(),
        otel: parent.otel.clone(),
        servers: parent.servers.clone(),
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_retain(registry: *const tg_registry) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(registry) }
}

/// One owner less. Instruments that were made with it stay usable; once the last owner is gone, nothing shows their
/// values any more (in shared memory, other processes do).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_release(registry: *const tg_registry) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(registry) }
}

/// Writes all values as a page to `buffer`, with a NUL. `needed` (may be NULL) receives how many bytes that takes; with
/// less room the answer is TG_TOO_SMALL. `format` is a tg_format. A page may grow between two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_expose(
    registry: *const tg_registry,
    format: u32,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let registry = unsafe { borrow(registry, "registry") }?;
        let format = match format {
            0 => Format::Prometheus,
            1 => Format::OpenMetrics,
            other => return Err(Failure::invalid(format!("`format`: {other} is none"))),
        };
        let page = render(&registry.scope.gather(), format);
        // SAFETY: as above.
        unsafe { copy_text(&page, buffer, capacity, needed) }
    })
}

/// Gets out what was recorded until now, within so much time. Only registries that push have to do anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_flush(registry: *const tg_registry, within_ns: u64) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| {
        Ok(unsafe { borrow(registry, "registry") }?
            .scope
            .flush(nanos(within_ns))?)
    })
}

/// Pushes the values that were recorded until now, and stops. Later values go nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_shutdown(registry: *const tg_registry, within_ns: u64) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| {
        Ok(unsafe { borrow(registry, "registry") }?
            .scope
            .shutdown(nanos(within_ns))?)
    })
}

/// Puts the values of dead processes of a shared directory into one file, and removes their files `grace_ns` after
/// they died. TG_INVALID: it is not a registry of a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_fold(registry: *const tg_registry, grace_ns: u64) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let registry = unsafe { borrow(registry, "registry") }?;
        let shm = registry.shm.as_ref();
        let shm = shm.ok_or_else(|| Failure::invalid("only registries of a shared directory fold"))?;
        Ok(shm.fold(nanos(grace_ns))?)
    })
}
