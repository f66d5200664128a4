// SPDX-License-Identifier: Apache-2.0

//! The encodings of a batch in a file.

use std::fmt::Write;

use tidegate_engine::{AttributeRef, Events, Point, Value};

use super::config::{Compression, FileExporterConfig, FileFormat};
use crate::batch::{Batch, Payload, convert, json};
use crate::delivery::ExportRequest;

/// First line of a CSV file.
pub(super) const CSV_HEADER: &str = "timestamp_us,category,event_name,value\n";

/// Bytes to append, and how many items have no form in this format.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) unsupported: usize,
}

/// The most bytes that [`encode`] needs, including all intermediate forms.
pub(super) fn bytes(config: &FileExporterConfig, export: &ExportRequest) -> usize {
    let framed = export.joined_bytes();
    match config.format {
        FileFormat::Proto => 2 * framed,
        FileFormat::Csv => 2 * export.decoded_bytes(),
        FileFormat::Json if config.compression == Compression::None => export.json_bytes(),
        FileFormat::Json => 2 * export.json_bytes(),
    }
}

/// The bytes of an export request; `Err` says why there are none.
pub(super) fn encode(config: &FileExporterConfig, export: &ExportRequest) -> Result<Encoded, String> {
    if config.format == FileFormat::Csv {
        return Ok(csv(export.batches()));
    }
    let whole = export.encoded();
    let json = || json::to_json(&whole).map_err(|error| error.to_string());
    let message = match (config.format, config.compression) {
        (FileFormat::Json, Compression::None) => {
            let mut line = json()?;
            line.push('\n');
            return Ok(Encoded {
                bytes: line.into_bytes(),
                unsupported: 0,
            });
        }
        (FileFormat::Json | FileFormat::Csv, _) => json()?.into(),
        (FileFormat::Proto, _) => whole.joined(),
    };
    let bytes = match config.compression {
        Compression::None => framed(&message)?,
        Compression::Zstd => framed(&zstd::encode_all(&*message, 0).map_err(|error| error.to_string())?)?,
    };
    Ok(Encoded {
        bytes,
        unsupported: 0,
    })
}

/// Behind its length, as the Collector writes it.
fn framed(message: &[u8]) -> Result<Vec<u8>, String> {
    let length = u32::try_from(message.len()).map_err(|_| "a request of 4 GiB or more".to_owned())?;
    Ok([&length.to_be_bytes()[..], message].concat())
}

fn csv(batches: &[Batch]) -> Encoded {
    let (mut lines, mut unsupported) = (String::new(), 0);
    for batch in batches {
        match &batch.payload {
            Payload::Events(events) => unsupported += push_events(events, &mut lines),
            Payload::Points(points) => unsupported += push_points(&points.points, &mut lines),
            Payload::Encoded(encoded) => match convert::points(encoded) {
                Ok(points) => unsupported += push_points(&points, &mut lines),
                Err(_) => unsupported += encoded.items(),
            },
        }
    }
    Encoded {
        bytes: lines.into_bytes(),
        unsupported,
    }
}

/// Writes the lines of events. Returns the number of events of unknown kinds, which have no line.
fn push_events(events: &Events, lines: &mut String) -> usize {
    let mut unsupported = 0;
    for (at, kind) in events.kinds.iter().enumerate() {
        let Some(kind) = events.schema.kinds.get(usize::from(*kind)) else {
            unsupported += 1;
            continue;
        };
        let time = events.time(at);
        let category = kind
            .attributes
            .get("category")
            .and_then(AttributeRef::as_str)
            .unwrap_or_default();
        let value = match &events.values {
            tidegate_engine::Values::U64(values) => values.get(at).map(u64::to_string),
            tidegate_engine::Values::F64(values) => values.get(at).map(f64::to_string),
        };
        push_line(lines, time, category, &kind.name, &value.unwrap_or_default());
    }
    unsupported
}

/// Number points have lines too; how many points have none.
fn push_points(points: &[Point], lines: &mut String) -> usize {
    let mut unsupported = 0;
    for point in points {
        let value = match &point.value {
            Value::Int(number) => number.to_string(),
            Value::Double(number) => number.to_string(),
            _ => {
                unsupported += 1;
                continue;
            }
        };
        let category = point
            .series
            .attributes
            .get("category")
            .and_then(AttributeRef::as_str);
        push_line(
            lines,
            point.time,
            category.unwrap_or_default(),
            &point.series.metric.name,
            &value,
        );
    }
    unsupported
}

fn push_line(lines: &mut String, nanos: u64, category: &str, name: &str, value: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(
        lines,
        "{},{},{},{value}",
        nanos / 1_000,
        field(category),
        field(name)
    );
}

/// Quotes a field if necessary (RFC 4180).
fn field(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}
