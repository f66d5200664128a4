// SPDX-License-Identifier: Apache-2.0

//! The datagram socket: it drains all datagrams, into one batch of events for each sender and wake-up.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketType, recvmsg,
    sockopt::set_socket_passcred,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::DatagramConfig;
use super::senders::{LeftSenders, Senders};
use super::sink::EventSink;
use crate::component::{Context, unix_now};
use crate::net::{Credentials, ListenError, SocketFile};
use crate::receivers::left::{self, Left};

/// Events drained before they are pushed although more datagrams wait: bounds memory and keeps values fresh.
const MAX_DRAIN_EVENTS: usize = 16 << 10;

/// Bytes drained before others have their turn, whatever is in them: about a millisecond's work.
const MAX_DRAIN_BYTES: usize = 128 << 10;

/// The running reader.
pub(super) struct Task {
    stopping: CancellationToken,
    handle: JoinHandle<()>,
}

impl Task {
    /// Binds the socket and begins to read. `left`: where the senders stay after the end.
    pub(super) fn start(
        config: &DatagramConfig,
        sink: Arc<EventSink>,
        base: &Context,
        left: Arc<Left<LeftSenders>>,
    ) -> Result<Self, ListenError> {
        let (socket, file) = SocketFile::create(&config.path, &config.file(), SocketType::DGRAM, |path| {
            let socket = StdDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            set_socket_passcred(&socket, config.wants_credentials())?;
            UnixDatagram::from_std(socket)
        })?;
        // A receiver that can't listen takes no senders: the next one may.
        let before = left::succeed(base, &left);
        let stopping = CancellationToken::new();
        let reader = Reader {
            socket,
            buffer: vec![0; config.max_datagram_size.as_usize()].into(),
            senders: Senders::new(config, sink.clone(), &before, left),
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
pub(super) struct Received {
    pub(super) bytes: usize,
    pub(super) truncated: bool,
    pub(super) sender: Option<Credentials>,
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
