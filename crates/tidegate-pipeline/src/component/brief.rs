// SPDX-License-Identifier: Apache-2.0

//! Durations in log lines.

use std::fmt;
use std::time::Duration;

/// A duration in short form: `350ms`, `4.5s`, `2m 5s`.
pub struct Brief(pub Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0.as_millis() + 50) / 100;
        match (self.0.as_millis(), tenths) {
            (millis @ ..1000, _) => write!(f, "{millis}ms"),
            (_, tenths @ ..600) if tenths % 10 == 0 => write!(f, "{}s", tenths / 10),
            (_, tenths @ ..600) => write!(f, "{}.{}s", tenths / 10, tenths % 10),
            _ => humantime::format_duration(Duration::from_secs(self.0.as_secs())).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brief() {
        let shown = |millis| Brief(Duration::from_millis(millis)).to_string();
        assert_eq!(
            [350, 4471, 5000, 59_900, 125_300].map(shown),
            ["350ms", "4.5s", "5s", "59.9s", "2m 5s"]
        );
    }
}
