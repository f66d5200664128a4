// SPDX-License-Identifier: Apache-2.0

//! Authenticators: `basicauth` (RFC 7617) and `bearertokenauth` (RFC 6750) for receivers and for exporters,
//! `headers_setter` and `sigv4auth` for exporters.

mod attempts;
pub mod basic;
pub mod bearer;
pub mod headers_setter;
mod htpasswd;
pub mod sigv4;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::net::reload::Reloading;

/// A file with secrets.
type SecretFile = Reloading<Arc<str>, String>;

/// The interval of checks of files.
const LOOK: Duration = Duration::from_secs(1);

fn secret_file(path: &Path) -> SecretFile {
    Reloading::text(path, LOOK)
}

/// SHA-256. Secrets are compared by digest, so that the time of the comparison reveals nothing.
fn digest(secret: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}
