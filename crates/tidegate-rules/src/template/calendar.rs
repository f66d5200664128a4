// SPDX-License-Identifier: Apache-2.0

//! Times in UTC in Go's layouts.

use tidegate_promql::Date;

/// The nanoseconds of a second.
pub(super) const SECOND: i64 = 1_000_000_000;

/// The parts of a layout that stand for parts of a time. Of two with the same start, the first one counts.
const PATTERNS: &[&str] = &[
    "January",
    "Jan",
    "Monday",
    "Mon",
    "MST",
    "002",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "15",
    "1",
    "2006",
    "2",
    "_2006",
    "__2",
    "_2",
    "3",
    "4",
    "5",
    "PM",
    "pm",
    "-070000",
    "-07:00:00",
    "-0700",
    "-07:00",
    "-07",
    "Z070000",
    "Z07:00:00",
    "Z0700",
    "Z07:00",
    "Z07",
];

const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: &[&str] = &[
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The name of a month; 1: January.
pub(super) fn month_name(month: i64) -> &'static str {
    let at = usize::try_from(month - 1).ok();
    at.and_then(|at| MONTHS.get(at)).copied().unwrap_or_default()
}

/// The name of a day of the week; 0: Sunday.
pub(super) fn weekday_name(day: i64) -> &'static str {
    let at = usize::try_from(day).ok();
    at.and_then(|at| WEEKDAYS.get(at)).copied().unwrap_or_default()
}

/// A time as people write it.
pub(super) struct DateTime {
    pub(super) date: Date,
    /// Of the second.
    pub(super) nanosecond: i64,
}

impl DateTime {
    /// The date of a time in nanoseconds since the epoch.
    pub(super) fn new(since_epoch: i128) -> Self {
        let second = i128::from(SECOND);
        Self {
            date: Date::of_seconds(since_epoch.div_euclid(second) as i64),
            nanosecond: since_epoch.rem_euclid(second) as i64,
        }
    }

    /// The time in the form of a layout. A layout shows Go's reference time: `2006-01-02 15:04:05`.
    pub(super) fn format(&self, layout: &str) -> String {
        let (mut out, mut rest) = (String::with_capacity(layout.len()), layout);
        while let Some(first) = rest.chars().next() {
            let length = if let Some(fraction) = fraction(rest) {
                out += &self.fraction(fraction);
                fraction.len()
            } else if let Some(pattern) = pattern(rest) {
                out += &self.part(pattern);
                pattern.len()
            } else {
                out.push(first);
                first.len_utf8()
            };
            rest = &rest[length..];
        }
        out
    }

    /// What stands for one of [`PATTERNS`].
    fn part(&self, pattern: &str) -> String {
        let date = &self.date;
        let (month, weekday) = (month_name(date.month), weekday_name(date.weekday));
        let half = if date.hour < 12 { "AM" } else { "PM" };
        let hour_of_half = (date.hour + 11) % 12 + 1;
        let sign = if date.year < 0 { "-" } else { "" };
        let year = format!("{sign}{:04}", date.year.unsigned_abs());
        match pattern {
            "January" => month.to_owned(),
            "Jan" => short(month).to_owned(),
            "1" => date.month.to_string(),
            "01" => format!("{:02}", date.month),
            "Monday" => weekday.to_owned(),
            "Mon" => short(weekday).to_owned(),
            "2" => date.day.to_string(),
            "_2" => format!("{:2}", date.day),
            "02" => format!("{:02}", date.day),
            "__2" => format!("{:3}", date.day_of_year()),
            "002" => format!("{:03}", date.day_of_year()),
            "15" => format!("{:02}", date.hour),
            "3" => hour_of_half.to_string(),
            "03" => format!("{hour_of_half:02}"),
            "4" => date.minute.to_string(),
            "04" => format!("{:02}", date.minute),
            "5" => date.second.to_string(),
            "05" => format!("{:02}", date.second),
            "2006" => year,
            "_2006" => format!("_{year}"),
            "06" => format!("{:02}", date.year.max(0) % 100),
            "PM" => half.to_owned(),
            "pm" => half.to_lowercase(),
            "MST" => "UTC".to_owned(),
            zone if zone.starts_with('-') => zone.replace('7', "0").replace('-', "+"),
            _ => "Z".to_owned(),
        }
    }

    /// The fraction of the second, with as many digits as the layout has. Nines leave zeros at the end out.
    fn fraction(&self, layout: &str) -> String {
        let (point, digits) = layout.split_at(1);
        let nanoseconds = format!("{:09}", self.nanosecond);
        let shown = &nanoseconds[..digits.len().min(nanoseconds.len())];
        let shown = if digits.starts_with('9') {
            shown.trim_end_matches('0')
        } else {
            shown
        };
        if shown.is_empty() {
            return String::new();
        }
        format!("{point}{shown}")
    }
}

/// The first three letters of a name.
fn short(name: &str) -> &str {
    name.get(..3).unwrap_or(name)
}

/// The fraction of a second at the start of a layout: a point or a comma, then zeros or nines. No other digit follows.
fn fraction(layout: &str) -> Option<&str> {
    let digits = layout.strip_prefix(['.', ','])?;
    let digit = digits.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let after = digits.trim_start_matches(digit);
    let is_whole = !after.starts_with(|c: char| c.is_ascii_digit());
    is_whole.then(|| &layout[..layout.len() - after.len()])
}

/// The pattern at the start of a layout.
fn pattern(layout: &str) -> Option<&'static str> {
    let mut patterns = PATTERNS.iter().copied();
    let found = patterns.find(|pattern| layout.starts_with(*pattern))?;
    // A longer word is only text: `Month` has no `Mon` to replace.
    let is_word =
        matches!(found, "Jan" | "Mon") && layout[found.len()..].starts_with(|c: char| c.is_ascii_lowercase());
    (!is_word).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(seconds: f64, layout: &str) -> String {
        let millis = (seconds * 1000.0).round() as i64;
        DateTime::new(i128::from(millis) * 1_000_000).format(layout)
    }

    #[test]
    fn layouts_are_read_as_in_go() {
        const EVENING: f64 = 1_796_061_600.0;
        const SECOND_OF_JANUARY: f64 = 86_400.0;
        let table = [
            (
                EVENING + 0.128,
                "2006-01-02T15:04:05.000Z07:00",
                "2026-11-30T18:00:00.128Z",
            ),
            (
                EVENING,
                "Monday, January 2 2006 3:04:05 PM pm 03",
                "Monday, November 30 2026 6:00:00 PM pm 06",
            ),
            (
                EVENING,
                "Mon Jan _2 002 __2 1 01 02 06 6 4 5 MST",
                "Mon Nov 30 334 334 11 11 30 26 6 0 0 UTC",
            ),
            (
                EVENING,
                "-0700 -07:00 -07 -070000 -07:00:00 Z0700 Z07:00 Z070000 Z07:00:00 Z07",
                "+0000 +00:00 +00 +000000 +00:00:00 Z Z Z Z Z",
            ),
            (
                SECOND_OF_JANUARY,
                "_2 __2 002 2 _2006 __2006 20066",
                " 2   2 002 2 _1970   2070 19706",
            ),
            (
                SECOND_OF_JANUARY,
                "Januaryx Janx Monx Mondayx Mo AM PMx MSTX 0000 07 09 Z Z08 -08 -",
                "Januaryx Janx Monx Fridayx Mo AM AMx UTCX 0000 07 09 Z Z08 -08 -",
            ),
            (0.0, "3:04 PM", "12:00 AM"),
            (43_200.0, "3:04 PM", "12:00 PM"),
            (0.0, "日本 2006 ü", "日本 1970 ü"),
            (0.0, "", ""),
            (-1.0, "2006-01-02 15:04:05 Mon 002", "1969-12-31 23:59:59 Wed 365"),
            (951_782_400.0, "2006-01-02 002", "2000-02-29 060"),
            (1_735_603_200.0, "2006-01-02 002", "2024-12-31 366"),
        ];
        for (seconds, layout, shown) in table {
            assert_eq!(format(seconds, layout), shown, "{layout}");
        }
    }

    #[test]
    fn fractions_have_the_digits_of_the_layout() {
        let table = [
            (
                0.25,
                "05.0 05.00 05.9 05.99 05.999999999 05,999 .9 05.09",
                "00.2 00.25 00.2 00.25 00.25 00,25 .2 00.09",
            ),
            (
                0.005,
                "05.0 05.00 05.9 05.99 05.999 05,999 .0000000000",
                "00.0 00.00 00 00 00.005 00,005 .005000000",
            ),
            (0.0, "05.999| 05.000| .9|", "00| 00.000| |"),
            (1_796_061_600.1, "05.0x 05.00001", "00.1x 00.00011"),
        ];
        for (seconds, layout, shown) in table {
            assert_eq!(format(seconds, layout), shown, "{layout}");
        }
    }
}
