// SPDX-License-Identifier: Apache-2.0

//! Times and durations in templates, with the methods that they have in Go. All times are in UTC.

use super::calendar::{DateTime, SECOND};
use super::numbers::{general, trimmed};
use super::value::TemplateValue;

/// How Go prints a time.
const PRINTED: &str = "2006-01-02 15:04:05.999999999 -0700 MST";

type MethodResult = Result<TemplateValue, String>;

/// A time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TemplateTime {
    /// Nanoseconds since the epoch. An expansion has too few steps for a sum of durations that overflows.
    since_epoch: i128,
}

impl TemplateTime {
    /// The time so many seconds after the epoch.
    pub(super) fn from_seconds(seconds: f64) -> Result<Self, String> {
        if !seconds.is_finite() {
            return Err("value is NaN or Inf".to_owned());
        }
        let nanoseconds = seconds * 1e9;
        if nanoseconds.abs() >= i64::MAX as f64 {
            return Err(format!(
                "{} cannot be represented as a nanoseconds timestamp since it overflows int64",
                general(seconds, None)
            ));
        }
        // Times of Prometheus are whole milliseconds.
        let millis = (nanoseconds as i64) / 1_000_000;
        Ok(Self {
            since_epoch: i128::from(millis) * 1_000_000,
        })
    }

    /// The time as Go prints it.
    pub(super) fn show(self) -> String {
        DateTime::new(self.since_epoch).format(PRINTED)
    }

    /// Whole units of so many nanoseconds since the epoch.
    fn whole(self, unit: i128) -> i64 {
        self.since_epoch.div_euclid(unit) as i64
    }

    /// Calls a method of Go's `time.Time`.
    pub(super) fn method(self, name: &str, arguments: &[TemplateValue]) -> MethodResult {
        let at = DateTime::new(self.since_epoch);
        let date = &at.date;
        let number = match (name, arguments) {
            ("Format", [layout]) => return Ok(at.format(layout.text()?).into()),
            ("String", []) => return Ok(self.show().into()),
            ("UTC", []) => return Ok(TemplateValue::Time(self)),
            ("Add", [added]) => {
                let since_epoch = self.since_epoch + i128::from(length(added)?);
                return Ok(TemplateValue::Time(Self { since_epoch }));
            }
            ("Sub", [other]) => {
                let difference = self.since_epoch - time(other)?.since_epoch;
                return Ok(duration(clamped(difference)));
            }
            ("Before", [other]) => return Ok(TemplateValue::Bool(self < time(other)?)),
            ("After", [other]) => return Ok(TemplateValue::Bool(self > time(other)?)),
            ("Equal", [other]) => return Ok(TemplateValue::Bool(self == time(other)?)),
            ("Month", []) => return Ok(TemplateValue::Month(date.month)),
            ("Weekday", []) => return Ok(TemplateValue::Weekday(date.weekday)),
            ("Unix", []) => self.whole(i128::from(SECOND)),
            ("UnixMilli", []) => self.whole(1_000_000),
            ("UnixMicro", []) => self.whole(1000),
            ("UnixNano", []) => self.whole(1),
            ("Year", []) => date.year,
            ("YearDay", []) => date.day_of_year(),
            ("Day", []) => date.day,
            ("Hour", []) => date.hour,
            ("Minute", []) => date.minute,
            ("Second", []) => date.second,
            ("Nanosecond", []) => at.nanosecond,
            _ => return Err(no_method("time.Time", name, arguments)),
        };
        Ok(TemplateValue::Int(number))
    }
}

/// A duration of a number of seconds, as `toDuration` gives it.
pub(super) fn duration_of_seconds(seconds: f64) -> MethodResult {
    let nanoseconds = seconds * 1e9;
    if nanoseconds.abs() < i64::MAX as f64 {
        return Ok(TemplateValue::Duration {
            nanoseconds: nanoseconds as i64,
            is_pointer: true,
        });
    }
    let seconds = general(seconds, None);
    Err(format!("{seconds} cannot be represented as a duration"))
}

/// A duration as methods give it.
fn duration(nanoseconds: i64) -> TemplateValue {
    TemplateValue::Duration {
        nanoseconds,
        is_pointer: false,
    }
}

fn clamped(nanoseconds: i128) -> i64 {
    let most = if nanoseconds < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(nanoseconds).unwrap_or(most)
}

/// Calls a method of Go's `time.Duration`.
pub(super) fn duration_method(nanoseconds: i64, name: &str, arguments: &[TemplateValue]) -> MethodResult {
    let int = |unit: i64| Ok(TemplateValue::Int(nanoseconds / unit));
    let float = |unit: i64| {
        let (whole, rest) = (nanoseconds / unit, nanoseconds % unit);
        Ok(TemplateValue::Float(whole as f64 + rest as f64 / unit as f64))
    };
    match (name, arguments) {
        ("String", []) => Ok(show_duration(nanoseconds).into()),
        ("Hours", []) => float(3600 * SECOND),
        ("Minutes", []) => float(60 * SECOND),
        ("Seconds", []) => float(SECOND),
        ("Milliseconds", []) => int(1_000_000),
        ("Microseconds", []) => int(1000),
        ("Nanoseconds", []) => int(1),
        ("Abs", []) => Ok(duration(nanoseconds.saturating_abs())),
        ("Round", [unit]) => Ok(duration(rounded(nanoseconds, length(unit)?))),
        ("Truncate", [unit]) => Ok(duration(truncated(nanoseconds, length(unit)?))),
        _ => Err(no_method("time.Duration", name, arguments)),
    }
}

/// Calls a method of Go's `time.Month` or `time.Weekday`.
pub(super) fn name_method(value: &TemplateValue, name: &str, arguments: &[TemplateValue]) -> MethodResult {
    match (name, arguments) {
        ("String", []) => Ok(value.show().into()),
        _ => Err(no_method(value.kind(), name, arguments)),
    }
}

/// The multiple of a unit that is nearest; half a unit counts as a whole one.
fn rounded(nanoseconds: i64, unit: i64) -> i64 {
    if unit <= 0 {
        return nanoseconds;
    }
    let (exact, unit) = (i128::from(nanoseconds), i128::from(unit));
    let rest = exact.abs() % unit;
    let up = if rest * 2 < unit { 0 } else { unit };
    clamped((exact.abs() - rest + up) * exact.signum())
}

/// The multiple of a unit that is nearest towards zero.
fn truncated(nanoseconds: i64, unit: i64) -> i64 {
    if unit <= 0 {
        return nanoseconds;
    }
    nanoseconds - nanoseconds % unit
}

/// A duration as Go prints it.
pub(super) fn show_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let whole = nanoseconds.unsigned_abs();
    let shown = match whole {
        0 => return "0s".to_owned(),
        1..1000 => format!("{whole}ns"),
        1000..1_000_000 => decimal(whole, 1000) + "\u{b5}s",
        1_000_000..1_000_000_000 => decimal(whole, 1_000_000) + "ms",
        _ => {
            let second = SECOND.unsigned_abs();
            let (hours, minutes) = (whole / (3600 * second), whole / (60 * second) % 60);
            let seconds = decimal(whole % (60 * second), second);
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                _ => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{shown}")
}

/// A number of units, which are a power of ten, with as many decimals as it needs.
fn decimal(number: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let exact = format!("{}.{:0digits$}", number / unit, number % unit);
    trimmed(&exact).to_owned()
}

/// The time that a method takes.
fn time(value: &TemplateValue) -> Result<TemplateTime, String> {
    match value {
        TemplateValue::Time(time) => Ok(*time),
        other => Err(expected("time.Time", other)),
    }
}

/// The nanoseconds of a duration that a method takes. As in Go, a whole number is one too.
fn length(value: &TemplateValue) -> Result<i64, String> {
    match value {
        TemplateValue::Duration { nanoseconds, .. } => Ok(*nanoseconds),
        TemplateValue::Int(nanoseconds) => Ok(*nanoseconds),
        other => Err(expected("time.Duration", other)),
    }
}

fn expected(kind: &str, value: &TemplateValue) -> String {
    format!("wrong type for value; expected {kind}; got {}", value.kind())
}

/// The error of a method that a type does not have, or not with so many arguments.
fn no_method(kind: &str, name: &str, arguments: &[TemplateValue]) -> String {
    let count = arguments.len();
    let plural = if count == 1 { "" } else { "s" };
    format!("{kind} has no method {name} with {count} argument{plural}")
}
