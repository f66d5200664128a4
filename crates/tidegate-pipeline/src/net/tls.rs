// SPDX-License-Identifier: Apache-2.0

//! TLS with rustls and the Collector's option names, for servers and clients.

mod pem;
mod remedy;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use self::pem::{KeyPair, Pem, certificates};
pub(super) use self::remedy::with_remedy;
use super::reload::Reloading;
use crate::component::{ComponentError, Context};
use tidegate_config::{Node, Problems, Secret};

/// The ALPN of HTTP/2 with a fallback to HTTP/1.1.
pub const ALPN_HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];
/// The ALPN of clients that must use HTTP/1.1.
pub const ALPN_HTTP1: &[&[u8]] = &[b"http/1.1"];
/// ALPN of gRPC.
pub const ALPN_GRPC: &[&[u8]] = &[b"h2"];

/// The default interval of checks. Certificates are renewed days before they expire.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

tidegate_config::choices! {
    /// A version of TLS. Older ones are broken.
    pub enum TlsVersion {
        /// RFC 5246.
        V12 = "1.2",
        /// RFC 8446.
        V13 = "1.3",
    }
}

tidegate_config::options! {
    /// TLS of a server: the Collector's `tls` block.
    pub struct TlsServerConfig {
        /// Certificate chain, PEM.
        pub cert_file: Option<PathBuf> = None,
        /// Certificate chain as PEM text instead of a file.
        pub cert_pem: Option<Secret> = None,
        /// Private key, PEM.
        pub key_file: Option<PathBuf> = None,
        /// Private key as PEM text instead of a file.
        pub key_pem: Option<Secret> = None,
        /// Clients must show a certificate signed by one of these (mutual TLS), PEM.
        pub client_ca_file: Option<PathBuf> = None,
        /// Oldest accepted version.
        pub min_version: TlsVersion = TlsVersion::V12,
        /// Newest accepted version.
        pub max_version: TlsVersion = TlsVersion::V13,
        /// How often the files are looked at for changes; 0 = never again. Connections keep what they began with.
        pub reload_interval: Duration = RELOAD_INTERVAL,
    }
    check = TlsServerConfig::check
}

tidegate_config::options! {
    /// TLS of a client: the Collector's `tls` block.
    pub struct TlsClientConfig {
        /// No TLS at all (gRPC, where no scheme says it).
        pub insecure: bool = false,
        /// TLS without a check of the server's certificate. For tests.
        pub insecure_skip_verify: bool = false,
        /// Trust these authorities instead of the system's, PEM.
        pub ca_file: Option<PathBuf> = None,
        /// The authorities as PEM text instead of a file.
        pub ca_pem: Option<Secret> = None,
        /// Trust the system's authorities as well where `ca_file` or `ca_pem` is given.
        pub include_system_ca_certs_pool: bool = false,
        /// Client certificate chain, PEM.
        pub cert_file: Option<PathBuf> = None,
        /// Client certificate chain as PEM text instead of a file.
        pub cert_pem: Option<Secret> = None,
        /// Private key of the client certificate, PEM.
        pub key_file: Option<PathBuf> = None,
        /// Private key as PEM text instead of a file.
        pub key_pem: Option<Secret> = None,
        /// The name that the server's certificate must carry, where it is not the endpoint's host.
        pub server_name_override: Option<String> = None,
        /// Oldest accepted version.
        pub min_version: TlsVersion = TlsVersion::V12,
        /// Newest accepted version.
        pub max_version: TlsVersion = TlsVersion::V13,
        /// How often the files are looked at for changes; 0 = never again. Connections keep what they began with.
        pub reload_interval: Duration = RELOAD_INTERVAL,
    }
    check = TlsClientConfig::check
}

/// The error of a TLS setup.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file or text can't be read, or has no such content.
    #[error("can't read {what} from {place}: {source}")]
    Pem {
        /// `a certificate`, `a private key`.
        what: &'static str,
        /// The file, or the option with the text.
        place: String,
        /// The error.
        source: rustls::pki_types::pem::Error,
    },
    /// A PEM file without a certificate.
    #[error("no certificate in {0}")]
    NoCertificate(String),
    /// The parts don't match, or the library refuses them.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// The client authorities are unusable.
    #[error("client_ca_file: {0}")]
    ClientVerifier(#[from] rustls::server::VerifierBuilderError),
    /// The name to verify is neither a DNS name nor an address.
    #[error("server_name_override: {0:?} is not a host name")]
    ServerName(String),
}

/// The current TLS setup of a server.
pub type TlsServer = Reloading<Arc<ServerConfig>, TlsError>;
/// The current TLS setup of a client.
pub type TlsClient = Reloading<Arc<ClientConfig>, TlsError>;

/// Builds a value from files, and again after changes. 0 disables the checks.
fn reloading<T: Clone + Send + 'static>(
    files: [&Option<PathBuf>; 3],
    interval: Duration,
    load: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
) -> Result<Arc<Reloading<T, TlsError>>, TlsError> {
    let files = files.into_iter().flatten().cloned();
    let interval = Some(interval).filter(|interval| !interval.is_zero());
    let made = Reloading::new(files, interval, load);
    made.current()?;
    Ok(Arc::new(made))
}

/// The cryptography of the whole process. It is also installed as the default of rustls, for libraries that need
/// one.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER
        .get_or_init(|| {
            // It fails only if another provider is already installed, which works too.
            let _ = rustls::crypto::ring::default_provider().install_default();
            Arc::new(rustls::crypto::ring::default_provider())
        })
        .clone()
}

/// Reads the files of a component's server once, if it has TLS.
///
/// # Errors
/// The files are unusable.
pub fn check_files(tls: Option<&TlsServerConfig>, base: &Context) -> Result<(), ComponentError> {
    let checked = tls.map_or(Ok(()), TlsServerConfig::check_files);
    checked.map_err(|error| base.error(error.to_string()))
}

impl TlsServerConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.pair().check(at, cx);
        check_versions(self.min_version, self.max_version, at, cx);
        if self.pair().is_empty() {
            cx.at(at)
                .help("leave `tls` out to serve without TLS")
                .error("a server must include both certificate and key: `cert_file` and `key_file`");
        }
    }

    fn pair(&self) -> KeyPair<'_> {
        KeyPair {
            cert_file: self.cert_file.as_deref(),
            cert_pem: self.cert_pem.as_ref(),
            key_file: self.key_file.as_deref(),
            key_pem: self.key_pem.as_ref(),
        }
    }

    /// Reads the files once, before a start that needs them.
    ///
    /// # Errors
    /// The files are unusable.
    pub fn check_files(&self) -> Result<(), TlsError> {
        self.load(&[]).map(drop)
    }

    /// Reads the files, and again whenever they change.
    ///
    /// # Errors
    /// The files are unusable.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<Arc<TlsServer>, TlsError> {
        let files = [&self.cert_file, &self.key_file, &self.client_ca_file];
        let (config, alpn) = (self.clone(), owned(alpn));
        reloading(files, self.reload_interval, move || config.load(&alpn))
    }

    fn load(&self, alpn: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(self.min_version, self.max_version))?;
        let builder = match &self.client_ca_file {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(roots(certificates(Pem::File("client_ca_file", file))?)?);
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(roots, provider).build()?,
                )
            }
        };
        let (chain, key) = self
            .pair()
            .read()?
            .ok_or_else(|| TlsError::NoCertificate("`tls`".to_owned()))?;
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = alpn.to_vec();
        Ok(Arc::new(config))
    }
}

impl TlsClientConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.pair().check(at, cx);
        check_versions(self.min_version, self.max_version, at, cx);
        if self.ca_file.is_some() && self.ca_pem.is_some() {
            cx.at(at.child("ca_pem"))
                .error("provide either a CA file or the PEM-encoded string, but not both");
        }
    }

    fn pair(&self) -> KeyPair<'_> {
        KeyPair {
            cert_file: self.cert_file.as_deref(),
            cert_pem: self.cert_pem.as_ref(),
            key_file: self.key_file.as_deref(),
            key_pem: self.key_pem.as_ref(),
        }
    }

    /// Reads the files, and again whenever they change. The caller handles `insecure`.
    ///
    /// # Errors
    /// The files are unusable.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<Arc<TlsClient>, TlsError> {
        let files = [&self.ca_file, &self.cert_file, &self.key_file];
        let (config, alpn) = (self.clone(), owned(alpn));
        reloading(files, self.reload_interval, move || config.load(&alpn))
    }

    fn load(&self, alpn: &[Vec<u8>]) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions(self.min_version, self.max_version))?;
        let builder = if self.insecure_skip_verify {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TrustAnybody(provider())))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let mut config = match self.pair().read()? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.to_vec();
        Ok(Arc::new(config))
    }

    /// The expected name in the server's certificate, if it differs from the endpoint's host.
    ///
    /// # Errors
    /// `ServerName`: `server_name_override` is not a host name.
    pub fn server_name(&self) -> Result<Option<rustls::pki_types::ServerName<'static>>, TlsError> {
        let Some(name) = &self.server_name_override else {
            return Ok(None);
        };
        match name.clone().try_into() {
            Ok(name) => Ok(Some(name)),
            Err(_) => Err(TlsError::ServerName(name.clone())),
        }
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let own = match (&self.ca_file, &self.ca_pem) {
            (Some(file), _) => Some(certificates(Pem::File("ca_file", file))?),
            (None, Some(text)) => Some(certificates(Pem::Text("ca_pem", text))?),
            (None, None) => None,
        };
        let with_system = own.is_none() || self.include_system_ca_certs_pool;
        let mut store = roots(own.unwrap_or_default())?;
        if with_system {
            // One broken certificate in the system's pool does not make the others untrusted.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Ok(store)
    }
}

fn check_versions(min: TlsVersion, max: TlsVersion, at: &Node, cx: &mut Problems) {
    if min == TlsVersion::V13 && max == TlsVersion::V12 {
        cx.at(at.child("min_version"))
            .error("min_version cannot be greater than max_version");
    }
}

fn versions(min: TlsVersion, max: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    let both = [
        (TlsVersion::V12, &rustls::version::TLS12),
        (TlsVersion::V13, &rustls::version::TLS13),
    ];
    both.into_iter()
        .filter(|(version, _)| version.as_str() >= min.as_str() && version.as_str() <= max.as_str())
        .map(|(_, version)| version)
        .collect()
}

fn owned(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|protocol| protocol.to_vec()).collect()
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store.add(certificate)?;
    }
    Ok(store)
}

/// `insecure_skip_verify`: accepts any certificate. The signatures of the handshake are still verified.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_authorities_replace_those_of_the_system_or_join_them() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let own = params.self_signed(&key).unwrap();
        let trusted = |has_own: bool, include_system_ca_certs_pool: bool| {
            let config = TlsClientConfig {
                ca_pem: has_own.then(|| Secret::new(own.pem())),
                include_system_ca_certs_pool,
                ..TlsClientConfig::default()
            };
            config.roots().unwrap().len()
        };
        let of_the_system = trusted(false, false);
        assert!(
            of_the_system > 0,
            "the system has no authorities: install ca-certificates"
        );
        assert_eq!(trusted(true, false), 1);
        assert_eq!(trusted(true, true), 1 + of_the_system);
    }
}
