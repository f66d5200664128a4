// SPDX-License-Identifier: Apache-2.0

//! `uds`: events over Unix sockets. A stream socket accepts length-delimited `tidegate.v1.EventBatch` messages
//! with optional acknowledgements. A datagram socket accepts StatsD and DogStatsD lines.
//!
//! While the pipelines refuse, both stop reading: the senders' socket buffers fill, and nothing is lost.

pub mod config;
mod datagram;
#[cfg(fuzzing)]
pub mod fuzz;
mod kinds;
pub mod proto;
mod senders;
mod session;
mod silence;
mod sink;
mod source;
mod statsd;
mod stream;
mod weigh;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverContext,
    ReceiverFactory, Stability,
};
use crate::net::errors::SOCKET_ERRORS;
use crate::net::{ConnectionLimits, Endpoint, Listener, Server};
use crate::receivers::left::Left;
use config::{DatagramConfig, StreamConfig, UdsConfig};
use senders::LeftSenders;
use sink::EventSink;

/// The errors of `uds`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The receiver refuses data from a socket. `reason` and the text have the cause.",
        "refused from a socket",
        "Correct the sender. A stream ends after a message that is not valid.",
    ),
    ErrorDoc::logged(
        "The user and the groups of the sender are not allowed.",
        "the user and the groups of the sender are not allowed",
        "Add the user to `allowed_uids`, or a group to `allowed_gids`.",
    ),
    ErrorDoc::logged(
        "A message is larger than `max_frame_size`. The receiver disconnects the sender.",
        "is larger than `max_frame_size`",
        "Send smaller batches, or raise `max_frame_size`.",
    ),
    ErrorDoc::logged(
        "A datagram is larger than `max_datagram_size`.",
        "a datagram is larger than `max_datagram_size`",
        "Send smaller datagrams, or raise `max_datagram_size`.",
    ),
    ErrorDoc::logged(
        "The operating system fails to read the datagram socket. The receiver stops reading it.",
        "can't read from the datagram socket",
        "Restart the gateway, and look at the log of the kernel.",
    ),
];

/// The factory of `uds`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "uds",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "takes event batches and StatsD lines over Unix sockets",
    errors: &[ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<UdsConfig>(),
    build: |settings, cx| Ok(Arc::new(Uds::new(settings.get(), &cx)?)),
};

struct Uds {
    config: Arc<UdsConfig>,
    base: Context,
    sink: Arc<EventSink>,
    running: Mutex<RunningTasks>,
    /// The senders of datagrams, once it has stopped.
    left: Arc<Left<LeftSenders>>,
}

/// The running tasks from `start`, for `stop`.
#[derive(Default)]
struct RunningTasks {
    stream: Option<Server>,
    datagram: Option<datagram::Task>,
}

impl Uds {
    fn new(config: Arc<UdsConfig>, cx: &ReceiverContext) -> Result<Self, ComponentError> {
        let entry = cx.entry(Signal::Metrics).cloned();
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        Ok(Self {
            sink: Arc::new(EventSink::new(&cx.base, entry, config.source_timeout)),
            config,
            base: cx.base.clone(),
            running: Mutex::default(),
            left: Arc::default(),
        })
    }

    async fn start_stream(&self, config: &StreamConfig) -> Result<Server, ComponentError> {
        let endpoint = Endpoint::Unix(config.path.clone());
        let listener = Listener::bind(&endpoint, &config.file()).await;
        let listener = listener.map_err(|error| self.base.error(error.to_string()))?;
        let limits = ConnectionLimits::plain(config.max_connections.get()).of(&self.base.path);
        let (sink, config) = (self.sink.clone(), Arc::new(config.clone()));
        Ok(Server::start(listener, limits, move |connection| {
            stream::serve(connection, sink.clone(), config.clone())
        }))
    }

    fn start_datagram(&self, config: &DatagramConfig) -> Result<datagram::Task, ComponentError> {
        let task = datagram::Task::start(config, self.sink.clone(), &self.base, self.left.clone());
        task.map_err(|error| self.base.error(error.to_string()))
    }
}

impl Receiver for Uds {}

#[async_trait]
impl Lifecycle for Uds {
    async fn start(&self) -> Result<(), ComponentError> {
        // What has started is known to the stop, also if the other socket can't be made.
        if let Some(stream) = &self.config.stream {
            let server = self.start_stream(stream).await?;
            self.running.lock().stream = Some(server);
            tracing::info!(receiver = %self.base.id, path = %stream.path.display(), "listening for events");
        }
        if let Some(datagram) = &self.config.datagram {
            let task = self.start_datagram(datagram)?;
            self.running.lock().datagram = Some(task);
            tracing::info!(receiver = %self.base.id, path = %datagram.path.display(), "listening for datagrams");
        }
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let running = std::mem::take(&mut *self.running.lock());
        if let Some(stream) = running.stream {
            stream.stop(deadline).await;
        }
        if let Some(datagram) = running.datagram {
            datagram.stop(deadline).await;
        }
    }
}

#[cfg(test)]
mod tests;
