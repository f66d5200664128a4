// SPDX-License-Identifier: Apache-2.0

//! The validity of an X.509 certificate (RFC 5280, section 4.1).

use std::time::{Duration, SystemTime};

use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// The first and the last moment of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
}

/// The validity of a certificate in DER, or `None` if the bytes can't be read as one.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    Some(Validity {
        begin: time(validity.not_before)?,
        end: time(validity.not_after)?,
    })
}

/// A time before 1970 is as good as 1970.
fn time(time: ASN1Time) -> Option<SystemTime> {
    let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A year, a month and a day.
    type Day = (i32, u8, u8);

    fn certificate(begin: Day, end: Day) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = rcgen::date_time_ymd(end.0, end.1, end.2);
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// The begin and the end, in seconds since 1970.
    fn seconds(certificate: &[u8]) -> Option<(u64, u64)> {
        let Validity { begin, end } = validity(certificate)?;
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        Some((since(begin), since(end)))
    }

    #[test]
    fn times_of_both_forms_are_read() {
        // Up to 2049 a year has two digits, from 2050 on four.
        let both = certificate((2001, 2, 3), (2054, 5, 6));
        assert_eq!(seconds(&both), Some((981_158_400, 2_661_638_400)));
        let leap_day = certificate((1950, 1, 1), (2000, 2, 29));
        assert_eq!(seconds(&leap_day), Some((0, 951_782_400)));
    }

    #[test]
    fn wrong_times_give_nothing() {
        let certificate = certificate((2001, 2, 3), (2054, 5, 6));
        let right = b"010203000000Z";
        let at = certificate.windows(right.len()).position(|part| part == right);
        let at = at.unwrap();
        for wrong in [b"011303000000Z", b"010230000000Z", b"0102030000\0+Z"] {
            let mut changed = certificate.clone();
            changed[at..at + wrong.len()].copy_from_slice(wrong);
            assert_eq!(seconds(&changed), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn cut_and_changed_bytes_give_nothing_and_no_panic() {
        let der = certificate((2001, 2, 3), (2054, 5, 6));
        for length in 0..der.len() {
            assert_eq!(validity(&der[..length]), None, "{length}");
            let mut changed = der.clone();
            changed[length] = 0xff;
            let _ = validity(&changed);
        }
    }
}
