// SPDX-License-Identifier: Apache-2.0

//! Cutting a batch in two. Both halves together are the batch: no item is lost, repeated or moved.

use std::sync::Arc;

use tidegate_engine::{Events, Values};

use super::{Batch, Payload, Points};

impl Batch {
    /// The first `at` items and the others; `None` where it can't be cut there (`at` is none or all of the items, or
    /// the payload is one that has to stay whole).
    pub fn split_at(&self, at: usize) -> Option<(Self, Self)> {
        if at == 0 || at >= self.items() {
            return None;
        }
        let (left, right): (Payload, Payload) = match &self.payload {
            Payload::Encoded(encoded) => {
                let (left, right) = encoded.split_at(at)?;
                (left.into(), right.into())
            }
            Payload::Events(events) => (
                slice(events, 0, at)?.into(),
                slice(events, at, events.len())?.into(),
            ),
            Payload::Points(points) => {
                let (left, right) = points.points.split_at_checked(at)?;
                (of_points(left), of_points(right))
            }
        };
        Some((self.with(left), self.with(right)))
    }
}

fn slice(events: &Events, from: usize, to: usize) -> Option<Events> {
    let values = match &events.values {
        Values::U64(values) => Values::U64(values.get(from..to)?.to_vec()),
        Values::F64(values) => Values::F64(values.get(from..to)?.to_vec()),
    };
    let times = events
        .times
        .as_ref()
        .map(|times| times.get(from..to).map(<[_]>::to_vec));
    let weights = events
        .weights
        .as_ref()
        .map(|weights| weights.get(from..to).map(<[_]>::to_vec));
    Some(Events {
        source: events.source.clone(),
        schema: events.schema.clone(),
        kinds: events.kinds.get(from..to)?.to_vec(),
        values,
        times: flat(times)?,
        weights: flat(weights)?,
        observed: events.observed,
    })
}

/// A column that is absent is fine; one that is too short is not.
fn flat<T>(column: Option<Option<T>>) -> Option<Option<T>> {
    column.map_or(Some(None), |column| column.map(Some))
}

fn of_points(points: &[tidegate_engine::Point]) -> Payload {
    Payload::Points(Points {
        points: Arc::from(points),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Schema, SourceId};

    use super::*;

    fn events(count: u16) -> Batch {
        let source = tidegate_engine::Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: tidegate_engine::Attributes::default(),
            lease: Arc::new(tidegate_engine::Lease::new(std::time::Duration::from_secs(1), 0)),
        };
        Batch::new(Events {
            source: Arc::new(source),
            schema: Arc::new(Schema::default()),
            kinds: (0..count).collect(),
            values: Values::U64((0..u64::from(count)).collect()),
            times: Some((0..u64::from(count)).collect()),
            weights: None,
            observed: 7,
        })
    }

    #[test]
    fn events_are_cut_through_every_column() {
        let (left, right) = events(10).split_at(4).unwrap();
        let (Payload::Events(left), Payload::Events(right)) = (&left.payload, &right.payload) else {
            panic!("events stay events");
        };
        assert_eq!(
            (left.kinds.as_slice(), right.kinds.as_slice()),
            (&[0, 1, 2, 3][..], &[4, 5, 6, 7, 8, 9][..])
        );
        assert_eq!(right.values, Values::U64((4..10).collect()));
        assert_eq!(right.times, Some((4..10).collect()));
        assert_eq!((left.len(), right.weights.as_ref()), (4, None));
    }

    #[test]
    fn nothing_is_cut_off_at_either_end() {
        assert!(events(3).split_at(0).is_none());
        assert!(events(3).split_at(3).is_none());
        assert!(events(1).split_at(1).is_none());
    }
}
