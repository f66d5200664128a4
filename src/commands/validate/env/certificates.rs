// SPDX-License-Identifier: Apache-2.0

//! Files of certificates, keys, authorities, passwords and tokens.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::report::Report;
use super::roles::Role;
use super::sites::Site;
use super::validity::{Validity, validity};
use crate::component::files;
use crate::net::tls::provider;

/// The largest PEM file, in bytes.
const MAX_PEM_BYTES: usize = 8 << 20;

/// The time before the end of a certificate from which there is a warning.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// The bit of a file's mode that lets all users read it.
const ALL_USERS: u32 = 0o004;

/// The certificate and the key of one `tls` block.
#[derive(Default)]
struct Pair<'a> {
    chain: Option<Vec<CertificateDer<'static>>>,
    key: Option<(PrivateKeyDer<'static>, &'a Site<'a>)>,
}

pub(super) fn check(sites: &[Site<'_>], report: &mut Report<'_>) {
    check_at(sites, SystemTime::now(), report);
}

fn check_at(sites: &[Site<'_>], now: SystemTime, report: &mut Report<'_>) {
    let mut pairs: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
    for site in sites {
        match site.role {
            Role::Certificate => {
                let chain = check_chain(site, now, report);
                pairs.entry(site.group()).or_default().chain = chain;
            }
            Role::Key => {
                let key = check_key(site, report).map(|key| (key, site));
                pairs.entry(site.group()).or_default().key = key;
            }
            Role::Authorities => check_authorities(site, now, report),
            Role::Secret => check_secret(site, report),
            _ => {}
        }
    }
    for pair in pairs.into_values() {
        if let (Some(chain), Some((key, site))) = (pair.chain, pair.key) {
            check_pair(chain, key, site, report);
        }
    }
}

fn unreadable(site: &Site<'_>, error: impl Display, report: &mut Report<'_>) {
    let message = format!("can't read the file {}: {error}", site.shown());
    report.error(&site.position(), message, "name a file that this user can read");
}

/// The certificates of a file. All problems are reported.
fn certificates(site: &Site<'_>, report: &mut Report<'_>) -> Option<Vec<CertificateDer<'static>>> {
    let bytes = files::read(Path::new(&site.text), MAX_PEM_BYTES)
        .map_err(|error| unreadable(site, error, report))
        .ok()?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = read.ok().filter(|found| !found.is_empty());
    if found.is_none() {
        // The error of the library may quote lines of the file.
        let message = format!("no certificate in {}", site.shown());
        report.error(&site.position(), message, "name a PEM file with certificates");
    }
    found
}

fn check_chain(
    site: &Site<'_>,
    now: SystemTime,
    report: &mut Report<'_>,
) -> Option<Vec<CertificateDer<'static>>> {
    report.begin_check();
    let chain = certificates(site, report)?;
    for (index, certificate) in chain.iter().enumerate() {
        let what = match index {
            0 => format!("the certificate in {}", site.shown()),
            index => format!("certificate {} of the chain in {}", index + 1, site.shown()),
        };
        check_validity(site, &what, validity(certificate), now, report);
    }
    Some(chain)
}

fn check_validity(
    site: &Site<'_>,
    what: &str,
    validity: Option<Validity>,
    now: SystemTime,
    report: &mut Report<'_>,
) {
    let at = site.position();
    let Some(Validity { begin, end }) = validity else {
        return report.error(
            &at,
            format!("{what} can't be read"),
            "name a file with X.509 certificates",
        );
    };
    let date = humantime::format_rfc3339_seconds;
    if end < now {
        let message = format!("{what} expired at {}", date(end));
        report.error(&at, message, "renew it");
    } else if begin > now {
        let message = format!("{what} is valid only from {}", date(begin));
        report.error(
            &at,
            message,
            "check the clock of this machine, or use another certificate",
        );
    } else if end < now + SOON {
        let message = format!("{what} expires at {}", date(end));
        report.warning(
            &at,
            message,
            "renew it; the gateway reads the file again when it changes",
        );
    }
}

/// Authorities: one that is valid is enough, because bundles keep old ones for a while.
fn check_authorities(site: &Site<'_>, now: SystemTime, report: &mut Report<'_>) {
    report.begin_check();
    let Some(authorities) = certificates(site, report) else {
        return;
    };
    let latest = authorities
        .iter()
        .filter_map(|authority| validity(authority))
        .max_by_key(|validity| validity.end);
    let what = match authorities.len() {
        1 => format!("the authority in {}", site.shown()),
        _ => format!("the last valid authority in {}", site.shown()),
    };
    check_validity(site, &what, latest, now, report);
}

fn check_key(site: &Site<'_>, report: &mut Report<'_>) -> Option<PrivateKeyDer<'static>> {
    report.begin_check();
    let path = Path::new(&site.text);
    let bytes = files::read(path, MAX_PEM_BYTES)
        .map_err(|error| unreadable(site, error, report))
        .ok()?;
    check_mode(site, report);
    // The error of the library may quote lines of the file.
    let key = PrivateKeyDer::from_pem_slice(&bytes).ok();
    if key.is_none() {
        let message = format!("no private key in {}", site.shown());
        report.error(
            &site.position(),
            message,
            "name a PEM file with a key that has no passphrase",
        );
    }
    key
}

/// Warns of a secret that every user of the machine can read.
fn check_mode(site: &Site<'_>, report: &mut Report<'_>) {
    let mode = std::fs::metadata(&site.text).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & ALL_USERS != 0) {
        let message = format!(
            "all users of this machine can read the secret in {}",
            site.shown()
        );
        report.warning(&site.position(), message, "take the permission away: chmod o-r");
    }
}

fn check_pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    site: &Site<'_>,
    report: &mut Report<'_>,
) {
    report.begin_check();
    match CertifiedKey::from_der(chain, key, &provider()) {
        Ok(_) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            let message = format!("the key in {} does not belong to the certificate", site.shown());
            report.error(
                &site.position(),
                message,
                "name the key with which the certificate was requested",
            );
        }
        Err(error) => {
            let message = format!(
                "the certificate and the key in {} are not usable: {error}",
                site.shown()
            );
            report.error(&site.position(), message, "use a key of RSA, ECDSA or Ed25519");
        }
    }
}

fn check_secret(site: &Site<'_>, report: &mut Report<'_>) {
    report.begin_check();
    match files::read_text(Path::new(&site.text)) {
        Err(error) => unreadable(site, error, report),
        Ok(text) if text.trim().is_empty() => {
            let message = format!("the file {} is empty", site.shown());
            report.error(&site.position(), message, "write the secret into it");
        }
        Ok(_) => check_mode(site, report),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::sites::tests::with_sites;
    use super::*;

    /// The end of the certificates of the tests: 2030-01-01.
    const END: Duration = Duration::from_secs(1_893_456_000);

    /// So long before the end of the certificates.
    fn before_end(time: Duration) -> SystemTime {
        SystemTime::UNIX_EPOCH + END - time
    }

    /// A certificate and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn messages(certificate: &str, key: &str, token: &str, mode: u32, now: SystemTime) -> String {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = (file("cert.pem", certificate), file("key.pem", key));
        let token = file("token", token);
        let text = format!(
            "
extensions: {{bearertokenauth: {{filename: \"{token}\"}}}}
receivers:
  otlp: {{protocols: {{grpc: {{tls: {{cert_file: \"{certificate}\", key_file: \"{key}\", client_ca_file: \"{certificate}\"}}}}}}}}
exporters: {{nop: }}
service:
  extensions: [bearertokenauth]
  pipelines: {{logs: {{receivers: [otlp], exporters: [nop]}}}}
"
        );
        let mut messages = String::new();
        with_sites(&text, |sites, problems| {
            check_at(sites, now, &mut Report::new(problems));
            messages = problems.to_string();
        });
        messages
    }

    #[test]
    fn a_certificate_with_its_key_and_a_token_are_fine() {
        let (certificate, key) = pair();
        let said = messages(&certificate, &key, "t0ken\n", 0o600, before_end(SOON * 2));
        assert_eq!(said, "");
    }

    #[test]
    fn expired_certificates_are_errors_and_late_ones_warnings() {
        let (certificate, key) = pair();
        let after = SystemTime::UNIX_EPOCH + END + SOON;
        let said = messages(&certificate, &key, "t0ken", 0o600, after);
        let path = "receivers::otlp::protocols::grpc::tls::cert_file";
        assert!(said.contains(&format!("error: {path}: ")), "{said}");
        assert!(said.contains(" expired at 2030-01-01T00:00:00Z"), "{said}");
        let said = messages(&certificate, &key, "t0ken", 0o600, before_end(SOON / 2));
        assert!(said.contains(&format!("warning: {path}: ")), "{said}");
        assert!(!said.contains("error"), "{said}");
    }

    #[test]
    fn keys_of_others_and_files_of_other_content_are_errors() {
        let ((certificate, _), (_, key)) = (pair(), pair());
        let now = before_end(SOON * 2);
        let said = messages(&certificate, &key, "t0ken", 0o600, now);
        assert!(said.contains("does not belong to the certificate"), "{said}");
        let said = messages("", "hunter2", " \n", 0o600, now);
        for part in ["no certificate in", "no private key in", "is empty"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn secrets_that_all_can_read_are_warnings_and_never_shown() {
        let (certificate, key) = pair();
        let said = messages(&certificate, &key, "hunter2", 0o644, before_end(SOON * 2));
        assert_eq!(
            said.matches("all users of this machine can read").count(),
            2,
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}
