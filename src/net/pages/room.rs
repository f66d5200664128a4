//! Room for answers that are on their way: who reads none of his takes it from other readers, not from those who send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

/// Short answers have a part of the room that others never take: probes and autoscalers get theirs.
const SHORT: usize = 64 << 10;

/// The room, by bytes.
pub(crate) struct Room {
    /// Whose answers they are.
    component: Arc<str>,
    most: usize,
    held: AtomicUsize,
}

/// Bytes that take room until nobody has them any more.
struct Held {
    bytes: Bytes,
    room: Arc<Room>,
}

/// Counts an answer of a component that is refused because those that clients have not read take too much memory.
pub(crate) fn count_refusal(component: &Arc<str>) {
    metrics::counter!("tidegate_answers_refused_total", "component" => component.clone()).increment(1);
}

impl Room {
    pub(crate) fn of(component: &Arc<str>, bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            component: component.clone(),
            most: bytes,
            held: AtomicUsize::new(0),
        })
    }

    /// Counts an answer that is refused because there is no room for it.
    pub(crate) fn count_refusal(&self) {
        count_refusal(&self.component);
    }

    /// The same bytes, which take room while they are there; `None`: there is no room.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        let length = bytes.len();
        let most = match length <= SHORT {
            true => self.most.saturating_add(self.most / 4),
            false => self.most,
        };
        let added = |held: usize| held.checked_add(length).filter(|held| *held <= most);
        self.held.fetch_update(Relaxed, Relaxed, added).ok()?;
        let room = self.clone();
        Some(Bytes::from_owner(Held { bytes, room }))
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.bytes.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_room_until_the_last_piece_of_them_is_gone() {
        let room = Room::of(&"admin".into(), 1 << 20);
        let answer = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        let mut first = room.hold(answer(900 << 10)).unwrap();
        assert!(room.hold(answer(200 << 10)).is_none());
        let piece = first.split_to(10);
        drop(first);
        assert!(room.hold(answer(200 << 10)).is_none(), "a piece keeps it all");
        drop(piece);
        assert!(room.hold(answer(200 << 10)).is_some());
        assert_eq!(room.held.load(Relaxed), 0);
    }

    #[test]
    fn short_answers_have_room_of_their_own() {
        let room = Room::of(&"admin".into(), 1 << 20);
        let _large = room.hold(Bytes::from(vec![b'x'; 1 << 20])).unwrap();
        let short = || room.hold(Bytes::from_static(b"{}"));
        assert!(short().is_some());
        let most = || room.hold(Bytes::from(vec![b'x'; SHORT]));
        let held: Vec<_> = std::iter::from_fn(most).collect();
        assert_eq!(held.len(), 4, "a quarter");
        assert!(short().is_none());
    }
}
