// SPDX-License-Identifier: Apache-2.0

//! Writes a NIXL ring file, so that a script can hand it to any reader:
//!
//! `write_ring FILE VERSION CAPACITY [EVENT=VALUE[@TIMESTAMP_US] ...]`
//!
//! VERSION is 1, 2a, 2b, 3, 4 or 5. EVENT is a NIXL event name, a type number, or with versions 1
//! and 2a any name. An event that finds the ring full waits for a consumer, at most ten seconds.

use std::error::Error;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate_ring::{Category, Event, Layout, NixlKind, Writer};

const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    match run() {
        Ok(written) => {
            println!("wrote {written} events");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("write_ring: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, version, capacity, events @ ..] = arguments.as_slice() else {
        return Err("usage: write_ring FILE VERSION CAPACITY [EVENT=VALUE[@TIMESTAMP_US] ...]".into());
    };
    let layout: Layout = version.parse()?;
    let mut writer = Writer::create(path, layout, capacity.parse()?)?;
    for event in events {
        write(&mut writer, event)?;
    }
    Ok(events.len())
}

fn write(writer: &mut Writer, text: &str) -> Result<(), Box<dyn Error>> {
    let (name, rest) = text.split_once('=').ok_or("an event is NAME=VALUE")?;
    let (value, timestamp) = rest.split_once('@').unwrap_or((rest, "0"));
    let known = NixlKind::by_name(name).map(|row| row.id).or(name.parse().ok());
    let event = Event {
        kind: known.unwrap_or(tidegate_ring::kind::UNKNOWN),
        value: value.parse()?,
        timestamp_us: timestamp.parse()?,
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pushed = match known {
            Some(_) => writer.push(event),
            None => writer.push_named(name, Category::Custom, event),
        };
        writer.flush();
        if pushed {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("the ring is full and has no reader".into());
        }
        sleep(POLL_INTERVAL);
    }
}
