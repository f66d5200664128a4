// SPDX-License-Identifier: Apache-2.0

//! Memory for unsent answers. A client that reads none of its answers takes memory from other readers, not from
//! senders. Only a single answer of that size can take all of it.

use std::sync::Arc;

use bytes::Bytes;

use crate::component::Account;
use crate::component::account::SenderKey;
use crate::net::shares::{Most, NoShare, Share, Shares};

/// Short answers have their own part of the memory, for probes and autoscalers. In bytes.
const SHORT: usize = 64 << 10;

/// The memory limit of unsent answers.
pub(super) struct ResponseMemory {
    /// The component of the answers.
    component: Arc<str>,
    /// The limit in bytes; `None`: it follows from the limit of `memory`.
    configured: Option<usize>,
    memory: Arc<Account>,
    shares: Arc<Shares>,
}

/// Bytes with a reservation, until their last reference is dropped.
struct Held {
    bytes: Bytes,
    _share: Share,
}

/// Counts a refused answer of a component, because unread answers of clients take too much memory.
pub fn count_refusal(component: &Arc<str>) {
    metrics::counter!("tidegate_answers_refused_total", "component" => component.clone()).increment(1);
}

/// The default limit of all unsent answers of a server in bytes, given the memory limit.
pub fn max_answer_bytes(memory: usize) -> usize {
    const USUAL: usize = 64 << 20;
    const LEAST: usize = 1 << 20;
    (memory / 16).clamp(LEAST, USUAL)
}

impl ResponseMemory {
    pub(super) fn of(component: &Arc<str>, configured: Option<usize>, memory: Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            component: component.clone(),
            configured,
            memory,
            shares: Arc::default(),
        })
    }

    /// The limit in bytes. It is computed each time, because memory limiters come and go.
    fn bytes(&self) -> usize {
        let configured = self.configured;
        configured.unwrap_or_else(|| max_answer_bytes(self.memory.limit()))
    }

    /// Counts an answer that was refused because memory is short.
    pub(super) fn count_refusal(&self) {
        count_refusal(&self.component);
    }

    /// Reserves memory for bytes, until they are dropped. A client with several answers may take three quarters of
    /// the memory, and the rest for short answers.
    ///
    /// # Errors Memory is short, or the client has not read its earlier answers.
    pub(super) fn hold(self: &Arc<Self>, bytes: Bytes, client: Option<SenderKey>) -> Result<Bytes, NoShare> {
        let room = self.bytes();
        let quarter = room / 4;
        let most = if bytes.len() <= SHORT {
            Most {
                of_all: room.saturating_add(quarter),
                of_one: room,
            }
        } else {
            Most {
                of_all: room,
                of_one: room - quarter,
            }
        };
        let share = self.shares.take(bytes.len(), client, most)?;
        Ok(Bytes::from_owner(Held { bytes, _share: share }))
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_mib() -> Arc<ResponseMemory> {
        ResponseMemory::of(&"admin".into(), Some(1 << 20), Arc::default())
    }

    fn answer(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[test]
    fn a_room_is_a_sixteenth_of_the_memory_limit_and_64_mib_at_most() {
        let memory = Arc::<Account>::default();
        let room = ResponseMemory::of(&"zpages".into(), None, memory.clone());
        assert_eq!(room.bytes(), 64 << 20);
        memory.add_limit(crate::component::Limit::of(64 << 20));
        assert_eq!(room.bytes(), 4 << 20);
        assert!(room.hold(answer(5 << 20), None).is_err());
        memory.add_limit(crate::component::Limit::of(1 << 20));
        assert_eq!(room.bytes(), 1 << 20);
    }

    #[test]
    fn answers_take_room_until_the_last_piece_of_them_is_gone() {
        let room = of_mib();
        let mut first = room.hold(answer(900 << 10), None).unwrap();
        assert!(room.hold(answer(200 << 10), None).is_err());
        let piece = first.split_to(10);
        drop(first);
        assert!(
            room.hold(answer(200 << 10), None).is_err(),
            "a piece keeps it all"
        );
        drop(piece);
        assert!(room.hold(answer(200 << 10), None).is_ok());
        assert_eq!(room.shares.taken(), 0);
    }

    #[test]
    fn short_answers_have_room_of_their_own() {
        let room = of_mib();
        let _large = room.hold(answer(1 << 20), None).unwrap();
        let short = || room.hold(Bytes::from_static(b"{}"), None);
        assert!(short().is_ok());
        let most = || room.hold(answer(SHORT), None).ok();
        let held: Vec<_> = std::iter::from_fn(most).collect();
        assert_eq!(held.len(), 4, "a quarter");
        assert!(short().is_err());
    }

    #[test]
    fn a_client_that_reads_nothing_leaves_room_to_others() {
        let room = of_mib();
        let [lazy, reader] = ["lazy", "reader"].map(|name| Some(SenderKey::of(name)));
        let unread = || room.hold(answer(100 << 10), lazy).ok();
        let unread: Vec<_> = std::iter::from_fn(unread).collect();
        assert_eq!(unread.len(), 7, "three quarters of 1 MiB");
        assert_eq!(room.hold(answer(100 << 10), lazy).unwrap_err(), NoShare::OfSender);
        assert!(room.hold(Bytes::from_static(b"{}"), lazy).is_ok(), "a short one");
        assert!(room.hold(answer(200 << 10), reader).is_ok());
    }
}
