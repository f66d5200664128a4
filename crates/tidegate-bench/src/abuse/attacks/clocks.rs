//! Times that are not those of the gateway's clock.

use std::time::Duration;

use super::now;
use crate::Error;
use crate::abuse::beside::{SHOWN, honest};
use crate::abuse::field::Field;
use crate::abuse::judge::Line;
use crate::abuse::proto::{gauge, point, request};
use crate::abuse::wire::{Harm, Tally, protobuf};

const DAY: u64 = 24 * 3600 * 1_000_000_000;
/// The honest sender pushes ten times a second; less is what a second that was missed leaves of it.
const RATE: std::ops::RangeInclusive<f64> = 5.0..=15.0;
/// The small form ends while the window fills, and the rate is that of the whole window.
const WHILE_IT_FILLS: f64 = 1.0;

pub(super) fn future(field: &Field) -> Result<Harm, Error> {
    let tally = Tally::default();
    // The time is all that is wrong: the total is what the honest sender has come to.
    let tomorrow = honest(now() + DAY, total(field)?);
    field.push(&protobuf(""), &tomorrow, 1, &tally);
    std::thread::sleep(field.pick(Duration::from_secs(18), Duration::from_secs(2)));
    Ok(with_rate(field, tally.finish()))
}

pub(super) fn alternating(field: &Field) -> Result<Harm, Error> {
    let tally = Tally::default();
    field.crowd(1, |_, turn| {
        let time = match turn % 3 {
            0 => now() + DAY,
            1 => now() - DAY,
            _ => now(),
        };
        let own = request("abuse.clocks", &gauge(&point(time, "host", "a")));
        field.push(&protobuf(""), &own, 1, &tally);
        if turn % 3 < 2 {
            // Without a page there is no total, and the next turn may have one.
            if let Ok(total) = total(field) {
                field.push(&protobuf(""), &honest(time, total), 1, &tally);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    });
    Ok(with_rate(field, tally.finish()))
}

/// What the honest counter has come to.
fn total(field: &Field) -> Result<u64, Error> {
    Ok(field.shown(SHOWN)? as u64)
}

/// The composite of the honest sender must say what it pushes.
pub(super) fn with_rate(field: &Field, harm: Harm) -> Harm {
    let rate = rate(field);
    let line = match rate {
        Ok(rate) => Line::new(
            "the rate of honest pushes is right",
            format!("{rate:.1} of 10 a second"),
            (field.pick(*RATE.start(), WHILE_IT_FILLS)..=*RATE.end()).contains(&rate),
        ),
        Err(error) => Line::new("the rate of honest pushes is known", error.to_string(), false),
    };
    Harm {
        lines: vec![line],
        ..harm
    }
}

fn rate(field: &Field) -> Result<f64, Error> {
    let answer = field.ask("/api/v1/query?query=honest_rate", Duration::from_secs(3))?;
    let said: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let value = said["data"]["result"][0]["value"][1].as_str();
    let value = value.ok_or_else(|| format!("no value: {said}"))?;
    Ok(value.parse()?)
}
