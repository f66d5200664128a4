// SPDX-License-Identifier: Apache-2.0

//! Requests in OTLP/JSON, with names of times.

use std::time::Duration;

use super::gateway::{TestClock, nanos};
use crate::batch::{Batch, Signal, json, wire};
use crate::component::unix_now;

/// The batch of a request. Its first key names the signal.
pub(super) fn batch(mut request: serde_json::Value, clock: &TestClock) -> Result<Batch, String> {
    const KEYS: [(&str, Signal); 3] = [
        ("resourceMetrics", Signal::Metrics),
        ("resourceSpans", Signal::Traces),
        ("resourceLogs", Signal::Logs),
    ];
    let signal = KEYS.into_iter().find(|(key, _)| request.get(key).is_some());
    let (_, signal) = signal.ok_or("expected `resourceMetrics`, `resourceSpans` or `resourceLogs`")?;
    set_times(&mut request, clock)?;
    let bytes = json::to_protobuf(signal, request.to_string().as_bytes());
    let bytes = bytes.map_err(|error| error.to_string())?;
    let encoded = wire::check(signal, bytes).map_err(|error| error.to_string())?;
    Ok(Batch::new(encoded))
}

/// Replaces the names of times: `now`, `now-10s` and `start`.
fn set_times(value: &mut serde_json::Value, clock: &TestClock) -> Result<(), String> {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().try_for_each(|item| set_times(item, clock)),
        serde_json::Value::Object(entries) => entries.iter_mut().try_for_each(|(key, value)| {
            match value.as_str().filter(|_| key.ends_with("UnixNano")) {
                Some(text) => *value = named_time(text, clock)?.into(),
                None => set_times(value, clock)?,
            }
            Ok(())
        }),
        _ => Ok(()),
    }
}

/// The decimal digits of a named time. Digits stay.
fn named_time(text: &str, clock: &TestClock) -> Result<String, String> {
    let now = unix_now();
    let time = match text {
        "now" => now,
        "start" => clock.time(Duration::ZERO),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => return Ok(digits.to_owned()),
        _ => {
            let age = text.strip_prefix("now-");
            let age = age.and_then(|age| humantime::parse_duration(age).ok());
            let age = age.ok_or_else(|| format!("`{text}` is not a time: expected now, now-10s or start"))?;
            now.saturating_sub(nanos(age))
        }
    };
    Ok(time.to_string())
}
