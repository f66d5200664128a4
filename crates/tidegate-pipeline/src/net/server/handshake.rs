// SPDX-License-Identifier: Apache-2.0

//! The TLS handshake of a connection, with its timeout.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::Ended;
use crate::net::stream::{Peer, Stream};
use crate::net::tls::TlsServer;

/// The timeout of a TLS handshake, which holds a connection slot.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same while other connections wait for the slot.
const CROWDED_HANDSHAKE: Duration = Duration::from_secs(2);

/// The stream after the TLS handshake, if the server uses TLS.
pub(super) async fn secure(
    stream: Stream,
    peer: Peer,
    tls: Option<Arc<TlsServer>>,
    crowd: &Notify,
    component: &str,
) -> Result<Stream, Ended> {
    let Some(tls) = tls else {
        return Ok(stream);
    };
    // The files were read once, so a value always exists.
    let tls = tls.current().map_err(|_| Ended::Handshake)?;
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    match in_time(acceptor.accept(stream), crowd).await {
        Some(Ok(stream)) => Ok(Stream::Tls(Box::new(stream.into()))),
        Some(Err(error)) => {
            tracing::debug!(component, ?peer, %error, "TLS handshake failed");
            Err(Ended::Handshake)
        }
        None => {
            tracing::debug!(component, ?peer, "TLS handshake took too long");
            Err(Ended::SlowHandshake)
        }
    }
}

/// Waits for a handshake until its timeout, which is shorter while others wait for the slot.
async fn in_time<T>(handshake: impl Future<Output = T>, crowd: &Notify) -> Option<T> {
    let crowded = async {
        sleep(CROWDED_HANDSHAKE).await;
        crowd.notified().await;
    };
    tokio::select! {
        biased;
        done = handshake => Some(done),
        () = crowded => None,
        () = sleep(HANDSHAKE_TIMEOUT) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::server::slots::Slots;

    #[tokio::test(start_paused = true)]
    async fn a_silent_handshake_makes_room_after_2_s_where_others_wait() {
        let slots = Slots::new(1);
        let taken = slots.take().await.unwrap();
        let began = tokio::time::Instant::now();
        let crowd = slots.crowd.clone();
        let handshake = async move {
            let done = in_time(std::future::pending::<()>(), &crowd).await;
            drop(taken);
            done
        };
        let (done, place) = tokio::join!(handshake, slots.take());
        assert!(done.is_none() && place.is_some());
        let took = began.elapsed();
        assert!(
            took >= CROWDED_HANDSHAKE && took < 2 * CROWDED_HANDSHAKE,
            "{took:?}"
        );
        let alone = Notify::new();
        let began = tokio::time::Instant::now();
        assert!(in_time(std::future::pending::<()>(), &alone).await.is_none());
        assert!(began.elapsed() >= HANDSHAKE_TIMEOUT);
    }
}
