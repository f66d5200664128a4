//! A limited amount of something that senders take for a time; a sender that takes much leaves a part of it to others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::component::account::SenderKey;

/// An amount that is shared.
#[derive(Debug)]
pub(crate) struct Shares {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

/// What is taken now. Senders who have nothing are not in the map.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<SenderKey, usize>,
}

/// A part of the amount, until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    amount: usize,
    sender: Option<SenderKey>,
}

/// Why nothing is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoShare {
    /// Everything is taken.
    Full,
    /// The sender has as much as one sender may have.
    OfSender,
}

impl Shares {
    /// `most` for all senders together, `most_of_one` for each sender that is known.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            taken: Mutex::default(),
        })
    }

    /// Takes an amount. A sender that has nothing yet may take more than the share of one sender, so that a large request
    /// is not refused for ever.
    ///
    /// # Errors
    /// There is not enough for all, or the sender has its share already.
    pub(crate) fn take(self: &Arc<Self>, amount: usize, sender: Option<SenderKey>) -> Result<Share, NoShare> {
        self.take_with(0, amount, sender)
    }

    /// As [`Self::take`]; `extra` is added to what all senders together may have.
    pub(crate) fn take_with(
        self: &Arc<Self>,
        extra: usize,
        amount: usize,
        sender: Option<SenderKey>,
    ) -> Result<Share, NoShare> {
        let mut taken = self.taken.lock();
        let all = taken.all.checked_add(amount).ok_or(NoShare::Full)?;
        if all > self.most.saturating_add(extra) {
            return Err(NoShare::Full);
        }
        if let Some(sender) = sender {
            let has = taken.of.get(&sender).copied().unwrap_or(0);
            if has > 0 && has.saturating_add(amount) > self.most_of_one {
                return Err(NoShare::OfSender);
            }
            taken.of.insert(sender, has + amount);
        }
        taken.all = all;
        Ok(Share {
            shares: self.clone(),
            amount,
            sender,
        })
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        let taken = self.taken.lock();
        assert!(taken.all > 0 || taken.of.is_empty(), "a sender is not forgotten");
        taken.all
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        taken.all -= self.amount;
        if let Some(sender) = self.sender
            && let Some(has) = taken.of.get_mut(&sender)
        {
            *has -= self.amount;
            if *has == 0 {
                taken.of.remove(&sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_with_its_share_leaves_the_rest_to_others() {
        let shares = Shares::new(10, 6);
        let [greedy, other] = ["greedy", "other"].map(|name| Some(SenderKey::of(name)));
        let first = shares.take(4, greedy).unwrap();
        let _second = shares.take(2, greedy).unwrap();
        assert_eq!(shares.take(1, greedy).unwrap_err(), NoShare::OfSender);
        let rest = shares.take(4, other).unwrap();
        assert_eq!(shares.take(1, None).unwrap_err(), NoShare::Full);
        assert!(shares.take_with(1, 1, None).is_ok());
        drop((first, rest));
        assert!(shares.take(4, greedy).is_ok());
        assert_eq!(shares.taken(), 2);
    }

    #[test]
    fn a_sender_that_has_nothing_may_take_more_than_a_share() {
        let shares = Shares::new(10, 6);
        let sender = Some(SenderKey::of("sender"));
        let large = shares.take(10, sender).unwrap();
        drop(large);
        assert_eq!(shares.taken(), 0);
        let _small = shares.take(1, sender).unwrap();
        assert_eq!(shares.take(9, sender).unwrap_err(), NoShare::OfSender);
    }

    #[test]
    fn senders_without_a_key_share_everything() {
        let shares = Shares::new(10, 6);
        let _all: Vec<_> = (0..10).map(|_| shares.take(1, None).unwrap()).collect();
        assert_eq!(shares.take(1, None).unwrap_err(), NoShare::Full);
    }
}
