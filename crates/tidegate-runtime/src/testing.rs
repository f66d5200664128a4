// SPDX-License-Identifier: Apache-2.0

//! Ports for tests.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below the ports that Linux gives to outgoing connections and to listeners on port 0. One of those could otherwise take a
/// port before its user has bound it, or while a server is away.
const PORTS: Range<u32> = 10_000..32_000;

/// The distance of the first ports of two successive processes: tests that run side by side rarely meet.
const STEP: u32 = 911;

/// A port of 127.0.0.1 that is free now and that no other call in this process gets.
pub fn free_port() -> u16 {
    free_port_of("127.0.0.1")
}

/// The same for another address of this machine.
///
/// # Panics
/// No port is free.
pub fn free_port_of(host: &str) -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let ports = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_mul(STEP);
    for _ in PORTS {
        let call = CALLS.fetch_add(1, Relaxed);
        let port = (PORTS.start + first.wrapping_add(call) % ports) as u16; // below 32,000
        let address = (host, port);
        // A child that another test starts has a copy of the listener until it executes its program, and takes the port.
        if TcpListener::bind(address).map(drop).is_ok() && TcpStream::connect(address).is_err() {
            return port;
        }
    }
    panic!("no port of {host} is free")
}
