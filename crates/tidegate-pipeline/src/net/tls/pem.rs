// SPDX-License-Identifier: Apache-2.0

//! Certificates and keys as PEM, from files or from the configuration.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_config::{Node, Problems, Secret};

use super::TlsError;
use crate::component::files;

/// The largest PEM file, in bytes. Large bundles of authorities have some hundreds of KiB.
const MAX_PEM_BYTES: usize = 8 << 20;

/// A certificate and its key, each from a file or from text.
pub(super) struct KeyPair<'a> {
    pub(super) cert_file: Option<&'a Path>,
    pub(super) cert_pem: Option<&'a Secret>,
    pub(super) key_file: Option<&'a Path>,
    pub(super) key_pem: Option<&'a Secret>,
}

pub(super) type CertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl<'a> KeyPair<'a> {
    fn certificate(&self) -> Option<Pem<'a>> {
        Pem::of(("cert_file", self.cert_file), ("cert_pem", self.cert_pem))
    }

    fn key(&self) -> Option<Pem<'a>> {
        Pem::of(("key_file", self.key_file), ("key_pem", self.key_pem))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.certificate().is_none() && self.key().is_none()
    }

    pub(super) fn check(&self, at: &Node, cx: &mut Problems) {
        if self.certificate().is_some() != self.key().is_some() {
            cx.at(at).error("must include both certificate and key");
        }
        let doubles = [
            ("cert_pem", self.cert_file.is_some() && self.cert_pem.is_some()),
            ("key_pem", self.key_file.is_some() && self.key_pem.is_some()),
        ];
        for (key, _) in doubles.iter().filter(|(_, double)| *double) {
            cx.at(at.child(key))
                .error("provide either a file or the PEM-encoded string, but not both");
        }
    }

    pub(super) fn read(&self) -> Result<Option<CertificateAndKey>, TlsError> {
        let (Some(certificate), Some(key)) = (self.certificate(), self.key()) else {
            return Ok(None);
        };
        let chain = certificates(certificate)?;
        let private = key
            .bytes()
            .and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes));
        let private = private.map_err(|source| key.error("a private key", source))?;
        Ok(Some((chain, private)))
    }
}

/// The source of PEM text, with the name of its option.
#[derive(Clone, Copy)]
pub(super) enum Pem<'a> {
    File(&'static str, &'a Path),
    Text(&'static str, &'a Secret),
}

impl<'a> Pem<'a> {
    fn of(
        (file_option, file): (&'static str, Option<&'a Path>),
        (text_option, text): (&'static str, Option<&'a Secret>),
    ) -> Option<Self> {
        file.map(|file| Self::File(file_option, file))
            .or_else(|| text.map(|text| Self::Text(text_option, text)))
    }

    fn bytes(self) -> Result<Cow<'a, [u8]>, pem::Error> {
        match self {
            Self::File(_, file) => files::read(file, MAX_PEM_BYTES)
                .map(Cow::Owned)
                .map_err(pem::Error::Io),
            Self::Text(_, text) => Ok(Cow::Borrowed(text.expose().as_bytes())),
        }
    }

    fn error(self, what: &'static str, source: pem::Error) -> TlsError {
        TlsError::Pem {
            what,
            place: self.to_string(),
            source,
        }
    }
}

impl fmt::Display for Pem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(option, file) => write!(f, "{} (`{option}`)", file.display()),
            Self::Text(option, _) => write!(f, "`{option}`"),
        }
    }
}

pub(super) fn certificates(pem: Pem<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let of = |bytes: Cow<'_, [u8]>| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let read = pem.bytes().and_then(of);
    let read = read.map_err(|source| pem.error("a certificate", source))?;
    if read.is_empty() {
        Err(TlsError::NoCertificate(pem.to_string()))
    } else {
        Ok(read)
    }
}
