// SPDX-License-Identifier: Apache-2.0

//! `Retry-After` (RFC 9110, 10.2.3): seconds, or a date.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The delay that the server asks for.
pub fn parse(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
        // The example of the RFC: Sun, 06 Nov 1994 08:49:37 GMT.
        parse(
            &headers,
            SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
        )
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        assert_eq!(parsed("120"), Some(Duration::from_mins(2)));
        assert_eq!(
            parsed("Sun, 06 Nov 1994 08:50:37 GMT"),
            Some(Duration::from_mins(1))
        );
        assert_eq!(parsed("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(parsed("soon"), None);
        assert_eq!(parse(&HeaderMap::new(), SystemTime::now()), None);
    }
}
