//! Room for what an attempt makes of an export request: its decoded form, its text, its compressed form. And
//! the place where it is made: what is large is made beside the runtime's threads.
//!
//! The ledger counts the export request itself already and waits in its queue. Where memory is full of what
//! waits, only attempts can empty it: so one of them goes on at any time, and the others wait for their turn.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::export_request::ExportRequest;
use crate::batch::{Batch, Encoded, Payload, wire};
use crate::component::worker::Slot;
use crate::component::{Account, Held, Shared};

/// Less is not worth looking at: the answer to a request takes as much.
const SMALL: usize = 16 << 10;

/// What needs no more room is made on the spot: 64 KiB, and what they are compressed to, take less than a
/// millisecond. For less, the hop to another thread costs more than it spares.
pub(crate) const INLINE_BYTES: usize = 128 << 10;

/// Does work on what goes out: on the spot, or in a place for such work where it is long. It ends also when
/// its caller no longer waits.
///
/// # Errors
/// It has panicked, or the gateway stops.
pub(crate) async fn apart<T: Send + 'static>(
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
    done.map_err(|_| "making the request was broken off (a bug)".to_owned())
}

/// Whose turn it is where there is no room. One a gateway.
struct Turn(Arc<Semaphore>);

/// Room for what is made, until this is dropped.
#[derive(Debug)]
pub struct Making {
    held: Held,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Making {
    /// Room for so many bytes. Where there is none, it waits for its turn to go on without.
    pub async fn room(shared: &Shared, bytes: usize) -> Self {
        let account = &shared.memory;
        let mut held = Held::ours(account.clone());
        if bytes <= SMALL || is_reserved(account, &mut held, bytes) {
            return Self { held, _turn: None };
        }
        let turn = shared.parts.get(|| Turn(Arc::new(Semaphore::new(1))));
        // Never closed.
        let turn = turn.0.clone().acquire_owned().await.ok();
        if !is_reserved(account, &mut held, bytes) {
            held.promise(bytes);
        }
        Self { held, _turn: turn }
    }

    /// Makes what the room is for: beside the runtime's threads where it is large. The room stays until it is
    /// made, also when nobody waits for it any more, and then with what was made.
    ///
    /// # Errors
    /// The work has panicked, or the gateway stops.
    pub(crate) async fn make<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Held), String> {
        let is_long = self.held.bytes() > INLINE_BYTES;
        let make = move || {
            let made = work();
            (made, self.made())
        };
        apart(is_long, make).await
    }

    /// It is made, and stays for a while: others have their turn.
    pub fn made(self) -> Held {
        self.held
    }

    /// The same of what has so many bytes now.
    pub fn settle(mut self, bytes: usize) -> Held {
        self.held.settle(bytes);
        self.held
    }
}

/// No body that is on its way loses its room for an attempt, which can wait.
fn is_reserved(account: &Account, held: &mut Held, bytes: usize) -> bool {
    account.has_room(bytes) && held.try_grow_to(bytes).is_ok()
}

impl ExportRequest {
    /// What its decoded form takes, about.
    pub fn decoded_bytes(&self) -> usize {
        self.batches().iter().map(decoded_bytes).sum()
    }

    /// What it takes as one request of OTLP protobuf, about, where that has to be made: bytes that came as such are not
    /// copied.
    pub fn made_bytes(&self) -> usize {
        let made = |batch: &Batch| match &batch.payload {
            Payload::Encoded(_) => 0,
            Payload::Events(_) | Payload::Points(_) => decoded_bytes(batch) / 2,
        };
        self.batches().iter().map(made).sum()
    }

    /// The same, with all that comes as bytes: what it takes to join and compress it.
    pub fn joined_bytes(&self) -> usize {
        let of_wire = |batch: &Batch| match &batch.payload {
            Payload::Encoded(encoded) => encoded.bytes(),
            Payload::Events(_) | Payload::Points(_) => 0,
        };
        let of_wire: usize = self.batches().iter().map(of_wire).sum();
        2 * (of_wire + self.made_bytes())
    }

    /// What something takes that is to be made of it, by a look at each of its elements. For much that takes long.
    ///
    /// # Errors
    /// The work has panicked, or the gateway stops.
    pub(crate) async fn weighed(
        self,
        weigh: impl FnOnce(&Self) -> usize + Send + 'static,
    ) -> Result<(Self, usize), String> {
        /// A walk through so many bytes takes less than a millisecond.
        const LIGHT_BYTES: usize = 1 << 20;
        let is_long = self.joined_bytes() > 2 * LIGHT_BYTES;
        let weigh = move || {
            let bytes = weigh(&self);
            (self, bytes)
        };
        apart(is_long, weigh).await
    }

    /// What it takes to write it as JSON, at most: names of fields, numbers of 8 bytes as text, escaped characters.
    pub fn json_bytes(&self) -> usize {
        self.joined_bytes() + 2 * self.decoded_bytes()
    }
}

fn decoded_bytes(batch: &Batch) -> usize {
    /// A point whose series others share, and what is made of it.
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
        let first = Making::room(&shared, 3 * MIB).await;
        let second = Making::room(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 6 * MIB);
        // There is no room for two more: one has its turn all the same, the other waits for it.
        let third = Making::room(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 9 * MIB);
        let soon = Duration::from_secs(1);
        assert!(timeout(soon, Making::room(&shared, 3 * MIB)).await.is_err());
        assert!(!shared.memory.is_short(Ceiling::Soft), "no body loses its room");
        let kept = third.settle(MIB);
        let fourth = Making::room(&shared, 3 * MIB).await;
        assert_eq!(shared.memory.reserved_bytes(), 10 * MIB);
        drop((first, second, fourth, kept));
        assert_eq!(shared.memory.reserved_bytes(), 0);
        // Small requests are sent whatever happens.
        shared.memory.note(8 * MIB);
        let _first = Making::room(&shared, 3 * MIB).await;
        for _ in 0..3 {
            assert!(timeout(soon, Making::room(&shared, SMALL)).await.is_ok());
        }
    }

    #[tokio::test]
    async fn what_is_large_is_made_on_another_thread_and_keeps_its_room_when_nobody_waits() {
        const MIB: usize = 1 << 20;
        let shared = shared(8 * MIB);
        let make = async |bytes| {
            let making = Making::room(&shared, bytes).await;
            let (made_on, _held) = making.make(|| thread::current().id()).await.unwrap();
            made_on
        };
        let here = thread::current().id();
        assert_eq!(make(INLINE_BYTES).await, here);
        assert_ne!(make(INLINE_BYTES + 1).await, here);
        let (began, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::sync_channel::<()>(1);
        let making = Making::room(&shared, MIB).await.make(move || {
            began.send(()).unwrap();
            ends.recv()
        });
        tokio::select! {
            _ = making => panic!("it waits for its end"),
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
    async fn a_panic_while_something_is_made_is_told() {
        let broken: Result<(), String> = apart(true, || panic!("as a bug would")).await;
        assert!(broken.unwrap_err().contains("a bug"));
    }

    #[test]
    fn bytes_that_are_sent_as_they_came_need_no_room() {
        let export = ExportRequest::new(opaque(Signal::Logs, b"x", 1));
        assert_eq!(export.made_bytes(), 0);
        assert_eq!(export.joined_bytes(), 2 * export.encoded_bytes());
    }
}
