//! Whether bytes are an export request, and how many items it holds: one pass over tags and lengths.
//!
//! Checked is what every later walk relies on: that lengths nest, and that the messages on the way to the items are
//! messages. Inside the items only the frame of their fields is looked at; a field of theirs that turns out wrong when
//! somebody decodes it costs the batch then, counted by whoever does.

use bytes::Bytes;

use super::WireError;
use super::proto::{Fields, WireType};
use crate::batch::{Encoded, Signal};

/// A message on the way to the items: which of its fields to descend into.
struct Level {
    /// Names of the fields, for error messages.
    fields: &'static [(u32, &'static str, Next)],
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
    },
    Level {
        fields: &[(1, "resource_spans", Next::Descend(&RESOURCE_SPANS))],
    },
    Level {
        fields: &[(1, "resource_logs", Next::Descend(&RESOURCE_LOGS))],
    },
];
static RESOURCE_METRICS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_metrics", Next::Descend(&SCOPE_METRICS)),
    ],
};
static SCOPE_METRICS: Level = Level {
    fields: &[
        (1, "scope", Next::Message),
        (2, "metrics", Next::Descend(&METRIC)),
    ],
};
static METRIC: Level = Level {
    fields: &[
        (5, "gauge", Next::Descend(&POINTS)),
        (7, "sum", Next::Descend(&POINTS)),
        (9, "histogram", Next::Descend(&POINTS)),
        (10, "exponential_histogram", Next::Descend(&POINTS)),
        (11, "summary", Next::Descend(&POINTS)),
    ],
};
static POINTS: Level = Level {
    fields: &[(1, "data_points", Next::Item)],
};
static RESOURCE_SPANS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_spans", Next::Descend(&SCOPE_SPANS)),
    ],
};
static SCOPE_SPANS: Level = Level {
    fields: &[(1, "scope", Next::Message), (2, "spans", Next::Item)],
};
static RESOURCE_LOGS: Level = Level {
    fields: &[
        (1, "resource", Next::Message),
        (2, "scope_logs", Next::Descend(&SCOPE_LOGS)),
    ],
};
static SCOPE_LOGS: Level = Level {
    fields: &[(1, "scope", Next::Message), (2, "log_records", Next::Item)],
};

/// Checks the bytes of an `Export*ServiceRequest` and counts its points, spans or log records.
///
/// # Errors
/// What is wrong and in which message.
pub fn check(signal: Signal, bytes: Bytes) -> Result<Encoded, WireError> {
    let items = count(&REQUESTS[signal as usize], &bytes)?;
    Ok(Encoded::one(signal, bytes, items))
}

fn count(level: &'static Level, message: &[u8]) -> Result<usize, WireError> {
    let mut items = 0;
    for field in Fields::new(message) {
        let field = field.map_err(|problem| WireError {
            problem,
            path: String::new(),
        })?;
        let Some((_, name, next)) = level.fields.iter().find(|(number, ..)| *number == field.number) else {
            continue;
        };
        if field.wire != WireType::Bytes {
            return Err(WireError {
                problem: "not a message",
                path: (*name).to_owned(),
            });
        }
        items += match next {
            Next::Descend(inner) => count(inner, field.payload).map_err(|error| error.inside(name))?,
            Next::Item => framed(field.payload)
                .map(|()| 1)
                .map_err(|error| error.inside(name))?,
            Next::Message => framed(field.payload)
                .map(|()| 0)
                .map_err(|error| error.inside(name))?,
        };
    }
    Ok(items)
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
