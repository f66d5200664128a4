// SPDX-License-Identifier: Apache-2.0

//! The senders of the datagram socket: their sources, their kinds, and their events until the next push.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use tidegate_engine::{Events, Instrument, Source, UnixNanos, Values, clock};

use super::config::DatagramConfig;
use super::datagram::Received;
use super::kinds::{self, Kinds, NoKind};
use super::proto;
use super::sink::EventSink;
use super::source::new_source;
use super::statsd::{self, Line, LineError, Type};
use crate::component::unix_now;
use crate::net::{Credentials, SocketFileConfig};
use crate::receivers::left::Left;

/// The most senders that are distinguished. Beyond it, the one that is silent for longest is forgotten.
const MAX_SENDERS: usize = 1024;

/// The most bytes of all senders' kinds. Beyond it, senders that are silent for longest are forgotten.
const MAX_KINDS_BYTES: usize = 8 * kinds::MAX_BYTES;

/// Nanoseconds in a second, for `|T`.
const SECOND_NS: u64 = 1_000_000_000;

/// The senders of this socket: only one, unless credentials distinguish them.
pub(super) struct Senders {
    senders: SendersByProcess,
    settings: SenderSettings,
    max_kinds: u16,
    /// The restrictions on senders.
    file: SocketFileConfig,
    sink: Arc<EventSink>,
    pub(super) pending_events: usize,
    /// The bytes of all senders' kinds.
    kinds_bytes: usize,
    /// Where the senders stay after the end.
    left: Arc<Left<LeftSenders>>,
}

type SendersByProcess = HashMap<Option<Credentials>, Sender>;

/// The settings that make other senders, or give their kinds another meaning.
#[derive(Clone, PartialEq, Eq)]
struct SenderSettings {
    path: PathBuf,
    source_timeout: Duration,
    /// The instrument of counters.
    counter: Instrument,
    /// Whether senders are distinguished.
    by_process: bool,
}

/// The senders of a receiver that has stopped. Senders that no other receiver takes end with it.
pub(super) struct LeftSenders {
    settings: SenderSettings,
    senders: SendersByProcess,
}

impl LeftSenders {
    /// The senders that `goes_on` selects, if the settings are the same. The others stay.
    fn take(
        &mut self,
        settings: &SenderSettings,
        mut goes_on: impl FnMut(Option<Credentials>, &mut Sender) -> bool,
    ) -> SendersByProcess {
        if self.settings != *settings {
            return SendersByProcess::new();
        }
        let selected = self
            .senders
            .extract_if(|process, sender| goes_on(*process, sender));
        selected.collect()
    }
}

impl Drop for LeftSenders {
    fn drop(&mut self) {
        self.senders.values().for_each(|sender| sender.source.lease.end());
    }
}

struct Sender {
    source: Arc<Source>,
    kinds: Kinds,
    columns: Columns,
}

#[derive(Default)]
struct Columns {
    kinds: Vec<u16>,
    values: Vec<f64>,
    times: Vec<UnixNanos>,
    weights: Vec<f64>,
    timed: bool,
    weighted: bool,
}

impl Senders {
    /// The senders of the receivers `before` this one go on, within the limits. `left`: where these stay after the end.
    pub(super) fn new(
        config: &DatagramConfig,
        sink: Arc<EventSink>,
        before: &[Arc<Left<LeftSenders>>],
        left: Arc<Left<LeftSenders>>,
    ) -> Self {
        let settings = SenderSettings {
            path: config.path.clone(),
            source_timeout: sink.source_timeout,
            counter: if config.is_monotonic_counter {
                Instrument::Counter
            } else {
                Instrument::UpDownCounter
            },
            by_process: config.peer_credentials,
        };
        let (file, max_kinds) = (config.file(), config.max_kinds.get());
        let mut senders = SendersByProcess::new();
        for before in before {
            let goes_on = |process: Option<Credentials>, sender: &mut Sender| {
                let is_allowed = !config.peer_credentials || file.allows(process);
                is_allowed && !senders.contains_key(&process) && sender.kinds.set_max(max_kinds)
            };
            let taken = before.take(|left| left.take(&settings, goes_on));
            senders.extend(taken.into_iter().flatten());
        }
        let mut all = Self {
            kinds_bytes: senders.values().map(|sender| sender.kinds.bytes()).sum(),
            senders,
            settings,
            max_kinds,
            file,
            sink,
            pending_events: 0,
            left,
        };
        // Those that several receivers left may be more.
        while all.is_over_limits() && all.forget_the_most_silent() {}
        all
    }

    fn is_over_limits(&self) -> bool {
        self.senders.len() > MAX_SENDERS || self.kinds_bytes > MAX_KINDS_BYTES
    }

    pub(super) fn take(&mut self, datagram: &[u8], received: &Received, now: UnixNanos) {
        if !self.file.allows(received.sender) {
            let why = "the user and the groups of the sender are not allowed";
            return self.sink.lose(1, "not_allowed", &why);
        }
        let whole = if received.truncated {
            self.without_torn_line(datagram)
        } else {
            datagram
        };
        let (sink, mut taken) = (self.sink.clone(), 0);
        let process = received.sender.filter(|_| self.settings.by_process);
        let sender = self.sender(process, now);
        let before = sender.kinds.bytes();
        for line in whole.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            match sender.take(line, now) {
                Ok(events) => taken += events,
                Err(refused) => sink.lose(1, refused.reason(), &refused.show(line)),
            }
        }
        let after = sender.kinds.bytes();
        self.pending_events += taken;
        self.kinds_bytes = self.kinds_bytes + after - before;
        if after > before {
            while self.kinds_bytes > MAX_KINDS_BYTES && self.forget_the_most_silent() {}
        }
    }

    /// The line that the end of the buffer cut through is lost.
    fn without_torn_line<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        self.sink
            .lose(1, "truncated", &"a datagram is larger than `max_datagram_size`");
        let end = datagram.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        datagram.get(..end).unwrap_or_default()
    }

    fn sender(&mut self, credentials: Option<Credentials>, now: UnixNanos) -> &mut Sender {
        if !self.senders.contains_key(&credentials) {
            // Several: those with pending events stayed before.
            while self.senders.len() >= MAX_SENDERS && self.forget_the_most_silent() {}
        }
        let (settings, max_kinds) = (&self.settings, self.max_kinds);
        let account = &self.sink.shared.memory;
        let sender = self.senders.entry(credentials).or_insert_with(|| {
            let source = new_source(&proto::Source::default(), credentials, settings.source_timeout);
            Sender {
                source: Arc::new(source),
                kinds: Kinds::new(max_kinds, settings.counter, account),
                columns: Columns::default(),
            }
        });
        sender.source.lease.touch(now);
        sender
    }

    /// Forgets the longest silent sender without pending events. Returns false if there is none.
    fn forget_the_most_silent(&mut self) -> bool {
        let idle = self
            .senders
            .iter()
            .filter(|(_, sender)| sender.columns.kinds.is_empty());
        let most_silent = idle.min_by_key(|(_, sender)| sender.source.lease.touched());
        let Some((credentials, sender)) = most_silent else {
            return false;
        };
        sender.source.lease.end();
        self.kinds_bytes -= sender.kinds.bytes();
        let credentials = *credentials;
        self.senders.remove(&credentials);
        true
    }

    pub(super) fn take_pending(&mut self) -> Vec<Events> {
        self.pending_events = 0;
        let now = unix_now();
        let senders = self.senders.values_mut();
        senders
            .filter(|sender| !sender.columns.kinds.is_empty())
            .map(|sender| sender.flush(now))
            .collect()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        let senders = mem::take(&mut self.senders);
        self.left.put(LeftSenders {
            settings: self.settings.clone(),
            senders,
        });
    }
}

/// The reason why a line gave no events.
enum Refused {
    Line(LineError),
    NegativeCount,
    TooManyKinds(u16),
    /// New kinds of a sender whose kinds have no bytes left.
    LongKinds,
    NoRoom,
}

impl Refused {
    fn reason(&self) -> &'static str {
        match self {
            Self::Line(LineError::Unsupported(_)) => "unsupported",
            Self::Line(_) => "malformed",
            Self::NegativeCount => "invalid",
            Self::TooManyKinds(_) | Self::LongKinds => "cardinality",
            Self::NoRoom => "memory",
        }
    }

    /// The message with the beginning of the line.
    fn show(&self, line: &[u8]) -> String {
        const SHOWN_BYTES: usize = 80;
        let why = match self {
            Self::Line(error) => error.to_string(),
            Self::NegativeCount => {
                "a counter can't fall (`is_monotonic_counter: false` allows it)".to_owned()
            }
            Self::TooManyKinds(max) => {
                format!("more than {max} combinations of name, type and tags (`max_kinds`)")
            }
            Self::LongKinds => format!(
                "combinations of name, type and tags of one sender take at most {} MiB",
                kinds::MAX_BYTES >> 20
            ),
            Self::NoRoom => "no room for a new combination of name, type and tags".to_owned(),
        };
        let start = line.get(..SHOWN_BYTES).unwrap_or(line);
        format!("{why}: {}", start.escape_ascii())
    }
}

impl Sender {
    /// Takes a line whole or not at all; gives the number of events.
    fn take(&mut self, text: &[u8], now: UnixNanos) -> Result<usize, Refused> {
        let line = statsd::parse(text).map_err(Refused::Line)?;
        let mut events = 0;
        for value in line.values() {
            let number = value.map_err(Refused::Line)?.number;
            if line.metric_type == Type::Counter
                && number < 0.0
                && self.kinds.counter() == Instrument::Counter
            {
                return Err(Refused::NegativeCount);
            }
            events += 1;
        }
        let kind = self.kinds.index_of(&line).map_err(|why| match why {
            NoKind::TooMany => Refused::TooManyKinds(self.kinds.max()),
            NoKind::TooLarge => Refused::LongKinds,
            NoKind::NoRoom => Refused::NoRoom,
        })?;
        for value in line.values().flatten() {
            let number = match line.metric_type {
                // A counter's rate is the share of increments that were sent: scale them up.
                Type::Counter => value.number / line.rate,
                Type::Gauge => self.kinds.gauge(kind, value.number, value.signed),
                Type::Timer | Type::Histogram | Type::Distribution => value.number,
            };
            self.columns.add(kind, number, &line, now);
        }
        Ok(events)
    }

    fn flush(&mut self, now: UnixNanos) -> Events {
        let columns = mem::take(&mut self.columns);
        Events {
            source: self.source.clone(),
            schema: self.kinds.schema(),
            kinds: columns.kinds,
            values: Values::F64(columns.values),
            times: columns.timed.then_some(columns.times),
            weights: columns.weighted.then_some(columns.weights),
            observed: now,
        }
    }
}

impl Columns {
    fn add(&mut self, kind: u16, number: f64, line: &Line<'_>, now: UnixNanos) {
        let weight = match line.metric_type {
            Type::Counter | Type::Gauge => 1.0,
            // One in 1 / rate observations was sent.
            Type::Timer | Type::Histogram | Type::Distribution => 1.0 / line.rate,
        };
        self.kinds.push(kind);
        self.values.push(number);
        self.times.push(
            line.seconds
                .map_or_else(|| clock::wall(now), |seconds| seconds.saturating_mul(SECOND_NS)),
        );
        self.weights.push(weight);
        self.timed |= line.seconds.is_some();
        self.weighted |= weight != 1.0;
    }
}

#[cfg(test)]
mod tests;
