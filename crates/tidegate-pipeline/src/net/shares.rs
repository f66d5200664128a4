// SPDX-License-Identifier: Apache-2.0

//! A limited amount that senders share. A sender with a large share leaves a part to others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::component::account::SenderKey;

/// The amount in use, with the share of each sender that has a key.
#[derive(Debug)]
pub struct Shares<K = SenderKey>(Mutex<Taken<K>>);

/// The limits.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// The limit of all senders together.
    pub of_all: usize,
    /// The limit of each sender that has a key.
    pub of_one: usize,
}

/// The amount in use. Senders without a share are not in the map.
#[derive(Debug)]
struct Taken<K> {
    all: usize,
    of: HashMap<K, usize>,
}

/// A part of the amount, until the drop.
#[derive(Debug)]
pub struct Share<K: Copy + Eq + Hash = SenderKey> {
    shares: Arc<Shares<K>>,
    amount: usize,
    sender: Option<K>,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoShare {
    /// The whole amount is in use.
    Full,
    /// The sender has its maximum.
    OfSender,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Mutex::new(Taken {
            all: 0,
            of: HashMap::new(),
        }))
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// Takes an amount. A sender without a share may exceed the limit of one sender, so that a large request is
    /// not refused forever.
    ///
    /// # Errors
    /// `Full`: the rest is too small. `OfSender`: the sender would exceed its maximum.
    pub fn take(self: &Arc<Self>, amount: usize, sender: Option<K>, most: Most) -> Result<Share<K>, NoShare> {
        let mut taken = self.0.lock();
        let all = taken.all.checked_add(amount).ok_or(NoShare::Full)?;
        if all > most.of_all {
            return Err(NoShare::Full);
        }
        if let Some(sender) = sender {
            let has = taken.of.get(&sender).copied().unwrap_or(0);
            if has > 0 && has.saturating_add(amount) > most.of_one {
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

    /// The shares that are taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn taken(&self) -> usize {
        let taken = self.0.lock();
        assert!(taken.all > 0 || taken.of.is_empty(), "a sender is not forgotten");
        taken.all
    }
}

impl<K: Copy + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.0.lock();
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

    const MOST: Most = Most {
        of_all: 10,
        of_one: 6,
    };

    #[test]
    fn a_sender_with_its_share_leaves_the_rest_to_others() {
        let shares = Arc::<Shares>::default();
        let take = |amount: usize, sender| shares.take(amount, sender, MOST);
        let [greedy, other] = ["greedy", "other"].map(|name| Some(SenderKey::of(name)));
        let first = take(4, greedy).unwrap();
        let _second = take(2, greedy).unwrap();
        assert_eq!(take(1, greedy).unwrap_err(), NoShare::OfSender);
        let rest = take(4, other).unwrap();
        assert_eq!(take(1, None).unwrap_err(), NoShare::Full);
        drop((first, rest));
        assert!(take(4, greedy).is_ok());
        assert_eq!(shares.taken(), 2);
    }

    #[test]
    fn a_sender_that_has_nothing_may_take_more_than_a_share() {
        let shares = Arc::<Shares>::default();
        let sender = Some(SenderKey::of("sender"));
        drop(shares.take(10, sender, MOST).unwrap());
        assert_eq!(shares.taken(), 0);
        let _small = shares.take(1, sender, MOST).unwrap();
        assert_eq!(shares.take(9, sender, MOST).unwrap_err(), NoShare::OfSender);
    }

    #[test]
    fn senders_without_a_key_share_everything() {
        let shares = Arc::<Shares>::default();
        let _all: Vec<_> = (0..10).map(|_| shares.take(1, None, MOST).unwrap()).collect();
        assert_eq!(shares.take(1, None, MOST).unwrap_err(), NoShare::Full);
    }
}
