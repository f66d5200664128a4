// SPDX-License-Identifier: Apache-2.0

//! Streams are found by every spelling, and leave no memory.

use proptest::prelude::*;

use super::*;

fn key(n: u64) -> Key {
    Key::of_value(&n)
}

proptest! {
    /// A cursor finds what a map has, in any order of streams and after any removals.
    #[test]
    fn a_cursor_finds_what_a_map_has(steps in prop::collection::vec((0u64..100, 0u8..30), 1..600)) {
        let streams = Streams::new(1000, 10);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let mut cursor = streams.cursor();
        for (at, (n, forget)) in steps.into_iter().enumerate() {
            let now = at as u64;
            // Two spellings of each identity.
            let identity = n / 2;
            let found = cursor.get(key(n), now).map(|state| *state);
            match model.get(&identity) {
                Some(birth) if found.is_some() => prop_assert_eq!(found, Some(*birth)),
                _ => {
                    prop_assert_eq!(found, None);
                    cursor.release();
                    let home = streams.register(key(n), key(1000 + identity), now, || now);
                    let state = cursor.get(home.expect("there is room"), now).map(|state| *state);
                    prop_assert_eq!(state, Some(*model.entry(identity).or_insert(now)));
                }
            }
            if forget == 0 {
                cursor.release();
                streams.expire(now + 20, |birth, _, _| {
                    let forget = *birth % 3 == 0;
                    if forget {
                        model.retain(|_, other| other != birth);
                    }
                    Sweep::forget_if(forget)
                });
            }
            prop_assert_eq!(streams.len(), model.len());
        }
    }
}

#[test]
fn two_spellings_lead_to_one_stream_and_go_together() {
    let streams = Streams::new(100, 10);
    assert_eq!(streams.register(key(1), key(0), 1, || 10), Some(key(1)));
    assert_eq!(streams.register(key(2), key(0), 1, || 99), Some(key(1)));
    assert_eq!(
        streams.known(key(2), 2, |n| {
            *n += 1;
            *n
        }),
        Some(11)
    );
    assert_eq!(streams.known(key(1), 2, |n| *n), Some(11));
    assert_eq!(streams.len(), 1);
    streams.expire(20, |_, _, _| Sweep::Forget);
    for shard in &streams.shards {
        let shard = lock(shard);
        assert!(shard.homes.is_empty() && shard.aliases.is_empty());
    }
    assert!(streams.register.lock().identities.is_empty());
    assert_eq!(
        (streams.known(key(1), 3, |n| *n), streams.known(key(2), 3, |n| *n)),
        (None, None)
    );
    assert_eq!(streams.register(key(2), key(0), 1, || 5), Some(key(2)));
    assert_eq!(streams.known(key(2), 3, |n| *n), Some(5));
}

#[test]
fn a_burst_that_is_over_leaves_no_memory() {
    let streams = Streams::new(usize::MAX, 10);
    let slots = || -> usize {
        let chunks = 0..streams.chunks.chunks();
        chunks.map(|chunk| streams.chunks.lock(chunk).capacity()).sum()
    };
    for burst in 0..5 {
        let (now, first) = (1 + 100 * burst, 1000 * burst);
        for n in first..first + 1000 {
            assert_eq!(streams.register(key(n), key(n), now, || n), Some(key(n)));
        }
        assert!((first..first + 1000).all(|n| streams.known(key(n), now, |state| *state) == Some(n)));
        assert_eq!(streams.known(key(first + 1000), now, |state| *state), None);
        streams.expire(now + 50, |_, _, _| Sweep::Forget);
        assert_eq!(streams.len(), 0);
        assert!(slots() <= CHUNK as usize, "{}", slots());
    }
    assert_eq!(streams.chunks.used(), 1000, "places are used again");
}

#[test]
fn spellings_beyond_the_cap_still_find_their_stream_after_learning() {
    let streams = Streams::new(100, 10);
    for n in 1..100 {
        assert_eq!(streams.register(key(n), key(0), 1, || n), Some(key(1)));
    }
    assert_eq!(streams.len(), 1);
    let known = (1..100)
        .filter(|n| streams.known(key(*n), 1, |_| ()).is_some())
        .count();
    assert_eq!(known, 1 + MAX_ALIASES);
}

#[test]
fn a_full_store_refuses_new_streams_and_keeps_old_ones() {
    let streams = Streams::new(70, 10);
    let learnt: Vec<u64> = (0..1000)
        .filter(|n| streams.register(key(*n), key(*n), 1, || ()).is_some())
        .collect();
    assert_eq!((learnt.len(), streams.len()), (70, 70));
    streams.expire(
        20,
        |(), seen, _| if seen == 1 { Sweep::Forget } else { Sweep::Keep },
    );
    assert_eq!(streams.len(), 0);
    assert!(streams.register(key(7), key(7), 1, || ()).is_some());
}
