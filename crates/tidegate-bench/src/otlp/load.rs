//! What is sent: as fast as it is taken, or at a pace.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use super::codec::{METHOD, Raw};
use super::request;
use crate::Error;

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// After a refusal it is tried again.
const AGAIN: Duration = Duration::from_millis(2);
/// A start may take so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Senders on the runtime that they were started on; they end when this is dropped.
pub(crate) struct Load {
    _senders: JoinSet<()>,
    refused: Arc<Refused>,
}

/// What was not taken.
#[derive(Default)]
struct Refused {
    /// Requests that were sent again.
    count: AtomicU64,
    /// What was said last to one that was not.
    why: Mutex<Option<String>>,
}

impl Load {
    /// Sends requests of so many points as fast as they are taken, `in_flight` at a time.
    pub(crate) async fn full(port: u16, points: usize, in_flight: usize) -> Result<Self, Error> {
        let (client, refused) = (connect(port).await?, Arc::<Refused>::default());
        let message = request::request(points, 0);
        let mut senders = JoinSet::new();
        for _ in 0..in_flight {
            let (client, message, refused) = (client.clone(), message.clone(), refused.clone());
            senders.spawn(async move {
                loop {
                    send(&client, message.clone(), &refused).await;
                }
            });
        }
        Ok(Self {
            _senders: senders,
            refused,
        })
    }

    /// Sends so many requests a second, stamped with the time when each was due.
    pub(crate) async fn paced(port: u16, points: usize, a_second: u32) -> Result<Self, Error> {
        let (client, refused) = (connect(port).await?, Arc::<Refused>::default());
        let counted = refused.clone();
        let mut senders = JoinSet::new();
        senders.spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / a_second);
            let mut under_way = JoinSet::new();
            loop {
                ticks.tick().await;
                while under_way.try_join_next().is_some() {}
                let (client, refused) = (client.clone(), counted.clone());
                let message = request::request(points, now_ns());
                under_way.spawn(async move { send(&client, message, &refused).await });
            }
        });
        Ok(Self {
            _senders: senders,
            refused,
        })
    }

    /// Requests that were refused; each was sent again.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.count.load(Relaxed)
    }

    /// What was said last to a request that could not be sent again.
    pub(crate) fn failure(&self) -> Option<String> {
        self.refused
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn connect(port: u16) -> Result<Grpc<Channel>, Error> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(64 << 20);
    let connecting = async {
        loop {
            match endpoint.connect().await {
                Ok(channel) => return Grpc::new(channel),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    };
    let connected = tokio::time::timeout(PATIENCE, connecting).await;
    connected.map_err(|_| "the gateway did not listen in time".into())
}

async fn send(client: &Grpc<Channel>, message: Bytes, refused: &Refused) {
    loop {
        let mut client = client.clone();
        if client.ready().await.is_err() {
            return;
        }
        let method = PathAndQuery::from_static(METHOD);
        match client.unary(Request::new(message.clone()), method, Raw).await {
            Ok(_) => return,
            Err(status) if matches!(status.code(), Code::Unavailable | Code::ResourceExhausted) => {
                refused.count.fetch_add(1, Relaxed);
                tokio::time::sleep(AGAIN).await;
            }
            Err(status) => {
                *refused.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(status.to_string());
                return tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
