// SPDX-License-Identifier: Apache-2.0

//! Limits the password checks that an address may cause. Each takes a core for a tenth of a second.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// The most addresses with their own allowance. All others share one.
const MAX_ADDRESSES: usize = 4096;
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The checks of each address. A check that finds the password right is given back.
pub(super) struct Attempts {
    /// The part of a minute that a check uses; `None` if checks have no limit.
    each: Option<Duration>,
    /// The time at which an address has its full allowance again (the generic cell rate algorithm).
    whole_at: Mutex<HashMap<IpAddr, Instant>>,
}

/// A check in progress.
pub(super) struct Attempt<'a> {
    attempts: &'a Attempts,
    of: Option<IpAddr>,
}

impl Attempts {
    /// Allows `a_minute` wrong passwords a minute; 0 = no limit.
    pub(super) fn new(a_minute: u32) -> Self {
        Self {
            each: (a_minute > 0).then(|| MINUTE / a_minute),
            whole_at: Mutex::default(),
        }
    }

    /// Begins a check for that address; none: it has used up its minute. Without an address, checks are not counted.
    pub(super) fn begin(&self, from: Option<IpAddr>) -> Option<Attempt<'_>> {
        let (Some(address), Some(each)) = (from, self.each) else {
            return Some(Attempt {
                attempts: self,
                of: None,
            });
        };
        let now = Instant::now();
        let mut all = self.lock();
        let is_known = all.contains_key(&address);
        if !is_known && all.len() >= MAX_ADDRESSES {
            all.retain(|_, whole_at| *whole_at > now);
        }
        let of = if is_known || all.len() < MAX_ADDRESSES {
            address
        } else {
            OTHERS
        };
        let whole_at = all.entry(of).or_insert(now);
        let then = (*whole_at).max(now) + each;
        if then > now + MINUTE {
            return None;
        }
        *whole_at = then;
        Some(Attempt {
            attempts: self,
            of: Some(of),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.whole_at.lock()
    }
}

impl Attempt<'_> {
    /// The password is right: the check does not count.
    pub(super) fn give_back(self) {
        let (Some(of), Some(each)) = (self.of, self.attempts.each) else {
            return;
        };
        if let Some(whole_at) = self.attempts.lock().get_mut(&of) {
            *whole_at -= each;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from(0xc000_0200 + last)))
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_limit_of_wrong_passwords() {
        let attempts = Attempts::new(6);
        let begun = (0..100).filter(|_| attempts.begin(address(1)).is_some());
        assert_eq!(begun.count(), 6);
        assert!(attempts.begin(address(2)).is_some());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(attempts.begin(address(1)).is_some(), "one in ten seconds");
        assert!(attempts.begin(address(1)).is_none());
        tokio::time::advance(Duration::from_secs(600)).await;
        let begun = (0..100).filter(|_| attempts.begin(address(1)).is_some());
        assert_eq!(begun.count(), 6, "an allowance is for one minute");
    }

    #[tokio::test(start_paused = true)]
    async fn right_passwords_do_not_count() {
        let attempts = Attempts::new(2);
        for _ in 0..100 {
            attempts.begin(address(1)).expect("there is one").give_back();
        }
        let begun = (0..100).filter(|_| attempts.begin(address(1)).is_some());
        assert_eq!(begun.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_counted_without_an_address_or_a_limit() {
        assert!((0..100).all(|_| Attempts::new(1).begin(None).is_some()));
        let unlimited = Attempts::new(0);
        assert!((0..100).all(|_| unlimited.begin(address(1)).is_some()));
        assert!(unlimited.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_addresses_takes_little_memory() {
        let attempts = Attempts::new(1);
        let begun = (0..10_000).filter(|last| attempts.begin(address(*last)).is_some());
        assert_eq!(begun.count(), MAX_ADDRESSES + 1, "the rest share one allowance");
        assert!(attempts.lock().len() <= MAX_ADDRESSES + 1);
        tokio::time::advance(2 * MINUTE).await;
        assert!(attempts.begin(address(20_000)).is_some());
        assert_eq!(
            attempts.lock().len(),
            1,
            "those whose minute is whole are forgotten"
        );
    }
}
