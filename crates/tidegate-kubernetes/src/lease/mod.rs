// SPDX-License-Identifier: Apache-2.0

//! Election of a leader by a Lease of Kubernetes.
//!
//! A process leads for `renew_deadline` from the moment at which it asked for a renewal that the server confirmed, by its
//! own clock. Others take the Lease when they have seen no change for `duration`, which is longer. The server orders the
//! writes by the version of the Lease. So two processes do not lead together, unless a clock runs much too slowly.

mod record;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use tidegate_runtime::{Account, Every, Held, wall_now};
use tokio::task::JoinHandle;

pub use self::record::LeaseTimes;
use self::record::{LeaseRecord, LeaseStep};
use crate::client::ApiClient;
use crate::error::WatchError;
use crate::follower::client_of;
use crate::kind::escaped;
use crate::watcher::next_chunk;

/// The most bytes of a Lease.
const MAX_BYTES: usize = 64 << 10;

/// The factor between JSON and the memory to read and write it.
const READ_FACTOR: usize = 64;

/// The time after which the files of a pod are read again.
const CONNECT_INTERVAL: Duration = Duration::from_secs(30);

/// The longest time for the release of the Lease at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after a conflict of the release.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// At most one log line in this time about failed attempts.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// A process that stands for election does so for this long (10 s), unless it says so again. A replica that shows many series
/// says so every few seconds.
const STAND_TERM: Duration = Duration::from_secs(10);

/// The part of a retry period that is added at random, so that processes do not ask together.
const JITTER: f64 = 0.2;

/// The options of an election.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this process, which no other process has.
    pub identity: String,
    /// A kubeconfig file. `None`: the account of this pod.
    pub kubeconfig_file: Option<PathBuf>,
    /// The durations.
    pub times: LeaseTimes,
}

/// The end of the time for which this process leads, by both clocks. The wall clock goes on while the machine is suspended.
#[derive(Clone, Copy)]
struct LeadershipEnd {
    at: Instant,
    wall: u64,
}

#[derive(Default)]
struct ElectionState {
    end: Option<LeadershipEnd>,
    stands_until: Option<Instant>,
    holder: String,
    trouble: Option<String>,
}

/// The part that the task and the users share.
#[derive(Default)]
struct Election(Mutex<ElectionState>);

impl Election {
    fn is_leading(&self) -> bool {
        let end = self.0.lock().end;
        end.is_some_and(|end| Instant::now() < end.at && wall_now() < end.wall)
    }

    fn stands(&self) -> bool {
        let until = self.0.lock().stands_until;
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// Takes part in an election from its start to [`LeaseElector::stop`].
pub struct LeaseElector {
    options: LeaseOptions,
    election: Arc<Election>,
    account: Arc<Account>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl LeaseElector {
    /// Starts as a task of the current runtime. It does not stand yet.
    pub fn start(options: LeaseOptions, account: &Arc<Account>) -> Self {
        let election = Arc::<Election>::default();
        let elector = Self {
            task: Mutex::default(),
            account: account.clone(),
            election,
            options,
        };
        *elector.task.lock() = Some(tokio::spawn(elector.attempts().run()));
        elector
    }

    fn attempts(&self) -> Attempts {
        let LeaseOptions {
            identity,
            name,
            times,
            ..
        } = &self.options;
        Attempts {
            record: LeaseRecord::new(identity.clone(), name.clone(), times.duration),
            options: self.options.clone(),
            election: self.election.clone(),
            account: self.account.clone(),
            errors: Every::new(LOG_INTERVAL),
        }
    }

    /// Whether this process leads now.
    pub fn is_leading(&self) -> bool {
        self.election.is_leading()
    }

    /// Says whether this process is able to lead. Call it at least once a second.
    pub fn stand(&self, stands: bool) {
        let until = stands.then(|| Instant::now() + STAND_TERM);
        self.election.0.lock().stands_until = until;
    }

    /// The holder of the Lease, as far as it is known.
    pub fn holder(&self) -> String {
        self.election.0.lock().holder.clone()
    }

    /// Why the last attempt failed. `None`: it did not.
    pub fn trouble(&self) -> Option<String> {
        self.election.0.lock().trouble.clone()
    }

    /// Stops to lead, and releases the Lease if this process holds it.
    pub async fn stop(&self) {
        let was_leading = self.is_leading();
        self.election.0.lock().end = None;
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // Cancelled, as asked for.
            let _ = task.await;
        }
        if was_leading && let Ok(client) = client_of(self.options.kubeconfig_file.as_deref()) {
            // Without an answer, the Lease is free after its time.
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, self.attempts().release(&client)).await;
        }
    }
}

impl Drop for LeaseElector {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// The task of an election.
struct Attempts {
    options: LeaseOptions,
    record: LeaseRecord,
    election: Arc<Election>,
    account: Arc<Account>,
    errors: Every,
}

impl Attempts {
    async fn run(mut self) {
        let mut client = self.client().await;
        loop {
            let times = self.options.times;
            // A connection that hangs leaves the time for another attempt.
            let timeout = times.renew_deadline / 2;
            let attempt = tokio::time::timeout(timeout, self.attempt(&client)).await;
            let hangs = attempt.is_err();
            self.note(attempt.unwrap_or(Err(WatchError::TimedOut(timeout))).err());
            if hangs {
                // HTTP/2 would send the next request on the same connection. The term has time for one on a new connection.
                client = self.client().await;
                continue;
            }
            let jitter = 1.0 + JITTER * rand::rng().random_range(0.0..1.0);
            tokio::time::sleep(times.retry_period.mul_f64(jitter)).await;
        }
    }

    /// The files of a pod may come after the start, so this waits for them.
    async fn client(&self) -> ApiClient {
        loop {
            match client_of(self.options.kubeconfig_file.as_deref()) {
                Ok(client) => return client,
                Err(why) => {
                    tracing::warn!("no election by the Lease {}: {why}", self.options.name);
                    self.election.0.lock().trouble = Some(why);
                }
            }
            tokio::time::sleep(CONNECT_INTERVAL).await;
        }
    }

    fn note(&self, error: Option<WatchError>) {
        if let Some(error) = &error {
            let reason = error.reason();
            metrics::counter!("tidegate_kubernetes_errors_total", "kind" => "leases", "reason" => reason)
                .increment(1);
            if let Some(suppressed) = self.errors.ready() {
                let lease = &*self.options.name;
                tracing::warn!(lease, suppressed, "the election by a Lease failed: {error}");
            }
        }
        let mut state = self.election.0.lock();
        state.trouble = error.map(|error| error.to_string());
        self.record.holder().clone_into(&mut state.holder);
    }

    /// Renews the Lease, or takes it if it is free. Who is not able to lead gives it back.
    async fn attempt(&mut self, client: &ApiClient) -> Result<(), WatchError> {
        if !self.election.stands() {
            let led = self.election.0.lock().end.take();
            if led.is_some() {
                self.release(client).await?;
            }
            return Ok(());
        }
        // Before anything is sent: the server confirms no earlier than this.
        let (asked, asked_wall) = (Instant::now(), wall_now());
        let read = self.read(client).await?;
        let step = self.record.read(
            read,
            Instant::now(),
            UNIX_EPOCH + Duration::from_nanos(wall_now()),
        );
        let written = match step {
            LeaseStep::Wait => {
                self.election.0.lock().end = None;
                return Ok(());
            }
            LeaseStep::Create(lease) => self.write(client, Method::POST, &lease).await?,
            LeaseStep::Update(lease) => self.write(client, Method::PUT, &lease).await?,
        };
        let term = self.options.times.renew_deadline;
        let wall = asked_wall.saturating_add(u64::try_from(term.as_nanos()).unwrap_or(u64::MAX));
        // After a conflict, the next attempt reads what another process has written.
        let end = written.then(|| LeadershipEnd {
            at: asked + term,
            wall,
        });
        if written {
            self.record.written();
        }
        self.election.0.lock().end = end;
        Ok(())
    }

    async fn release(&self, client: &ApiClient) -> Result<(), WatchError> {
        loop {
            let Some(lease) = self.read(client).await? else {
                return Ok(());
            };
            let wall = UNIX_EPOCH + Duration::from_nanos(wall_now());
            let Some(released) = self.record.released(lease, wall) else {
                return Ok(());
            };
            // A conflict: another process has it, or the last renewal of this one came late and keeps it.
            if self.write(client, Method::PUT, &released).await? {
                return Ok(());
            }
            tokio::time::sleep(CONFLICT_PAUSE).await;
        }
    }

    fn path(&self, name: &str) -> String {
        let namespace = escaped(&self.options.namespace);
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{name}")
    }

    /// The Lease. `None`: it does not exist.
    async fn read(&self, client: &ApiClient) -> Result<Option<Value>, WatchError> {
        let path = self.path(&format!("/{}", escaped(&self.options.name)));
        let mut body = match client.get(&path).await {
            Err(WatchError::Status(StatusCode::NOT_FOUND, _)) => return Ok(None),
            answer => answer?,
        };
        let mut held = Held::new(self.account.clone());
        let mut json = Vec::new();
        while let Some(chunk) = next_chunk(&mut body, self.options.times.renew_deadline).await? {
            let length = json.len() + chunk.len();
            if length > MAX_BYTES {
                return Err(WatchError::Body(format!(
                    "a Lease of more than {MAX_BYTES} bytes"
                )));
            }
            held.try_grow_to(length.saturating_mul(READ_FACTOR))?;
            json.extend_from_slice(&chunk);
        }
        let lease: Value =
            serde_json::from_slice(&json).map_err(|error| WatchError::Body(error.to_string()))?;
        if lease["metadata"].is_object() && (lease["spec"].is_object() || lease["spec"].is_null()) {
            Ok(Some(lease))
        } else {
            Err(WatchError::Body("the answer is not a Lease".to_owned()))
        }
    }

    /// Writes the Lease. `false`: another process was faster.
    async fn write(&self, client: &ApiClient, method: Method, lease: &Value) -> Result<bool, WatchError> {
        let path = match method {
            Method::POST => self.path(""),
            _ => self.path(&format!("/{}", escaped(&self.options.name))),
        };
        let is_update = method == Method::PUT;
        let mut lease = lease.clone();
        lease["apiVersion"] = "coordination.k8s.io/v1".into();
        lease["kind"] = "Lease".into();
        match client.send(method, &path, Bytes::from(lease.to_string())).await {
            Ok(()) => Ok(true),
            Err(WatchError::Status(StatusCode::CONFLICT, _)) => Ok(false),
            // Another process has deleted it. A Lease that can't be created has no namespace.
            Err(WatchError::Status(StatusCode::NOT_FOUND, _)) if is_update => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
