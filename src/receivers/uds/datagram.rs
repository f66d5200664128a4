// SPDX-License-Identifier: Apache-2.0

//! The datagram socket: it drains all datagrams, into one batch of events for each sender and wake-up.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::Arc;
use std::time::Instant;

use foldhash::{HashMap, HashMapExt};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketType, recvmsg,
    sockopt::set_socket_passcred,
};
use tidegate_engine::{Events, Instrument, Source, UnixNanos, Values, clock};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::DatagramConfig;
use super::kinds::{self, Kinds, NoKind};
use super::proto;
use super::sink::EventSink;
use super::source::new_source;
use super::statsd::{self, Line, LineError, Type};
use crate::component::unix_now;
use crate::net::{Credentials, ListenError, SocketFile, SocketFileConfig};

/// Events drained before they are pushed although more datagrams wait: bounds memory and keeps values fresh.
const MAX_DRAIN_EVENTS: usize = 16 << 10;

/// Bytes drained before others have their turn, whatever is in them: about a millisecond's work.
const MAX_DRAIN_BYTES: usize = 128 << 10;

/// The most senders that are distinguished. Beyond it, the one that is silent for longest is forgotten.
const MAX_SENDERS: usize = 1024;

/// The most bytes of all senders' kinds. Beyond it, senders that are silent for longest are forgotten.
const MAX_KINDS_BYTES: usize = 8 * kinds::MAX_BYTES;

/// Nanoseconds in a second, for `|T`.
const SECOND_NS: u64 = 1_000_000_000;

/// The running reader.
pub(super) struct Task {
    stopping: CancellationToken,
    handle: JoinHandle<()>,
}

impl Task {
    /// Binds the socket and begins to read.
    pub(super) fn start(config: &DatagramConfig, sink: Arc<EventSink>) -> Result<Self, ListenError> {
        let (socket, file) = SocketFile::create(&config.path, &config.file(), SocketType::DGRAM, |path| {
            let socket = StdDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            set_socket_passcred(&socket, config.wants_credentials())?;
            UnixDatagram::from_std(socket)
        })?;
        let stopping = CancellationToken::new();
        let reader = Reader {
            socket,
            buffer: vec![0; config.max_datagram_size.as_usize()].into(),
            senders: Senders::new(config, sink.clone()),
            sink,
            stopping: stopping.clone(),
        };
        Ok(Self {
            stopping,
            handle: tokio::spawn(reader.run(file)),
        })
    }

    /// Takes what waits in the socket, pushes it, and ends; at the deadline in any case.
    pub(super) async fn stop(self, deadline: Instant) {
        self.stopping.cancel();
        let abort = self.handle.abort_handle();
        if tokio::time::timeout_at(deadline.into(), self.handle)
            .await
            .is_err()
        {
            abort.abort();
        }
    }
}

struct Reader {
    socket: UnixDatagram,
    buffer: Box<[u8]>,
    senders: Senders,
    sink: Arc<EventSink>,
    stopping: CancellationToken,
}

impl Reader {
    async fn run(mut self, file: SocketFile) {
        let stopping = self.stopping.clone();
        while let Some(ready) = stopping.run_until_cancelled(self.socket.readable()).await {
            if let Err(error) = ready {
                tracing::error!(path = %file.path().display(), %error, "can't read from the datagram socket");
                return;
            }
            self.drain(|socket, buffer| socket.try_io(Interest::READABLE, || receive(socket, buffer)));
            self.push().await;
            tokio::task::yield_now().await;
            stopping
                .run_until_cancelled(self.sink.memory_is_available())
                .await;
        }
        // New senders no longer find the socket. Datagrams that were sent before still count.
        // (The runtime may not have noticed yet that there is something: ask the socket itself.)
        drop(file);
        loop {
            let is_empty = self.drain(receive);
            self.push().await;
            if is_empty {
                return;
            }
        }
    }

    /// Reads until the socket is empty (then `true`) or enough has been read.
    fn drain(&mut self, receive: impl Fn(&UnixDatagram, &mut [u8]) -> io::Result<Received>) -> bool {
        let now = unix_now();
        let mut bytes = 0;
        while self.senders.pending_events < MAX_DRAIN_EVENTS && bytes < MAX_DRAIN_BYTES {
            let Ok(received) = receive(&self.socket, &mut self.buffer) else {
                return true;
            };
            bytes += received.bytes;
            let datagram = self.buffer.get(..received.bytes).unwrap_or_default();
            self.senders.take(datagram, &received, now);
        }
        false
    }

    async fn push(&mut self) {
        for events in self.senders.take_pending() {
            // Permanently refused events are counted already.
            let _ = self.sink.push_until_taken(events, None, &self.stopping).await;
        }
    }
}

/// A datagram in the buffer.
struct Received {
    bytes: usize,
    truncated: bool,
    sender: Option<Credentials>,
}

fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::DONTWAIT,
    )?;
    let sender = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.into()),
        _ => None,
    });
    Ok(Received {
        bytes: message.bytes,
        truncated: message.flags.contains(ReturnFlags::TRUNC),
        sender,
    })
}

/// The senders of this socket: only one, unless credentials distinguish them.
struct Senders {
    senders: HashMap<Option<Credentials>, Sender>,
    max_kinds: u16,
    counter: Instrument,
    /// The restrictions on senders.
    file: SocketFileConfig,
    /// Whether senders are distinguished.
    by_process: bool,
    sink: Arc<EventSink>,
    pending_events: usize,
    /// The bytes of all senders' kinds.
    kinds_bytes: usize,
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
    fn new(config: &DatagramConfig, sink: Arc<EventSink>) -> Self {
        let counter = if config.is_monotonic_counter {
            Instrument::Counter
        } else {
            Instrument::UpDownCounter
        };
        Self {
            senders: HashMap::new(),
            max_kinds: config.max_kinds.get(),
            counter,
            file: config.file(),
            by_process: config.peer_credentials,
            sink,
            pending_events: 0,
            kinds_bytes: 0,
        }
    }

    fn take(&mut self, datagram: &[u8], received: &Received, now: UnixNanos) {
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
        let sender = self.sender(received.sender.filter(|_| self.by_process), now);
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
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&credentials) {
            self.forget_the_most_silent();
        }
        let (timeout, counter, max_kinds) = (self.sink.source_timeout, self.counter, self.max_kinds);
        let account = &self.sink.shared.memory;
        let sender = self.senders.entry(credentials).or_insert_with(|| Sender {
            source: Arc::new(new_source(&proto::Source::default(), credentials, timeout)),
            kinds: Kinds::new(max_kinds, counter, account),
            columns: Columns::default(),
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

    fn take_pending(&mut self) -> Vec<Events> {
        self.pending_events = 0;
        let now = unix_now();
        let senders = self.senders.values_mut();
        senders
            .filter(|sender| !sender.columns.kinds.is_empty())
            .map(|sender| sender.flush(now))
            .collect()
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
        let columns = std::mem::take(&mut self.columns);
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
