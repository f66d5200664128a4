//! Authenticators: `basicauth` (RFC 7617) and `bearertokenauth` (RFC 6750), for receivers and for exporters.

pub mod basic;
pub mod bearer;
mod htpasswd;
mod watched;

/// SHA-256: secrets are compared by digest, so that how long it takes tells nothing about them.
fn digest(secret: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}
