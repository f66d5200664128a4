// SPDX-License-Identifier: Apache-2.0

//! A connection, from its begin to its loss.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamError, GetStreamError};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectError, Event, ServerAddr};
use tokio::sync::watch;

use crate::shared::NatsShared;
use crate::stream::{open_stream, stream_config};

/// The most time for an answer of the store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection can't be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("can't read the credentials: {0}")]
    Credentials(std::io::Error),
    #[error("can't connect: {0}")]
    Connect(#[from] ConnectError),
    #[error("can't find the stream `{0}`: {1}")]
    Stream(String, GetStreamError),
    #[error("can't create the stream `{0}`: {1}")]
    Create(String, CreateStreamError),
    #[error(
        "`{setting}` of the stream `{stream}` is {found}, but must be {wanted}: change the stream or the option"
    )]
    Setting {
        stream: String,
        setting: &'static str,
        wanted: String,
        found: String,
    },
    #[error(
        "`num_replicas` of the stream `{stream}` is {found}, but must be {wanted}: run `nats stream edit {stream} \
         --replicas={wanted}`, or set `replicas: {found}`"
    )]
    Replicas {
        stream: String,
        wanted: usize,
        found: usize,
    },
}

/// A connection whose stream has been checked. Its calls fail after it is lost.
pub(crate) struct NatsLink {
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) stream: Stream<()>,
    is_lost: watch::Sender<bool>,
}

impl NatsLink {
    /// Connects to one of the servers, and opens the stream.
    pub(crate) async fn connect(shared: &NatsShared, servers: &[ServerAddr]) -> Result<Self, LinkError> {
        let options = shared.config.connect_options().await;
        let (is_lost, _) = watch::channel(false);
        let noted = is_lost.clone();
        let note = move |event: Event| {
            if matches!(event, Event::Disconnected | Event::Closed) {
                noted.send_replace(true);
            }
            std::future::ready(())
        };
        let options = options.map_err(LinkError::Credentials)?.event_callback(note);
        let client = options.connect(servers).await?;
        let context = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .ack_timeout(ANSWER_TIMEOUT)
            .build(client.clone());
        let wanted = stream_config(&shared.config, &shared.cluster);
        open_stream(&context, &wanted).await?;
        let stream = context.get_stream_no_info(&wanted.name).await;
        Ok(Self {
            client,
            context,
            stream: stream.map_err(|error| LinkError::Stream(wanted.name, error))?,
            is_lost,
        })
    }

    /// The server, without credentials.
    pub(crate) fn server(&self) -> String {
        let info = self.client.server_info();
        format!("{}:{}", info.host, info.port)
    }

    /// Ends the connection: the stream must be opened again.
    pub(crate) fn end(&self) {
        self.is_lost.send_replace(true);
    }

    /// Waits for the end.
    pub(crate) async fn lost(&self) {
        // `self` keeps the channel open.
        let _ = self.is_lost.subscribe().wait_for(|is_lost| *is_lost).await;
    }
}
