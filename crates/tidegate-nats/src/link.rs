// SPDX-License-Identifier: Apache-2.0

//! The connection of an engine, with its stream.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamError, GetStreamError};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ContextBuilder};
use tokio::sync::OnceCell;

use crate::connection::{ConnectionError, LiveConnection};
use crate::shared::NatsShared;
use crate::stream::{open_stream, stream_config};

/// The most time for an answer of the store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection can't be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
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
    pub(crate) connection: LiveConnection,
    pub(crate) context: Context,
    pub(crate) stream: Stream<()>,
    /// All reads wait for it. One that began during the repair could end the connection, and so the repair.
    pub(crate) repaired: OnceCell<()>,
}

impl NatsLink {
    /// Connects to one of the servers, and opens the stream.
    pub(crate) async fn connect(shared: &Arc<NatsShared>) -> Result<Self, LinkError> {
        shared.allow();
        let status = shared.clone();
        let note_denied = move |error| status.note_denied(error);
        let connection = LiveConnection::open_with(&shared.config.connection(), note_denied).await?;
        let context = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .ack_timeout(ANSWER_TIMEOUT)
            .build(connection.client.clone());
        let wanted = stream_config(&shared.config, &shared.cluster);
        open_stream(&context, &wanted).await?;
        let stream = context.get_stream_no_info(&wanted.name).await;
        Ok(Self {
            connection,
            context,
            stream: stream.map_err(|error| LinkError::Stream(wanted.name, error))?,
            repaired: OnceCell::new(),
        })
    }

    /// Ends the connection: the stream must be opened again.
    pub(crate) fn end(&self) {
        self.connection.end();
    }

    /// Waits for the end.
    pub(crate) async fn lost(&self) {
        self.connection.lost().await;
    }
}
