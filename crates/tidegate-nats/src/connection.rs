// SPDX-License-Identifier: Apache-2.0

//! How to reach the servers, and a connection from its begin to its loss.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};
use parking_lot::Mutex;
use tidegate_config::Secret;
use tokio::sync::watch;

use crate::{NatsError, NatsTlsConfig};

/// A server that does not answer for about three times this long is lost.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The begin of the error of a user without a permission.
const DENIED: &str = "Permissions Violation";

/// How to reach the servers.
#[derive(Clone, Debug, Default)]
pub struct NatsConnection {
    /// URLs of servers, without credentials.
    pub servers: Vec<String>,
    /// File with a user JWT and its seed. It is read for each connection.
    pub credentials_file: Option<PathBuf>,
    /// Name of the user.
    pub username: Option<String>,
    /// Password of the user.
    pub password: Option<Secret>,
    /// Token.
    pub token: Option<Secret>,
    /// Seed of an NKey.
    pub nkey: Option<Secret>,
    /// TLS. `None`: only if a server demands it.
    pub tls: Option<NatsTlsConfig>,
    /// Most time for a connection to one server.
    pub connect_timeout: Duration,
}

impl NatsConnection {
    /// The addresses of the servers.
    pub(crate) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsError> {
        if self.servers.is_empty() {
            return Err(NatsError::NoServers);
        }
        self.servers.iter().map(|url| address(url)).collect()
    }

    /// Checks the options without a connection.
    ///
    /// # Errors
    /// Options that are not valid or contradict each other.
    pub fn validate(&self) -> Result<(), NatsError> {
        self.addresses()?;
        let credentials = [
            self.credentials_file.is_some(),
            self.username.is_some(),
            self.token.is_some(),
            self.nkey.is_some(),
        ];
        if credentials.into_iter().filter(|is_set| *is_set).count() > 1 {
            return Err(NatsError::Credentials);
        }
        if self.username.is_some() != self.password.is_some() {
            return Err(NatsError::Password);
        }
        let tls = self.tls.as_ref();
        if tls.is_some_and(|tls| tls.cert_file.is_some() != tls.key_file.is_some()) {
            return Err(NatsError::Certificate);
        }
        Ok(())
    }

    /// The options of a connection.
    async fn connect_options(&self) -> std::io::Result<ConnectOptions> {
        let mut options = ConnectOptions::new()
            .name("tidegate")
            .connection_timeout(self.connect_timeout)
            .ping_interval(PING_INTERVAL)
            .ignore_discovered_servers()
            // The users of a connection make new ones themselves.
            .max_reconnects(self.servers.len())
            .reconnect_delay_callback(|_| Duration::ZERO);
        if let (Some(username), Some(password)) = (&self.username, &self.password) {
            options = options.user_and_password(username.clone(), password.expose().to_owned());
        }
        if let Some(token) = &self.token {
            options = options.token(token.expose().to_owned());
        }
        if let Some(seed) = &self.nkey {
            options = options.nkey(seed.expose().to_owned());
        }
        if let Some(tls) = &self.tls {
            options = with_tls(options, tls);
        }
        match &self.credentials_file {
            Some(file) => options.credentials_file(file).await,
            None => Ok(options),
        }
    }

    /// The error of a connection. The server does not say what is wrong with a JWT.
    fn refused(&self, error: ConnectError) -> ConnectionError {
        match &self.credentials_file {
            Some(file) if error.kind() == ConnectErrorKind::AuthorizationViolation => {
                ConnectionError::User(file.clone())
            }
            _ => ConnectionError::Connect(error),
        }
    }
}

fn address(url: &str) -> Result<ServerAddr, NatsError> {
    if url.contains('@') {
        return Err(NatsError::ServerCredentials);
    }
    url.parse().map_err(|_| NatsError::Server(url.to_owned()))
}

fn with_tls(mut options: ConnectOptions, tls: &NatsTlsConfig) -> ConnectOptions {
    options = options.require_tls(true);
    if let Some(file) = &tls.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let (Some(certificate), Some(key)) = (&tls.cert_file, &tls.key_file) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options
}

/// Why a connection can't be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Options(#[from] NatsError),
    #[error("can't read the credentials: {0}")]
    Credentials(std::io::Error),
    #[error("can't connect: {0}")]
    Connect(ConnectError),
    #[error(
        "can't connect: authorization violation: the server refuses the user of `{}`. If its JWT has expired or is \
         revoked, write a new one to this file", .0.display()
    )]
    User(PathBuf),
}

impl ConnectionError {
    /// Whether the servers do not accept the user.
    pub(crate) fn is_login(&self) -> bool {
        match self {
            Self::User(_) | Self::Credentials(_) => true,
            Self::Connect(error) => matches!(
                error.kind(),
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
            ),
            Self::Options(_) => false,
        }
    }
}

/// Notes the loss of a connection also if its task ends without an event: the client panics at some invalid headers.
struct LossNote(watch::Sender<bool>);

impl Drop for LossNote {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// A connection until its loss. Its owner then makes a new one.
pub(crate) struct LiveConnection {
    pub(crate) client: Client,
    is_lost: watch::Sender<bool>,
    denied: Arc<Mutex<Option<String>>>,
}

impl LiveConnection {
    /// Connects to one of the servers.
    pub(crate) async fn open(connection: &NatsConnection) -> Result<Self, ConnectionError> {
        let denied = Arc::new(Mutex::new(None));
        let noted = denied.clone();
        Self::open_noting(connection, denied, move |error| {
            noted.lock().get_or_insert(error);
        })
        .await
    }

    /// The same; `note_denied` gets the errors about permissions that the user lacks.
    pub(crate) async fn open_with(
        connection: &NatsConnection,
        note_denied: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, ConnectionError> {
        Self::open_noting(connection, Arc::default(), note_denied).await
    }

    async fn open_noting(
        connection: &NatsConnection,
        denied: Arc<Mutex<Option<String>>>,
        note_denied: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, ConnectionError> {
        let servers = connection.addresses()?;
        let options = connection.connect_options().await;
        let (is_lost, _) = watch::channel(false);
        let noted = LossNote(is_lost.clone());
        let note = move |event: Event| {
            match event {
                Event::Disconnected | Event::Closed => {
                    noted.0.send_replace(true);
                }
                // The calls that need the permission get no answer.
                Event::ServerError(ServerError::Other(error)) if error.starts_with(DENIED) => {
                    note_denied(error);
                }
                _ => {}
            }
            std::future::ready(())
        };
        let options = options
            .map_err(ConnectionError::Credentials)?
            .event_callback(note);
        let client = options.connect(&*servers).await;
        Ok(Self {
            client: client.map_err(|error| connection.refused(error))?,
            is_lost,
            denied,
        })
    }

    /// The server, without credentials.
    pub(crate) fn server(&self) -> String {
        let info = self.client.server_info();
        format!("{}:{}", info.host, info.port)
    }

    /// The first permission that the user lacks.
    pub(crate) fn denied(&self) -> Option<String> {
        self.denied.lock().clone()
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.is_lost.send_replace(true);
    }

    pub(crate) fn is_lost(&self) -> bool {
        *self.is_lost.borrow()
    }

    /// Waits for the end.
    pub(crate) async fn lost(&self) {
        // `self` keeps the channel open.
        let _ = self.is_lost.subscribe().wait_for(|is_lost| *is_lost).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_credentials_is_refused_and_not_shown() {
        let servers = |url: &str| NatsConnection {
            servers: vec![url.to_owned()],
            ..NatsConnection::default()
        };
        assert!(servers("nats://a:4222").addresses().is_ok());
        assert!(servers("a:4222").addresses().is_ok());
        let error = servers("nats://u:hunter2@a:4222").addresses().unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
        assert!(matches!(
            servers("http://a").addresses(),
            Err(NatsError::Server(_))
        ));
        assert!(NatsConnection::default().addresses().is_err());
    }
}
