// SPDX-License-Identifier: Apache-2.0

//! The progress of an export request that becomes messages: those that no broker has confirmed, and the losses.
//!
//! A message leaves it only when its outcome is known. So an attempt may end anywhere, and the next one sends only messages
//! that are not confirmed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::Encoded;
use crate::component::{Held, Reason, Shared};
use crate::delivery::{EncodingPermit, ExportRequest, Left, Loss, Outcome, Parts};

/// A part of a request that one message has.
pub(super) trait MessagePart: Clone {
    /// Its points, spans or log records.
    fn items(&self) -> usize;

    /// Its bytes as protobuf. 0: not known before it is made.
    fn bytes(&self) -> usize;

    /// Two parts with the halves of its items. `None`: it can't be cut.
    fn halves(&self) -> Option<[Self; 2]>;
}

pub(super) struct Progress<P> {
    state: Mutex<ProgressState<P>>,
    /// The memory of the parts.
    _held: Held,
}

struct ProgressState<P> {
    waiting: VecDeque<P>,
    /// By number, those of which the outcome is not known.
    flying: BTreeMap<u64, P>,
    next_number: u64,
    losses: Vec<Loss>,
    denied: Option<String>,
}

impl<P: MessagePart + Send + Sync + 'static> Progress<P> {
    /// The progress that an earlier attempt left on the request, or a new one. `extra`: the memory of the parts beside their
    /// encoded form. `parts` makes them of that form.
    ///
    /// # Errors
    /// The work has panicked, or the gateway stops.
    pub(super) async fn of(
        export: &ExportRequest,
        shared: &Shared,
        extra: impl FnOnce(&ExportRequest) -> usize,
        parts: impl FnOnce(Encoded) -> Vec<P> + Send + 'static,
    ) -> Result<Arc<Self>, String> {
        if let Some(progress) = export.attempt_state().get::<Self>() {
            progress.begin();
            return Ok(progress);
        }
        let (export, bytes) = export.clone().weighed(ExportRequest::message_bytes).await?;
        let permit = EncodingPermit::reserve(shared, bytes + extra(&export)).await;
        let whole = export.clone();
        let (parts, held) = permit.make(move || parts(whole.encoded())).await?;
        let progress = Arc::new(Self::new(parts, held));
        export.attempt_state().set(progress.clone());
        Ok(progress)
    }
}

impl<P: MessagePart> Progress<P> {
    pub(super) fn new(parts: Vec<P>, held: Held) -> Self {
        let state = ProgressState {
            waiting: parts.into(),
            flying: BTreeMap::new(),
            next_number: 0,
            losses: Vec::new(),
            denied: None,
        };
        Self {
            state: Mutex::new(state),
            _held: held,
        }
    }

    /// Begins an attempt: all messages without an outcome wait again, in their order.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        let flying = std::mem::take(&mut state.flying);
        for part in flying.into_values().rev() {
            state.waiting.push_front(part);
        }
    }

    /// The next message, with its number.
    pub(super) fn next(&self) -> Option<(u64, P)> {
        let mut state = self.state.lock();
        let part = state.waiting.pop_front()?;
        let number = state.next_number;
        state.next_number += 1;
        state.flying.insert(number, part.clone());
        Some((number, part))
    }

    /// The brokers have the message.
    pub(super) fn taken(&self, number: u64) {
        self.state.lock().flying.remove(&number);
    }

    /// The message waits again.
    pub(super) fn send_again(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(part) = state.flying.remove(&number) {
            state.waiting.push_front(part);
        }
    }

    /// The message is larger than `most` bytes: its halves wait instead of it, unless it has one item. Each half has a copy of
    /// its resources. If these make it too large, smaller parts do not help, so the message is lost.
    pub(super) fn halve(&self, number: u64, most: usize, reason: Reason, why: String) {
        let mut state = self.state.lock();
        let Some(part) = state.flying.remove(&number) else {
            return;
        };
        match part.halves() {
            None => state.lose(part.items(), reason, why),
            Some(halves) if are_copies(&part, &halves, most) => {
                let bytes = part.bytes();
                let why =
                    format!("a resource makes a message of {bytes} bytes, and {most} bytes are allowed");
                state.lose(part.items(), reason, why);
            }
            Some([left, right]) => {
                state.waiting.push_front(right);
                state.waiting.push_front(left);
            }
        }
    }

    /// The message is lost.
    pub(super) fn lose(&self, number: u64, reason: Reason, why: String) {
        let mut state = self.state.lock();
        if let Some(part) = state.flying.remove(&number) {
            state.lose(part.items(), reason, why);
        }
    }

    /// The brokers do not accept the user.
    pub(super) fn deny(&self, why: &str) {
        self.state.lock().denied.get_or_insert_with(|| why.to_owned());
    }

    /// The outcome of an attempt. `failed`: why the rest must come again.
    pub(super) fn outcome(&self, failed: Option<String>) -> Outcome {
        let mut state = self.state.lock();
        let items = state.waiting.iter().chain(state.flying.values()).map(P::items);
        let left = failed.map(|why| Left {
            items: items.sum(),
            after: None,
            why,
        });
        Outcome::Parts(Parts {
            losses: std::mem::take(&mut state.losses),
            denied: state.denied.take(),
            left,
        })
    }
}

impl<P> ProgressState<P> {
    /// Losses for one reason are one, with the first explanation: there may be as many as items.
    fn lose(&mut self, items: usize, reason: Reason, why: String) {
        match self.losses.iter_mut().find(|loss| loss.reason == reason) {
            Some(loss) => loss.items += items,
            None => self.losses.push(Loss { items, reason, why }),
        }
    }
}

/// Whether both halves are too large, and each is nearly as large as the whole.
fn are_copies<P: MessagePart>(whole: &P, halves: &[P; 2], most: usize) -> bool {
    let sizes = halves.each_ref().map(P::bytes);
    let both: usize = sizes.iter().sum();
    sizes.iter().all(|bytes| *bytes > most) && both / 19 >= whole.bytes() / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporters::testing::points;

    impl MessagePart for Encoded {
        fn items(&self) -> usize {
            Encoded::items(self)
        }

        fn bytes(&self) -> usize {
            Encoded::bytes(self)
        }

        fn halves(&self) -> Option<[Self; 2]> {
            let half = Encoded::items(self) / 2;
            let (left, right) = self.split_at(half).filter(|_| half > 0)?;
            Some([left, right])
        }
    }

    fn progress(items: i64) -> Progress<Encoded> {
        let whole = points(items).payload.encode();
        let shared = Arc::new(Shared::default());
        Progress::new(vec![whole], Held::ours(shared.memory.clone()))
    }

    fn parts(outcome: Outcome) -> Parts {
        match outcome {
            Outcome::Parts(parts) => parts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_half_that_failed_comes_again() {
        let progress = progress(5);
        let (number, _) = progress.next().unwrap();
        progress.halve(number, usize::MAX, Reason::Rejected, "too large".to_owned());
        let (left, piece) = progress.next().unwrap();
        assert_eq!(MessagePart::items(&piece), 2);
        let (_, piece) = progress.next().unwrap();
        assert_eq!(MessagePart::items(&piece), 3);
        progress.taken(left);
        let parts = parts(progress.outcome(Some("down".to_owned())));
        assert_eq!(parts.left.unwrap().items, 3);
        progress.begin();
        assert_eq!(MessagePart::items(&progress.next().unwrap().1), 3);
        assert!(progress.next().is_none());
    }

    #[test]
    fn an_item_that_is_too_large_alone_is_lost_with_its_reason() {
        let progress = progress(1);
        let (number, _) = progress.next().unwrap();
        progress.halve(number, usize::MAX, Reason::Limit, "large".to_owned());
        let parts = parts(progress.outcome(None));
        assert_eq!(
            (parts.losses[0].items, parts.losses[0].reason),
            (1, Reason::Limit)
        );
        assert!(parts.left.is_none() && progress.next().is_none());
    }

    #[test]
    fn items_whose_resource_is_too_large_are_lost_at_once() {
        use tidegate_requests::{attribute, gauge, int, request};
        let points = (0..100).map(int);
        let resource = vec![attribute("large", "x".repeat(100_000))];
        let bytes = prost::Message::encode_to_vec(&request(resource, "", [gauge("g", points)]));
        let whole = Encoded::one(crate::batch::Signal::Metrics, bytes.into(), 100);
        let progress = Progress::new(
            vec![whole],
            Held::ours(Arc::new(Shared::default()).memory.clone()),
        );
        let (number, _) = progress.next().unwrap();
        progress.halve(number, 10_000, Reason::Limit, String::new());
        assert!(progress.next().is_none());
        let parts = parts(progress.outcome(None));
        assert_eq!((parts.losses.len(), parts.losses[0].items), (1, 100));
        assert!(
            parts.losses[0].why.contains("a resource"),
            "{}",
            parts.losses[0].why
        );
    }

    #[test]
    fn an_attempt_that_was_broken_off_leaves_its_messages_in_order() {
        let progress = progress(4);
        let (number, _) = progress.next().unwrap();
        progress.halve(number, usize::MAX, Reason::Rejected, String::new());
        let first = progress.next().unwrap().1.joined();
        let _second = progress.next().unwrap();
        progress.begin();
        assert_eq!(progress.next().unwrap().1.joined(), first);
    }
}
