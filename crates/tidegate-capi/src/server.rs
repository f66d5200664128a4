// SPDX-License-Identifier: Apache-2.0

//! `/metrics`, `/health` and `/live` over HTTP.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_metrics::{HttpServer, serve_http};

use crate::arguments::{borrow, copy_text, give, release, retain, text};
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};

/// A server for the pages of a registry.
pub struct tg_server {
    server: Mutex<Option<HttpServer>>,
    /// The process that its thread is in: a fork takes no threads along.
    process: u32,
}

impl tg_server {
    pub(crate) fn start(registry: &tg_registry, address: &str) -> Result<Self, Failure> {
        let server = serve_http(Arc::new(registry.scope().clone()), address)?;
        Ok(Self {
            server: Mutex::new(Some(server)),
            process: std::process::id(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<HttpServer>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let server = self.lock().take();
        if self.process != std::process::id() {
            // Its thread is in another process; a wait for it here would not end.
            std::mem::forget(server);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&HttpServer) -> T) -> Result<T, Failure> {
        let server = self.lock();
        let server = server.as_ref().ok_or_else(|| Failure::none("it has stopped"))?;
        Ok(act(server))
    }
}

impl Drop for tg_server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves /metrics, /health and /live at "host:port" ("0.0.0.0:9090"; port 0: any that is free), on a thread of its own,
/// until it is stopped. It owns the registry as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_serve_http(
    registry: *const tg_registry,
    address: *const c_char,
    server: *mut *mut tg_server,
) -> tg_status {
    let serve = || {
        // SAFETY: the contract of the header, here and below.
        let registry = unsafe { borrow(registry, "registry") }?;
        let address = unsafe { text(address, "address") }?;
        tg_server::start(registry, address)
    };
    guard(|| unsafe { give(server, serve) })
}

/// Writes where it listens ("127.0.0.1:9090") to `buffer`, with a NUL; 64 bytes are enough. TG_NONE: it has stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_address(
    server: *const tg_server,
    buffer: *mut c_char,
    capacity: usize,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let address = unsafe { borrow(server, "server") }?.with(HttpServer::address)?;
        unsafe { copy_text(&address.to_string(), buffer, capacity, std::ptr::null_mut()) }
    })
}

/// Sets the answer of /health for the program as a whole. TG_NONE: the server has stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_set_ready(server: *const tg_server, is_ready: bool) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { borrow(server, "server") }?.with(|server| server.health().set_ready(is_ready)))
}

/// Sets the answer of /health for an endpoint of the program. TG_NONE: the server has stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_set_endpoint(
    server: *const tg_server,
    name: *const c_char,
    is_ready: bool,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let server = unsafe { borrow(server, "server") }?;
        let name = unsafe { text(name, "name") }?;
        server.with(|server| server.health().set_endpoint(name, is_ready))
    })
}

/// Stops it, even where others own it: the port is free when this returns. To stop it twice does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_stop(server: *const tg_server) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        unsafe { borrow(server, "server") }?.stop();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_retain(server: *const tg_server) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(server) }
}

/// One owner less. With the last one it stops.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_server_release(server: *const tg_server) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(server) }
}
