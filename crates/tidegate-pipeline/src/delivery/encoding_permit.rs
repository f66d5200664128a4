// SPDX-License-Identifier: Apache-2.0

//! Memory reservations for the forms of an export request: decoded, as text, and compressed. Large forms are made
//! on a thread outside of the runtime.
//!
//! The ledger already counts the export request, which waits in its queue. If waiting requests fill the memory,
//! only attempts can free it. So one attempt continues at any time without a reservation, and the others wait for
//! their turn.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::export_request::ExportRequest;
use crate::batch::{Batch, Encoded, Payload, wire};
use crate::component::worker::Slot;
use crate::component::{Account, Held, Shared};

/// Sizes up to this need no reservation. The answer to a request takes as much.
const SMALL: usize = 16 << 10;

/// Sizes up to this are made inline: 64 KiB and its compressed form take less than a millisecond. The hop to
/// another thread would cost more than it saves.
pub const INLINE_BYTES: usize = 128 << 10;

/// Runs work for an outgoing request: inline, or in a slot on another thread if it is long. It completes even if
/// its caller no longer waits.
///
/// # Errors
/// The work has panicked, or the gateway stops.
pub async fn apart<T: Send + 'static>(
    is_long: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    if !is_long {
        return Ok(work());
    }
    let done = match Slot::to_send().await {
        Ok(slot) => slot.run(work).await,
        Err(overloaded) => Err(overloaded),
    };
    done.map_err(|_| "encoding the request was interrupted (a bug)".to_owned())
}

/// The permit to continue without a reservation. Each gateway has one.
struct Turn(Arc<Semaphore>);

/// A memory reservation for a form of a request, until the drop.
#[derive(Debug)]
pub struct EncodingPermit {
    held: Held,
    _turn: Option<OwnedSemaphorePermit>,
}

impl EncodingPermit {
    /// Reserves `bytes`. Without free memory, it waits for its turn to continue above the limit.
    pub async fn reserve(shared: &Shared, bytes: usize) -> Self {
        let account = &shared.memory;
        let mut held = Held::ours(account.clone());
        if bytes <= SMALL || is_reserved(account, &mut held, bytes) {
            return Self { held, _turn: None };
        }
        let turn = shared.parts.get(|| Turn(Arc::new(Semaphore::new(1))));
        // The semaphore is never closed.
        let turn = turn.0.clone().acquire_owned().await.ok();
        if !is_reserved(account, &mut held, bytes) {
            held.promise(bytes);
        }
        Self { held, _turn: turn }
    }

    /// Makes a form of the request, on another thread if the reservation is large. The reservation lasts until the
    /// work ends, even if the caller no longer waits, and then belongs to the result.
    ///
    /// # Errors
    /// The work has panicked, or the gateway stops.
    pub async fn make<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Held), String> {
        let is_long = self.held.bytes() > INLINE_BYTES;
        let make = move || {
            let made = work();
            (made, self.finish())
        };
        apart(is_long, make).await
    }

    /// Ends the turn and keeps the reservation, for a finished result.
    pub fn finish(self) -> Held {
        self.held
    }

    /// Like [`Self::finish`], for a result whose size is `bytes`.
    pub fn finish_with(mut self, bytes: usize) -> Held {
        self.held.keep(bytes);
        self.held
    }
}

/// Reserves memory only above the share of incoming bodies, because an attempt can wait.
fn is_reserved(account: &Account, held: &mut Held, bytes: usize) -> bool {
    account.has_room(bytes) && held.try_grow_to(bytes).is_ok()
}

impl ExportRequest {
    /// The approximate size of its decoded form, in bytes.
    pub fn decoded_bytes(&self) -> usize {
        self.batches().iter().map(decoded_bytes).sum()
    }

    /// The approximate size of one OTLP request in bytes, without the payloads that already are encoded. These are
    /// not copied.
    pub fn message_bytes(&self) -> usize {
        let made = |batch: &Batch| match &batch.payload {
            Payload::Encoded(_) => 0,
            Payload::Events(_) | Payload::Points(_) => decoded_bytes(batch) / 2,
        };
        self.batches().iter().map(made).sum()
    }

    /// The approximate bytes to join and compress it, including the encoded payloads.
    pub fn joined_bytes(&self) -> usize {
        let of_wire = |batch: &Batch| match &batch.payload {
            Payload::Encoded(encoded) => encoded.bytes(),
            Payload::Events(_) | Payload::Points(_) => 0,
        };
        let of_wire: usize = self.batches().iter().map(of_wire).sum();
        2 * (of_wire + self.message_bytes())
    }

    /// The size of a form to make, from a walk through all elements. The walk takes long for large requests.
    ///
    /// # Errors
    /// The work has panicked, or the gateway stops.
    pub async fn weighed(
        self,
        weigh: impl FnOnce(&Self) -> usize + Send + 'static,
    ) -> Result<(Self, usize), String> {
        /// A walk through this many bytes takes less than a millisecond.
        const LIGHT_BYTES: usize = 1 << 20;
        let is_long = self.joined_bytes() > 2 * LIGHT_BYTES;
        let weigh = move || {
            let bytes = weigh(&self);
            (self, bytes)
        };
        apart(is_long, weigh).await
    }

    /// The largest size as JSON in bytes: field names, 8-byte numbers as text, escaped characters.
    pub fn json_bytes(&self) -> usize {
        self.joined_bytes() + 2 * self.decoded_bytes()
    }
}

fn decoded_bytes(batch: &Batch) -> usize {
    /// The approximate size in bytes of a point that shares its series, with its converted forms.
    const POINT_BYTES: usize = 512;
    const EVENT_BYTES: usize = 256;
    match &batch.payload {
        Payload::Encoded(encoded) => weight(encoded),
        Payload::Events(events) => events.len() * EVENT_BYTES,
        Payload::Points(points) => points.points.len() * POINT_BYTES,
    }
}

fn weight(encoded: &Encoded) -> usize {
    let parts = encoded.parts.iter();
    parts.map(|part| wire::weight(encoded.signal, &part.bytes)).sum()
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::batch::Signal;
    use crate::component::Ceiling;
    use crate::delivery::testing::opaque;

    fn shared(limit: usize) -> Arc<Shared> {
        let shared = Arc::new(Shared::default());
        shared.memory.add_limit(crate::component::Limit::of(limit));
        shared
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_have_room_and_without_it_one_goes_on_after_the_other() {
        const MIB: usize = 1 << 20;
        let shared = shared(8 * MIB);
        let first = EncodingPermit::reserve(&shared, 3 * MIB).await;
        let second = EncodingPermit::reserve(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 6 * MIB);
        // Memory has no space for two more. One has its turn, and the other waits for it.
        let third = EncodingPermit::reserve(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 9 * MIB);
        let soon = Duration::from_secs(1);
        assert!(
            timeout(soon, EncodingPermit::reserve(&shared, 3 * MIB))
                .await
                .is_err()
        );
        assert!(!shared.memory.is_short(Ceiling::Soft), "no body loses its room");
        let kept = third.finish_with(MIB);
        let fourth = EncodingPermit::reserve(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 10 * MIB);
        drop((first, second, fourth, kept));
        assert_eq!(shared.memory.reserved_bytes(), 0);
        // Small requests need no reservation.
        shared.memory.note(8 * MIB);
        let _first = EncodingPermit::reserve(&shared, 3 * MIB).await;
        for _ in 0..3 {
            assert!(
                timeout(soon, EncodingPermit::reserve(&shared, SMALL))
                    .await
                    .is_ok()
            );
        }
    }

    #[tokio::test]
    async fn a_large_body_is_made_on_another_thread_and_keeps_its_room() {
        const MIB: usize = 1 << 20;
        let shared = shared(8 * MIB);
        let make = async |bytes| {
            let permit = EncodingPermit::reserve(&shared, bytes).await;
            let (made_on, _held) = permit.make(|| thread::current().id()).await.unwrap();
            made_on
        };
        let here = thread::current().id();
        assert_eq!(make(INLINE_BYTES).await, here);
        assert_ne!(make(INLINE_BYTES + 1).await, here);
        let (began, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::sync_channel::<()>(1);
        let permit = EncodingPermit::reserve(&shared, MIB).await.make(move || {
            began.send(()).unwrap();
            ends.recv()
        });
        tokio::select! {
            _ = permit => panic!("it waits for its end"),
            begun = begins => begun.unwrap(),
        }
        assert_eq!(shared.memory.reserved_bytes(), MIB);
        end.send(()).unwrap();
        let given_back = async {
            while shared.memory.reserved_bytes() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(30), given_back).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_while_a_body_is_made_is_reported() {
        let broken: Result<(), String> = apart(true, || panic!("as a bug would")).await;
        assert!(broken.unwrap_err().contains("a bug"));
    }

    #[test]
    fn bytes_that_are_sent_as_they_came_need_no_room() {
        let export = ExportRequest::new(opaque(Signal::Logs, b"x", 1));
        assert_eq!(export.message_bytes(), 0);
        assert_eq!(export.joined_bytes(), 2 * export.encoded_bytes());
    }
}
