// SPDX-License-Identifier: Apache-2.0

//! What a user can do about a handshake that failed. The texts of rustls name only the reason.

use std::io;

use rustls::CertificateError;

/// A failed handshake with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{reason}: {remedy}")]
struct RemediableHandshake {
    reason: rustls::Error,
    remedy: &'static str,
}

/// Adds the remedy to the error of a client's handshake, if there is one.
pub(in crate::net) fn with_remedy(error: io::Error) -> io::Error {
    let inner = error.get_ref();
    let reason = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let found = reason.and_then(|reason| {
        let remedy = remedy(reason)?;
        let reason = reason.clone();
        Some(RemediableHandshake { reason, remedy })
    });
    match found {
        Some(found) => io::Error::new(error.kind(), found),
        None => error,
    }
}

fn remedy(reason: &rustls::Error) -> Option<&'static str> {
    let rustls::Error::InvalidCertificate(reason) = reason else {
        return None;
    };
    match reason {
        CertificateError::UnknownIssuer => Some(
            "no trusted authority has signed the certificate of the server: set `ca_file` to the authority that has",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some("use a name of the certificate in the endpoint, or set `server_name_override` to one")
        }
        // The library has no variant for it.
        CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => Some(
            "the server shows the certificate of an authority, as self-signed ones often are: give it a certificate \
             with `CA:FALSE`, self-signed or signed by the authority in `ca_file`",
        ),
        _ => None,
    }
}
