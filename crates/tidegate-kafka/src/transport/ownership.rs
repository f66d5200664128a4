// SPDX-License-Identifier: Apache-2.0

//! The partitions that a member of a group owns, and the offsets that are marked in them.
//!
//! A partition that comes back after it was gone is another one: it has a new number, and marks with the old number do not
//! count. So no member commits for a partition that another one has in between.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use krafka::consumer::{Consumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition};
use parking_lot::Mutex;

/// The most time for a commit of partitions that the member gives up. Then the next owner waits no longer.
const GIVE_UP_TIME: Duration = Duration::from_secs(5);

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

/// A partition that the member owns.
#[derive(Debug)]
struct Owned {
    /// Counts the times that the member got a partition.
    number: u64,
    /// The offset behind the last message that is marked, and the epoch of its leader.
    marked: Option<(i64, Option<i32>)>,
    /// The last offset that was committed.
    committed: Option<i64>,
}

/// The partitions of a member.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    owned: HashMap<PartitionKey, Owned>,
    next_number: u64,
}

/// Offsets to commit.
pub(super) type Offsets = Vec<(PartitionKey, i64, Option<i32>)>;

impl Ownership {
    pub(super) fn gain(&mut self, place: PartitionKey) {
        let number = self.next_number;
        self.next_number += 1;
        let owned = Owned {
            number,
            marked: None,
            committed: None,
        };
        self.owned.insert(place, owned);
    }

    pub(super) fn lose(&mut self, place: &PartitionKey) {
        self.owned.remove(place);
    }

    /// The number of a partition that the member owns.
    pub(super) fn number(&self, place: &PartitionKey) -> Option<u64> {
        self.owned.get(place).map(|owned| owned.number)
    }

    pub(super) fn mark(&mut self, place: &PartitionKey, number: u64, next: i64, epoch: Option<i32>) {
        let owned = self.owned.get_mut(place).filter(|owned| owned.number == number);
        if let Some(owned) = owned
            && owned.marked.is_none_or(|(offset, _)| offset < next)
        {
            owned.marked = Some((next, epoch));
        }
    }

    /// The partitions that the member owns.
    pub(super) fn owned_partitions(&self) -> Vec<PartitionKey> {
        self.owned.keys().cloned().collect()
    }

    /// Marks that are not committed yet, of all partitions or of these.
    pub(super) fn uncommitted(&self, of: Option<&[PartitionKey]>) -> Offsets {
        let wanted = self
            .owned
            .iter()
            .filter(|(place, _)| of.is_none_or(|of| of.contains(place)));
        let offsets = wanted.filter_map(|(place, owned)| {
            let (offset, epoch) = owned.marked?;
            (owned.committed != Some(offset)).then(|| (place.clone(), offset, epoch))
        });
        offsets.collect()
    }

    pub(super) fn committed(&mut self, offsets: &Offsets) {
        for (place, offset, _) in offsets {
            if let Some(owned) = self.owned.get_mut(place) {
                owned.committed = Some(*offset);
            }
        }
    }
}

/// Marks messages of a member.
#[derive(Clone)]
pub struct Marks(pub(super) Arc<Mutex<Ownership>>);

impl Marks {
    /// Marks all messages of a partition before `next`, unless the partition has another number by now.
    pub fn mark(&self, place: &PartitionKey, number: u64, next: i64, epoch: Option<i32>) {
        self.0.lock().mark(place, number, next, epoch);
    }
}

/// Commits offsets.
pub(super) async fn commit(consumer: &Consumer, offsets: &Offsets) -> krafka::Result<()> {
    let entries = offsets.iter().map(|(place, offset, epoch)| {
        let value = match epoch {
            Some(epoch) => OffsetAndMetadata::with_epoch(*offset, *epoch),
            None => OffsetAndMetadata::new(*offset),
        };
        (TopicPartition::new(&*place.topic, place.partition), value)
    });
    consumer.commit_offsets(entries.collect::<Vec<_>>()).await
}

/// Follows the assignments of a member.
#[derive(Clone, Default)]
pub(super) struct Listener {
    pub(super) ownership: Arc<Mutex<Ownership>>,
    /// Set when the consumer is there.
    pub(super) consumer: Arc<OnceLock<Weak<Consumer>>>,
}

fn partition_keys(partitions: &[TopicPartition]) -> Vec<PartitionKey> {
    let place = |of: &TopicPartition| PartitionKey {
        topic: of.topic().into(),
        partition: of.partition(),
    };
    partitions.iter().map(place).collect()
}

impl Listener {
    fn forget(&self, places: &[PartitionKey]) {
        let mut ownership = self.ownership.lock();
        places.iter().for_each(|place| ownership.lose(place));
    }
}

impl ConsumerRebalanceListener for Listener {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        let mut ownership = self.ownership.lock();
        partition_keys(partitions)
            .into_iter()
            .for_each(|place| ownership.gain(place));
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        let places = partition_keys(partitions);
        let offsets = self.ownership.lock().uncommitted(Some(&places));
        let consumer = self.consumer.get().and_then(Weak::upgrade);
        if let (false, Some(consumer)) = (offsets.is_empty(), consumer) {
            let committed = tokio::time::timeout(GIVE_UP_TIME, commit(&consumer, &offsets)).await;
            if !matches!(committed, Ok(Ok(()))) {
                tracing::warn!(
                    "the offsets of partitions that move are not committed: their next owner repeats messages"
                );
            }
        }
        self.forget(&places);
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        self.forget(&partition_keys(partitions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition_key(partition: i32) -> PartitionKey {
        PartitionKey {
            topic: "t".into(),
            partition,
        }
    }

    #[test]
    fn marks_from_before_a_rebalance_do_not_count() {
        let mut ownership = Ownership::default();
        ownership.gain(partition_key(0));
        let before = ownership.number(&partition_key(0)).unwrap();
        ownership.mark(&partition_key(0), before, 5, Some(1));
        assert_eq!(ownership.uncommitted(None), [(partition_key(0), 5, Some(1))]);
        ownership.lose(&partition_key(0));
        assert!(ownership.uncommitted(None).is_empty());
        ownership.mark(&partition_key(0), before, 6, None);
        ownership.gain(partition_key(0));
        ownership.mark(&partition_key(0), before, 7, None);
        assert!(ownership.uncommitted(None).is_empty());
        let now = ownership.number(&partition_key(0)).unwrap();
        ownership.mark(&partition_key(0), now, 6, None);
        assert_eq!(ownership.uncommitted(None), [(partition_key(0), 6, None)]);
    }

    #[test]
    fn a_mark_never_moves_back_and_is_committed_once() {
        let mut ownership = Ownership::default();
        ownership.gain(partition_key(0));
        ownership.gain(partition_key(1));
        let number = ownership.number(&partition_key(0)).unwrap();
        ownership.mark(&partition_key(0), number, 9, None);
        ownership.mark(&partition_key(0), number, 4, None);
        let offsets = ownership.uncommitted(None);
        assert_eq!(offsets, [(partition_key(0), 9, None)]);
        assert!(ownership.uncommitted(Some(&[partition_key(1)])).is_empty());
        ownership.committed(&offsets);
        assert!(ownership.uncommitted(None).is_empty());
        ownership.mark(&partition_key(0), number, 10, None);
        assert_eq!(ownership.uncommitted(None).len(), 1);
    }
}
