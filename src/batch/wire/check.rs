//! Whether bytes are an export request, and how many items it holds: one pass over tags and lengths.
//!
//! Checked is what every later walk relies on: that lengths nest, and that the messages on the way to the items are
//! messages. Inside the items only the frame of their fields is looked at; a field of theirs that turns out wrong when
//! somebody decodes it costs the batch then, counted by whoever does.
//!
//! Protobuf lets a message be written in several pieces, which are merged, and of a `oneof` the last member counts.
//! No SDK does so; a request that does is written anew, so that nobody below has to think of it.

use bytes::Bytes;
use prost::Message;

use super::WireError;
use super::proto::{Fields, WireType};
use crate::batch::{Encoded, Signal};

/// A message on the way to the items: which of its fields to descend into.
struct Level {
    /// Names of the fields, for error messages.
    fields: &'static [(u32, &'static str, Next)],
    /// Fields of which one at most is usual.
    once: &'static [u32],
}

/// What a field leads to.
enum Next {
    /// Another message on the way.
    Descend(&'static Level),
    /// An item: a point, a span, a log record. Its own fields must be framed well.
    Item,
    /// A message whose fields must be framed well.
    Message,
}

static REQUESTS: [Level; 3] = [
    Level {
        fields: &[(1, "resource_metrics", Next::Descend(&RESOURCE_METRICS))],
        once: &[],
    },
    Level {
        fields: &[(1, "resource_spans", Next::Descend(&RESOURCE_SPANS))],
        once: &[],
    },
    Level {
        fields: &[(1, "resource_logs", Next::Descend(&RESOURCE_LOGS))],
        once: &[],
    },
];
static RESOURCE_METRICS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_metrics", Next::Descend(&SCOPE_METRICS)),
    ],
    once: &[1],
};
static SCOPE_METRICS: Level = Level {
    fields: &[
        (1, "scope", Next::Message),
        (2, "metrics", Next::Descend(&METRIC)),
    ],
    once: &[1],
};
static METRIC: Level = Level {
    fields: &[
        (5, "gauge", Next::Descend(&POINTS)),
        (7, "sum", Next::Descend(&POINTS)),
        (9, "histogram", Next::Descend(&POINTS)),
        (10, "exponential_histogram", Next::Descend(&POINTS)),
        (11, "summary", Next::Descend(&POINTS)),
    ],
    once: &[5, 7, 9, 10, 11],
};
static POINTS: Level = Level {
    fields: &[(1, "data_points", Next::Item)],
    once: &[],
};
static RESOURCE_SPANS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_spans", Next::Descend(&SCOPE_SPANS)),
    ],
    once: &[1],
};
static SCOPE_SPANS: Level = Level {
    fields: &[(1, "scope", Next::Message), (2, "spans", Next::Item)],
    once: &[1],
};
static RESOURCE_LOGS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_logs", Next::Descend(&SCOPE_LOGS)),
    ],
    once: &[1],
};
static SCOPE_LOGS: Level = Level {
    fields: &[(1, "scope", Next::Message), (2, "log_records", Next::Item)],
    once: &[1],
};

/// Checks the bytes of an `Export*ServiceRequest` and counts its points, spans or log records.
///
/// # Errors
/// What is wrong and in which message.
pub fn check(signal: Signal, bytes: Bytes) -> Result<Encoded, WireError> {
    let level = &REQUESTS[signal as usize];
    let mut found = Found::default();
    found.look(level, &bytes)?;
    if !found.unusual {
        return Ok(Encoded::one(signal, bytes, found.items));
    }
    let bytes = written_anew(signal, &bytes)?;
    let mut found = Found::default();
    found.look(level, &bytes)?;
    Ok(Encoded::one(signal, bytes, found.items))
}

/// The same request as prost writes it.
fn written_anew(signal: Signal, bytes: &Bytes) -> Result<Bytes, WireError> {
    use opentelemetry_proto::tonic::collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    };
    fn again<M: Message + Default>(bytes: &Bytes) -> Result<Bytes, prost::DecodeError> {
        Ok(M::decode(bytes.clone())?.encode_to_vec().into())
    }
    let again = match signal {
        Signal::Metrics => again::<ExportMetricsServiceRequest>(bytes),
        Signal::Traces => again::<ExportTraceServiceRequest>(bytes),
        Signal::Logs => again::<ExportLogsServiceRequest>(bytes),
    };
    again.map_err(|_| WireError {
        problem: "a message in pieces that can't be decoded",
        path: String::new(),
    })
}

/// What a pass has found so far.
#[derive(Default)]
struct Found {
    items: usize,
    unusual: bool,
}

impl Found {
    fn look(&mut self, level: &'static Level, message: &[u8]) -> Result<(), WireError> {
        let mut once = 0;
        for field in Fields::new(message) {
            let field = field.map_err(|problem| WireError {
                problem,
                path: String::new(),
            })?;
            let Some((_, name, next)) = level.fields.iter().find(|(number, ..)| *number == field.number)
            else {
                continue;
            };
            if field.wire != WireType::Bytes {
                return Err(WireError {
                    problem: "not a message",
                    path: (*name).to_owned(),
                });
            }
            once += usize::from(level.once.contains(&field.number));
            match next {
                Next::Descend(inner) => self.look(inner, field.payload),
                Next::Item => {
                    self.items += 1;
                    framed(field.payload)
                }
                Next::Message => framed(field.payload),
            }
            .map_err(|error| error.inside(name))?;
        }
        self.unusual |= once > 1;
        Ok(())
    }
}

fn framed(message: &[u8]) -> Result<(), WireError> {
    let broken = Fields::new(message).find_map(Result::err);
    broken.map_or(Ok(()), |problem| {
        Err(WireError {
            problem,
            path: String::new(),
        })
    })
}

impl WireError {
    fn inside(mut self, name: &str) -> Self {
        self.path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{}", self.path)
        };
        self
    }
}
