//! Room for answers that are on their way. A client that reads none of its answers takes room from other readers, not from
//! those who send; it takes all of it only by a single answer that is so large.

use std::sync::Arc;

use bytes::Bytes;

use crate::component::account::SenderKey;
use crate::net::shares::{Most, NoShare, Share, Shares};

/// Short answers have a part of the room that others never take: probes and autoscalers get theirs.
const SHORT: usize = 64 << 10;

/// The room, by bytes.
pub(crate) struct Room {
    /// Whose answers they are.
    component: Arc<str>,
    bytes: usize,
    shares: Arc<Shares>,
}

/// Bytes that take room until nobody has them any more.
struct Held {
    bytes: Bytes,
    _share: Share,
}

/// Counts an answer of a component that is refused because those that clients have not read take too much memory.
pub(crate) fn count_refusal(component: &Arc<str>) {
    metrics::counter!("tidegate_answers_refused_total", "component" => component.clone()).increment(1);
}

impl Room {
    pub(crate) fn of(component: &Arc<str>, bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            component: component.clone(),
            bytes,
            shares: Arc::default(),
        })
    }

    /// Counts an answer that is refused because there is no room for it.
    pub(crate) fn count_refusal(&self) {
        count_refusal(&self.component);
    }

    /// The same bytes, which take room while they are there. A client with several has three quarters at most,
    /// and the rest for short ones.
    ///
    /// # Errors
    /// There is no room, or the client has not read what it was sent before.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Bytes, client: Option<SenderKey>) -> Result<Bytes, NoShare> {
        let quarter = self.bytes / 4;
        let most = if bytes.len() <= SHORT {
            Most {
                of_all: self.bytes.saturating_add(quarter),
                of_one: self.bytes,
            }
        } else {
            Most {
                of_all: self.bytes,
                of_one: self.bytes - quarter,
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

    fn answer(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[test]
    fn answers_take_room_until_the_last_piece_of_them_is_gone() {
        let room = Room::of(&"admin".into(), 1 << 20);
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
        let room = Room::of(&"admin".into(), 1 << 20);
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
        let room = Room::of(&"admin".into(), 1 << 20);
        let [lazy, reader] = ["lazy", "reader"].map(|name| Some(SenderKey::of(name)));
        let unread = || room.hold(answer(100 << 10), lazy).ok();
        let unread: Vec<_> = std::iter::from_fn(unread).collect();
        assert_eq!(unread.len(), 7, "three quarters of 1 MiB");
        assert_eq!(room.hold(answer(100 << 10), lazy).unwrap_err(), NoShare::OfSender);
        assert!(room.hold(Bytes::from_static(b"{}"), lazy).is_ok(), "a short one");
        assert!(room.hold(answer(200 << 10), reader).is_ok());
    }
}
