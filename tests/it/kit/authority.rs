// SPDX-License-Identifier: Apache-2.0

//! Certificates of a test's own.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority, and what it needs to sign certificates.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        let names = &mut parameters.distinguished_name;
        names.push(DnType::CommonName, "authority of a test");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            certificate: parameters.self_signed(&key).expect("a certificate"),
            issuer: Issuer::new(parameters, key),
        }
    }

    /// Writes its certificate.
    pub(crate) fn write(&self, file: &Path) {
        fs::write(file, self.certificate.pem()).expect("a file of the test");
    }

    /// Writes a certificate for `localhost`, and its key.
    pub(crate) fn write_signed(&self, certificate: &Path, key: &Path) {
        let pair = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let signed = parameters.signed_by(&pair, &self.issuer).expect("a certificate");
        fs::write(certificate, signed.pem()).expect("a file of the test");
        fs::write(key, pair.serialize_pem()).expect("a file of the test");
    }

    /// Clients that trust it.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = self.certificate.der().clone();
        roots.add(authority).expect("a certificate of an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }
}
