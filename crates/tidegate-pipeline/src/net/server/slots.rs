// SPDX-License-Identifier: Apache-2.0

//! The slots for connections, with their file descriptors. While no slot is free, the server asks idle connections
//! to close.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::net::descriptors;

/// The interval at which one more idle connection is asked to close while a new connection finds no slot.
const CROWD_AGAIN: Duration = Duration::from_millis(50);

/// The slots for connections.
pub(super) struct Slots {
    /// The slots of this listener.
    all: Arc<Semaphore>,
    /// File descriptors reserved for this listener.
    own: Arc<Semaphore>,
    /// File descriptors that all listeners share.
    shared: Arc<Semaphore>,
    /// Wakes an idle connection.
    pub(super) crowd: Arc<Notify>,
}

/// A slot, and its file descriptor.
pub(super) struct ConnectionSlot {
    _place: OwnedSemaphorePermit,
    _descriptor: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new(max_connections: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            own: Arc::new(Semaphore::new(descriptors::OWN)),
            shared: descriptors::shared(),
            crowd: Arc::default(),
        }
    }

    /// Waits for a slot. While none is free, idle connections are asked to close.
    pub(super) async fn take(&self) -> Option<ConnectionSlot> {
        let mut place = pin!(self.all.clone().acquire_owned());
        let place = loop {
            if self.all.available_permits() == 0 {
                self.crowd.notify_one();
            }
            tokio::select! {
                biased;
                place = &mut place => break place.ok()?,
                () = sleep(CROWD_AGAIN) => {}
            }
        };
        let free = [&self.own, &self.shared].into_iter();
        let mut free = free.filter_map(|descriptors| descriptors.clone().try_acquire_owned().ok());
        let descriptor = match free.next() {
            Some(descriptor) => descriptor,
            None => {
                let mut own = pin!(self.own.clone().acquire_owned());
                let mut shared = pin!(self.shared.clone().acquire_owned());
                // Another listener may take the descriptor that a connection of this listener releases.
                loop {
                    self.crowd.notify_one();
                    tokio::select! {
                        own = &mut own => break own.ok()?,
                        shared = &mut shared => break shared.ok()?,
                        () = sleep(CROWD_AGAIN) => {}
                    }
                }
            }
        };
        Some(ConnectionSlot {
            _place: place,
            _descriptor: descriptor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_has_descriptors_when_others_took_all() {
        let slots = Slots {
            shared: Arc::new(Semaphore::new(0)),
            ..Slots::new(100)
        };
        let mut own = Vec::new();
        for _ in 0..descriptors::OWN {
            own.push(slots.take().await.unwrap());
        }
        let next = tokio::time::timeout(Duration::from_millis(20), slots.take()).await;
        assert!(next.is_err(), "there is none left");
        own.pop();
        assert!(slots.take().await.is_some());
        slots.shared.add_permits(1);
        own.push(slots.take().await.unwrap());
    }
}
