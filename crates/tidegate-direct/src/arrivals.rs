// SPDX-License-Identifier: Apache-2.0

//! The bodies of calls while they arrive. They hold no permit of a call, so slow peers do not delay others.
//!
//! A body takes room as its bytes arrive, and not before: a peer that sends slowly holds little. The bodies from one address
//! hold at most half of the room, so that a peer that stalls after many bytes leaves room for other addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;

/// The room for bodies.
pub(crate) struct Arrivals {
    /// The most bytes of a body.
    max_body_bytes: usize,
    /// A permit is a byte.
    room: Arc<Semaphore>,
    /// The permits of each address.
    share: usize,
    /// The addresses with bodies now.
    addresses: Mutex<HashMap<Option<IpAddr>, Arc<Semaphore>>>,
}

/// A body that has arrived. It holds its room.
pub(crate) struct ArrivedBody {
    pub(crate) bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl Arrivals {
    /// Room for `bytes`, and for two bodies of `max_body_bytes` at least.
    pub(crate) fn new(bytes: usize, max_body_bytes: usize) -> Self {
        let max_body_bytes = max_body_bytes.min(u32::MAX as usize);
        let share = (bytes / 2).max(max_body_bytes).min(Semaphore::MAX_PERMITS / 2);
        Self {
            max_body_bytes,
            room: Arc::new(Semaphore::new(2 * share)),
            share,
            addresses: Mutex::default(),
        }
    }

    /// Reads a body. The caller limits the time.
    ///
    /// # Errors
    /// The body is too large, breaks off, or grows when there is no room.
    pub(crate) async fn read(&self, from: Option<IpAddr>, mut body: Body) -> Result<ArrivedBody, Status> {
        let share = self.share_of(from);
        let mut bytes = BytesMut::new();
        let mut held: Option<[OwnedSemaphorePermit; 2]> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if bytes.len() + data.len() > self.max_body_bytes {
                return Err(Status::resource_exhausted("the call is too large"));
            }
            match &mut held {
                // It holds nothing yet, so others do not wait for it while it waits.
                None => {
                    let of_address = acquire(&share, data.len()).await?;
                    held = Some([of_address, acquire(&self.room, data.len()).await?]);
                }
                Some([of_address, of_all]) => {
                    of_address.merge(acquire_now(&share, data.len())?);
                    of_all.merge(acquire_now(&self.room, data.len())?);
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok(ArrivedBody {
            bytes: bytes.freeze(),
            _room: held.into_iter().flatten().collect(),
        })
    }

    fn share_of(&self, from: Option<IpAddr>) -> Arc<Semaphore> {
        let mut addresses = self.addresses.lock();
        // A permit holds its semaphore too.
        addresses.retain(|_, share| Arc::strong_count(share) > 1);
        let share = addresses.entry(from);
        share
            .or_insert_with(|| Arc::new(Semaphore::new(self.share)))
            .clone()
    }
}

/// `bytes` is at most [`Arrivals::max_body_bytes`], which fits.
async fn acquire(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
    let permit = room.clone().acquire_many_owned(bytes as u32).await;
    permit.map_err(|_| Status::unavailable("the replica is stopping"))
}

fn acquire_now(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
    let permit = room.clone().try_acquire_many_owned(bytes as u32);
    permit.map_err(|_| Status::unavailable("the replica has no room for more calls: try again later"))
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    const ROOM: usize = 100;

    fn body(bytes: usize) -> Body {
        Body::new(Full::new(Bytes::from(vec![7; bytes])))
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn bodies_of_one_address_leave_room_for_those_of_another() {
        let arrivals = Arrivals::new(ROOM, 50);
        let held = arrivals.read(address(1), body(50)).await.unwrap();
        let waiting = arrivals.read(address(1), body(1));
        tokio::pin!(waiting);
        let other = tokio::select! {
            biased;
            _ = &mut waiting => panic!("the address has its share already"),
            other = arrivals.read(address(2), body(50)) => other.unwrap(),
        };
        assert_eq!((held.bytes.len(), other.bytes.len()), (50, 50));
        drop((held, other));
        assert_eq!(waiting.await.unwrap().bytes.len(), 1);
        assert_eq!(arrivals.room.available_permits(), ROOM);
    }

    #[tokio::test]
    async fn a_large_body_is_refused_and_addresses_are_forgotten() {
        let arrivals = Arrivals::new(ROOM, 50);
        assert!(arrivals.read(address(1), body(51)).await.is_err());
        for last in 2..20 {
            assert!(arrivals.read(address(last), body(50)).await.is_ok());
        }
        assert_eq!(arrivals.addresses.lock().len(), 1);
        assert_eq!(arrivals.read(None, Body::empty()).await.unwrap().bytes.len(), 0);
    }
}
