// SPDX-License-Identifier: Apache-2.0

//! An exporter plugin of tidegate: events as CSV, in Rust. Its configuration is the path of the file.
//!
//! `cargo build --release` makes `libtidegate_exporter_csv_rust.so`.

use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use tidegate_plugin::{Answer, Batch, Events, Exporter, Setup, Takes, exporter_plugin};

struct Csv {
    file: File,
}

impl Exporter for Csv {
    const NAME: &'static CStr = c"csv_rust";
    const VERSION: &'static CStr = c"1.0.0";
    const TAKES: Takes = Takes::EVENTS;

    fn create(setup: &Setup<'_>) -> Result<Self, String> {
        let path = setup.config();
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            if file.metadata()?.len() == 0 {
                file.write_all(b"timestamp_us,category,event_name,value\n")?;
            }
            Ok(file)
        };
        let file = open().map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { file })
    }

    /// `Answer::Ok` means that the gateway may forget the batch: the lines have left this process by then.
    fn export(&mut self, batch: &Batch<'_>) -> Answer {
        let lines: String = batch.events().map(lines).collect();
        match self.file.write_all(lines.as_bytes()) {
            Ok(()) => Answer::Ok,
            Err(error) => Answer::Retry {
                after: None,
                why: error.to_string(),
            },
        }
    }
}

fn lines(events: Events<'_>) -> String {
    let line = |event: tidegate_plugin::Event<'_>| {
        let (category, name) = (field(event.kind.category()), field(event.kind.name()));
        format!("{},{category},{name},{}\n", event.time_ns / 1_000, event.value)
    };
    events.iter().map(line).collect()
}

/// RFC 4180: quoted where it has to be.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

exporter_plugin!(Csv);
