// SPDX-License-Identifier: Apache-2.0

//! `basicauth`: names and passwords (RFC 7617).

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::attempts::Attempts;
use super::htpasswd::{Stored, Users, sha1};
use super::{LOOK, SecretFile, digest, secret_file};
use crate::batch::ClientMetadata;
use crate::component::account::SenderKey;
use crate::component::auth::{Authenticator, Credentials, Unauthenticated};
use crate::component::files;
use crate::component::services::Services;
use crate::component::worker::in_background;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use crate::config::{Node, Problems, Secret};
use crate::net::reload::Reloading;

crate::options! {
    /// Options of the `basicauth` extension: exactly one of these.
    pub struct BasicAuthConfig {
        /// Names and passwords of senders, for receivers.
        pub htpasswd: Option<HtpasswdConfig> = None,
        /// Name and password of the gateway, for exporters.
        pub client_auth: Option<ClientConfig> = None,
    }
    check = BasicAuthConfig::check
}

crate::options! {
    /// Lines of `name:password`. The password is a bcrypt hash or plain text.
    pub struct HtpasswdConfig {
        /// File with such lines. The extension reads it again after a change.
        pub file: Option<PathBuf> = None,
        /// The lines themselves. They precede those of the file.
        pub inline: Secret = Secret::default(),
        /// Most wrong passwords of one address per minute. Beyond it, the address gets 503 with `Retry-After`.
        /// Addresses of this machine don't count. 0: no limit, for example behind a proxy.
        pub max_failures_per_minute: u32 = 60,
    }
}

crate::options! {
    /// A name and a password.
    pub struct ClientConfig {
        /// Name of the user that exporters send.
        pub username: String = String::new(),
        /// Password that exporters send.
        pub password: Secret = Secret::default(),
        /// File with the name, instead of `username`. The extension reads it again after a change.
        pub username_file: Option<PathBuf> = None,
        /// File with the password, instead of `password`. The extension reads it again after a change.
        pub password_file: Option<PathBuf> = None,
    }
    check = ClientConfig::check
}

impl BasicAuthConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        match (&self.htpasswd, &self.client_auth) {
            (None, None) => cx
                .at(at)
                .help("`htpasswd` has the names of senders, `client_auth` that of the gateway")
                .error("neither `htpasswd` nor `client_auth` is given"),
            (Some(_), Some(_)) => cx
                .at(at.child("client_auth"))
                .error("`htpasswd` and `client_auth` belong in two extensions"),
            (Some(htpasswd), None) => {
                let at = at.child("htpasswd");
                let inline = htpasswd.inline.expose();
                if htpasswd.file.is_none() && inline.is_empty() {
                    cx.at(at).error("`file` or `inline` must be given");
                }
                if let Err(why) = Users::parse(inline) {
                    cx.at(at.child("inline")).error(why);
                }
            }
            (None, Some(_)) => {}
        }
    }
}

impl ClientConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.username.is_empty() == self.username_file.is_none() {
            cx.at(at)
                .error("one of `username` and `username_file` must be given");
        }
        if self.username.contains(':') {
            cx.at(at.child("username")).error("a name must not contain `:`");
        }
    }
}

/// The errors of `basicauth`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::logged(
    "The gateway can't check passwords, for example because a file can't be read.",
    "no request can be authenticated",
    "Correct the file or the memory limit that the line names. Senders get 401 meanwhile.",
)];

/// The factory of `basicauth`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "basicauth",
    aliases: &["basic_auth"],
    stability: Stability::Beta,
    help: "authenticates with names and passwords: senders (receivers) or the gateway (exporters)",
    errors: &[ERRORS],
    config: ConfigType::of::<BasicAuthConfig>(),
    build: |settings, cx| {
        let config = settings.get::<BasicAuthConfig>();
        Ok(Arc::new(BasicAuth {
            server: config
                .htpasswd
                .clone()
                .map(|htpasswd| Arc::new(BasicServer::new(htpasswd))),
            client: config
                .client_auth
                .clone()
                .map(|client| Arc::new(BasicClient::new(client))),
            base: cx,
        }))
    },
};

struct BasicAuth {
    server: Option<Arc<BasicServer>>,
    client: Option<Arc<BasicClient>>,
    base: Context,
}

#[async_trait]
impl Lifecycle for BasicAuth {
    /// Reads the files now, because an unreadable one would refuse everybody later.
    async fn start(&self) -> Result<(), ComponentError> {
        let users = self
            .server
            .as_ref()
            .map_or(Ok(()), |server| server.users.current().map(drop));
        let header = self
            .client
            .as_ref()
            .map_or(Ok(()), |client| client.header().map(drop));
        users.and(header).map_err(|error| self.base.error(error))
    }
}

impl Extension for BasicAuth {
    fn services(&self) -> Services {
        Services {
            authenticator: self.server.clone().map(|server| server as Arc<dyn Authenticator>),
            credentials: self.client.clone().map(|client| client as Arc<dyn Credentials>),
            ..Services::default()
        }
    }
}

/// Checks of hashes that run at a time: each takes a core for a tenth of a second, on purpose.
const CHECKS: usize = 2;
const TOO_OFTEN: Unauthenticated = Unauthenticated::TooOften {
    why: "too many wrong passwords came from this address: come back later",
    retry_after: Duration::from_secs(1),
};
/// Checks that wait for their turn: some seconds of work.
const MAX_WAITING: usize = 32;
const CROWDED: Unauthenticated = Unauthenticated::TooOften {
    why: "too many passwords wait to be checked: come back later",
    retry_after: Duration::from_secs(1),
};
/// Headers that were found right and are not hashed again. The one that was not used for longest makes room for another.
const MAX_KNOWN: usize = 1024;

struct BasicServer {
    users: Reloading<Arc<KnownUsers>, String>,
    checks: Arc<Semaphore>,
    /// Checks that wait for one of them.
    waiting: AtomicUsize,
    attempts: Attempts,
}

/// One that waits, as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    /// Counts a waiting check. `None`: too many wait already.
    fn among(count: &'a AtomicUsize) -> Option<Self> {
        let before = count.fetch_add(1, Relaxed);
        let waiting = Self(count);
        (before < MAX_WAITING).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Users, and which headers were found right as long as these are the users.
struct KnownUsers {
    users: Users,
    /// See [`Users::cost`].
    costliest: Option<u32>,
    right: Mutex<Right>,
}

impl KnownUsers {
    fn right(&self) -> parking_lot::MutexGuard<'_, Right> {
        self.right.lock()
    }
}

/// Digests of headers that were found right, and when each was last used: at which use of all.
#[derive(Default)]
struct Right {
    used: HashMap<[u8; 32], u64>,
    uses: u64,
}

impl Right {
    /// Whether a header is among them. It is used now.
    fn has(&mut self, mark: &[u8; 32]) -> bool {
        self.uses += 1;
        let used = self.used.get_mut(mark);
        used.map(|used| *used = self.uses).is_some()
    }

    fn add(&mut self, mark: [u8; 32]) {
        if self.used.len() >= MAX_KNOWN {
            let oldest = self.used.iter().min_by_key(|(_, used)| **used);
            let oldest = oldest.map(|(mark, _)| *mark);
            oldest.map(|mark| self.used.remove(&mark));
        }
        self.uses += 1;
        self.used.insert(mark, self.uses);
    }
}

impl BasicServer {
    fn new(config: HtpasswdConfig) -> Self {
        let file = config.file.clone();
        let attempts = Attempts::new(config.max_failures_per_minute);
        let load = move || {
            let mut lines = String::new();
            if let Some(file) = &config.file {
                let text = files::read_text(file);
                lines = text.map_err(|error| format!("{}: {error}", file.display()))?;
                lines.push('\n');
            }
            // The last of two lines for one name counts.
            lines.push_str(config.inline.expose());
            let users = Users::parse(&lines)?;
            Ok(Arc::new(KnownUsers {
                costliest: users.cost(),
                users,
                right: Mutex::default(),
            }))
        };
        Self {
            users: Reloading::new(file, Some(LOOK), load),
            checks: Arc::new(Semaphore::new(CHECKS)),
            waiting: AtomicUsize::new(0),
            attempts,
        }
    }

    /// Takes the same time for every name, whether it is known and however its password is kept: as long as the
    /// costliest hash takes. A check that has begun keeps its turn to its end, also when the client has gone.
    async fn is_right(
        &self,
        stored: Option<Stored>,
        password: String,
        costliest: Option<u32>,
    ) -> Result<bool, Unauthenticated> {
        let Some(costliest) = costliest else {
            return Ok(matches(stored, &password));
        };
        let waiting = Waiting::among(&self.waiting).ok_or(CROWDED)?;
        let turn = self.checks.clone().acquire_owned().await;
        drop(waiting);
        let Ok(turn) = turn else {
            return Ok(false);
        };
        let check = move || {
            let _turn = turn;
            let spent = stored.as_ref().and_then(Stored::cost);
            pad(&password, spent, costliest);
            matches(stored, &password)
        };
        Ok(in_background(check).await.unwrap_or(false))
    }
}

/// Whether a password is the one that is kept.
fn matches(stored: Option<Stored>, password: &str) -> bool {
    match stored {
        Some(Stored::Plain(kept)) => digest(password.as_bytes()) == kept,
        // Compares digests of both, so that the time does not show the position of a difference.
        Some(Stored::Sha1(kept)) => digest(&sha1(password.as_bytes())) == digest(&kept),
        Some(Stored::Bcrypt(hash)) => bcrypt::verify(password, &hash).unwrap_or(false),
        None => false,
    }
}

/// Spends what a check of cost `spent` lacks to one of cost `costliest`. Each step of the cost doubles the time, so a
/// check of cost c and hashes of the costs c, c + 1 and so on below the highest take as long as one of the highest.
fn pad(password: &str, spent: Option<u32>, costliest: u32) {
    const SALT: [u8; 16] = [0; 16];
    for cost in padding(spent, costliest) {
        let _ = std::hint::black_box(bcrypt::hash_with_salt(password, cost, SALT));
    }
}

/// The costs of the hashes that [`pad`] makes.
fn padding(spent: Option<u32>, costliest: u32) -> std::ops::Range<u32> {
    spent.map_or(costliest..costliest + 1, |spent| spent..costliest)
}

#[async_trait]
impl Authenticator for BasicServer {
    async fn check(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<(), Unauthenticated> {
        let header = headers
            .get(AUTHORIZATION)
            .ok_or(Unauthenticated::Wrong("no authorization was sent"))?;
        let known = self.users.current().map_err(|error| {
            tracing::error!(error, "no request can be authenticated");
            Unauthenticated::Wrong("the gateway can't check passwords now")
        })?;
        let mark = digest(header.as_bytes());
        if known.right().has(&mark) {
            return Ok(());
        }
        let (name, password) =
            decode(header).ok_or(Unauthenticated::Wrong("the authorization is not Basic"))?;
        let attempt = self.attempts.begin(from).ok_or(TOO_OFTEN)?;
        let stored = known.users.get(&name).cloned();
        match self.is_right(stored, password, known.costliest).await {
            Ok(false) => return Err(Unauthenticated::Wrong("wrong name or password")),
            // One that was not checked does not count either.
            answer => {
                attempt.give_back();
                answer?;
            }
        }
        known.right().add(mark);
        Ok(())
    }

    fn identity(&self, headers: &HeaderMap) -> Option<SenderKey> {
        let (name, _) = decode(headers.get(AUTHORIZATION)?)?;
        Some(SenderKey::of(name))
    }

    fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static("Basic realm=\"tidegate\", charset=\"UTF-8\"")
    }
}

/// Name and password of a header.
fn decode(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded.trim())
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

struct BasicClient {
    config: ClientConfig,
    username: Option<SecretFile>,
    password: Option<SecretFile>,
}

impl BasicClient {
    fn new(config: ClientConfig) -> Self {
        Self {
            username: config.username_file.as_deref().map(secret_file),
            password: config.password_file.as_deref().map(secret_file),
            config,
        }
    }

    fn header(&self) -> Result<HeaderValue, String> {
        let of = |file: &Option<SecretFile>, given: &str| match file {
            Some(file) => file
                .current()
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned()),
            None => Ok(given.to_owned()),
        };
        let name = of(&self.username, &self.config.username)?;
        let password = of(&self.password, self.config.password.expose())?;
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        let mut value =
            HeaderValue::try_from(format!("Basic {encoded}")).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Credentials for BasicClient {
    fn apply(&self, headers: &mut HeaderMap, _: Option<&ClientMetadata>) -> Result<(), String> {
        headers.insert(AUTHORIZATION, self.header()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
