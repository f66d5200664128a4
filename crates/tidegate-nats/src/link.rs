// SPDX-License-Identifier: Apache-2.0

//! A connection, from its begin to its loss.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamError, GetStreamError};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectError, ConnectErrorKind, Event, ServerAddr, ServerError};
use tokio::sync::watch;

use crate::NatsConfig;
use crate::shared::NatsShared;
use crate::stream::{open_stream, stream_config};

/// The most time for an answer of the store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The begin of the error of a user without a permission.
const DENIED: &str = "Permissions Violation";

/// Why a connection can't be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("can't read the credentials: {0}")]
    Credentials(std::io::Error),
    #[error("can't connect: {0}")]
    Connect(ConnectError),
    #[error(
        "can't connect: authorization violation: the server refuses the user of `{}`. If its JWT has expired or is \
         revoked, write a new one to this file", .0.display()
    )]
    User(PathBuf),
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

/// The error of a connection. The server does not say what is wrong with a JWT.
fn refused(config: &NatsConfig, error: ConnectError) -> LinkError {
    match &config.credentials_file {
        Some(file) if error.kind() == ConnectErrorKind::AuthorizationViolation => {
            LinkError::User(file.clone())
        }
        _ => LinkError::Connect(error),
    }
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
    pub(crate) async fn connect(shared: &Arc<NatsShared>, servers: &[ServerAddr]) -> Result<Self, LinkError> {
        shared.allow();
        let options = shared.config.connect_options().await;
        let (is_lost, _) = watch::channel(false);
        let (noted, status) = (is_lost.clone(), shared.clone());
        let note = move |event: Event| {
            match event {
                Event::Disconnected | Event::Closed => {
                    noted.send_replace(true);
                }
                // The calls that need the permission get no answer.
                Event::ServerError(ServerError::Other(error)) if error.starts_with(DENIED) => {
                    status.note_denied(error);
                }
                _ => {}
            }
            std::future::ready(())
        };
        let options = options.map_err(LinkError::Credentials)?.event_callback(note);
        let client = options.connect(servers).await;
        let client = client.map_err(|error| refused(&shared.config, error))?;
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
