// SPDX-License-Identifier: Apache-2.0

//! The validity of an X.509 certificate (RFC 5280, section 4.1), read from its DER bytes.

use std::time::{Duration, SystemTime};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;

/// The first and the last moment of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
}

/// The validity, unless the bytes are no certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let mut outer = Elements(Elements(certificate).sequence()?);
    let mut fields = Elements(outer.sequence()?);
    // The version is optional; then comes the serial number.
    if fields.next()?.0 == VERSION {
        fields.next()?;
    }
    let _algorithm = fields.sequence()?;
    let _issuer = fields.sequence()?;
    let mut times = Elements(fields.sequence()?);
    Some(Validity {
        begin: time(times.next()?)?,
        end: time(times.next()?)?,
    })
}

/// The elements that remain.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let count = usize::from(first & 0x7f);
            let (digits, after) = rest
                .split_at_checked(count)
                .filter(|_| (1..=4).contains(&count))?;
            length = digits
                .iter()
                .fold(0, |length, digit| (length << 8) | usize::from(*digit));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    fn sequence(&mut self) -> Option<&'a [u8]> {
        let (tag, content) = self.next()?;
        (tag == SEQUENCE).then_some(content)
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time((tag, content): (u8, &[u8])) -> Option<SystemTime> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        LONG_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let part = |index: usize| number(rest.get(index * 2..index * 2 + 2)?);
    let days = days_since_1970(year, part(0)?, part(1)?)?;
    let seconds = days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?;
    // A beginning before 1970 is as good as 1970.
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn number(digits: &str) -> Option<i64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let time = time((tag, text.as_bytes()))?;
        Some(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_of_both_forms_are_read() {
        assert_eq!(seconds(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(seconds(UTC_TIME, "000229120000Z"), Some(951_825_600));
        assert_eq!(seconds(LONG_TIME, "20240301000000Z"), Some(1_709_251_200));
        assert_eq!(seconds(LONG_TIME, "19500101000000Z"), Some(0));
        for (tag, text) in [
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "701301000001Z"),
            (UTC_TIME, "70010100000+Z"),
            (LONG_TIME, "20240301000000"),
            (0x0c, "700101000001Z"),
        ] {
            assert_eq!(seconds(tag, text), None, "{text}");
        }
    }

    #[test]
    fn the_validity_of_a_certificate_is_what_its_maker_wrote() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 2, 3);
        params.not_after = rcgen::date_time_ymd(2054, 5, 6);
        let certificate = params.self_signed(&key).unwrap();
        let found = validity(certificate.der()).unwrap();
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(
            (since(found.begin), since(found.end)),
            (981_158_400, 2_661_638_400)
        );
    }

    #[test]
    fn cut_and_changed_bytes_give_nothing_and_no_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        for length in 0..der.len() {
            assert_eq!(validity(&der[..length]), None, "{length}");
            let mut changed = der.clone();
            changed[length] = 0xff;
            let _ = validity(&changed);
        }
    }
}
