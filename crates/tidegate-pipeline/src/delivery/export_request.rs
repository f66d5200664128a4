// SPDX-License-Identifier: Apache-2.0

//! The content of one export request: batches of one signal and one batch key, in the order of their arrival.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use smallvec::SmallVec;

use super::capacity::size_of;
use super::machine::Load;
use crate::batch::{Batch, Batching, ClientMetadata, Encoded, Signal, Sizer};

/// One or more batches that one attempt sends. Never empty; all batches have the same [`BatchKey`].
#[derive(Clone, Debug)]
pub struct ExportRequest {
    batches: SmallVec<[Batch; 1]>,
    /// Items that no attempt has settled yet; `None` before an attempt settles a part.
    left: Option<usize>,
    attempt_state: AttemptState,
    is_alone: bool,
}

/// State that one attempt leaves for the next attempt of the same export request: its translation and its
/// progress.
///
/// Clones of a request share the state. Joining requests drops it.
#[derive(Clone, Default)]
pub struct AttemptState(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl AttemptState {
    /// The state that an earlier attempt left, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.get()?.clone().downcast().ok()
    }

    /// Leaves state; the first one stays.
    pub fn set(&self, state: Arc<dyn Any + Send + Sync>) {
        let _ = self.0.set(state);
    }
}

impl fmt::Debug for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptState").finish_non_exhaustive()
    }
}

/// The key of batches that may be joined. A request has batches of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchKey {
    /// The signal.
    pub signal: Signal,
    /// The limits of a joined request; `None` if requests are not joined.
    pub batching: Option<Batching>,
    /// The metadata of the sender.
    pub client: Option<Arc<ClientMetadata>>,
}

impl BatchKey {
    /// The key of a signal without batching and sender.
    pub fn plain(signal: Signal) -> Self {
        Self {
            signal,
            batching: None,
            client: None,
        }
    }

    /// The key of a batch.
    pub fn of(batch: &Batch) -> Self {
        Self {
            signal: batch.signal(),
            batching: batch.batching.clone(),
            client: batch.client.clone(),
        }
    }
}

impl ExportRequest {
    /// An export request of one batch.
    pub fn new(batch: Batch) -> Self {
        Self {
            batches: SmallVec::from_buf([batch]),
            left: None,
            attempt_state: AttemptState::default(),
            is_alone: false,
        }
    }

    /// Creates an export request of one batch that a previous run may have sent.
    pub fn again(batch: Batch) -> Self {
        Self {
            is_alone: true,
            ..Self::new(batch)
        }
    }

    /// The state that an earlier attempt left.
    pub fn attempt_state(&self) -> &AttemptState {
        &self.attempt_state
    }

    /// Its batches.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// Which signal it is.
    pub fn signal(&self) -> Signal {
        self.first().signal()
    }

    /// The metadata of its sender. All its batches have the same sender.
    pub fn client(&self) -> Option<&ClientMetadata> {
        self.first().client.as_deref()
    }

    /// Its length in OTLP protobuf, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        self.batches
            .iter()
            .map(|batch| batch.payload.encoded_bytes())
            .sum()
    }

    /// The arrival of its oldest batch in the gateway.
    pub fn oldest(&self) -> Instant {
        let others = self.batches.iter().map(|batch| batch.arrived);
        others.fold(self.first().arrived, Instant::min)
    }

    /// Joins all batches into one request.
    pub fn encoded(&self) -> Encoded {
        let mut whole = Encoded {
            signal: self.signal(),
            parts: SmallVec::new(),
        };
        for batch in &self.batches {
            whole.parts.extend(batch.payload.encode().parts);
        }
        whole
    }

    fn first(&self) -> &Batch {
        self.batches.first().expect("made with a batch, and only grows")
    }
}

impl Load for ExportRequest {
    type BatchKey = BatchKey;

    fn batch_key(&self) -> BatchKey {
        BatchKey::of(self.first())
    }

    fn batching(&self) -> Option<Batching> {
        self.first().batching.clone()
    }

    fn size(&self, sizer: Sizer) -> usize {
        let whole = || self.batches.iter().map(|batch| size_of(sizer, batch)).sum();
        self.left.filter(|_| sizer == Sizer::Items).unwrap_or_else(whole)
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn shrink(&mut self, items: usize) {
        self.left = Some(items);
    }

    fn join(&mut self, other: Self) {
        self.batches.extend(other.batches);
        (self.left, self.attempt_state) = (None, AttemptState::default());
    }

    fn name(&self) -> String {
        self.first().first_name()
    }

    fn parts(&self) -> usize {
        self.batches.len()
    }

    fn split(self, max: usize, sizer: Sizer) -> Vec<(Self, Range<usize>)> {
        let mut exports: Vec<(Self, Range<usize>)> = Vec::new();
        let mut size = max;
        for (at, batch) in self.batches.into_iter().enumerate() {
            let (first, rest) = fill(batch, max.saturating_sub(size), sizer);
            let rest = rest.into_iter().flat_map(|rest| cut(rest, max, sizer));
            for batch in first.into_iter().chain(rest) {
                let more = size_of(sizer, &batch);
                match exports.last_mut() {
                    Some((open, parts)) if size + more <= max => {
                        open.batches.push(batch);
                        parts.end = at + 1;
                    }
                    _ => {
                        exports.push((Self::new(batch), at..at + 1));
                        size = 0;
                    }
                }
                size += more;
            }
        }
        exports
    }
}

/// Cuts a batch at the remaining capacity of a request. Returns the part that fits and the rest.
fn fill(batch: Batch, room: usize, sizer: Sizer) -> (Option<Batch>, Option<Batch>) {
    let size = size_of(sizer, &batch);
    if size <= room {
        return (Some(batch), None);
    }
    let at = match sizer {
        Sizer::Requests => 0,
        Sizer::Items => room,
        // The items have similar sizes. A wrong estimate only makes a request less than full.
        Sizer::Bytes => batch.items().saturating_mul(room) / size.max(1),
    };
    match batch.split_at(at) {
        Some((first, rest)) if at > 0 && size_of(sizer, &first) <= room => (Some(first), Some(rest)),
        _ => (None, Some(batch)),
    }
}

/// Cuts one batch into ordered pieces of at most `max`, as far as possible.
fn cut(batch: Batch, max: usize, sizer: Sizer) -> Vec<Batch> {
    let (mut pieces, mut rest) = (Vec::new(), vec![batch]);
    while let Some(piece) = rest.pop() {
        match halves(&piece, max.max(1), sizer) {
            Some((left, right)) => rest.extend([right, left]),
            None => pieces.push(piece),
        }
    }
    pieces
}

/// Cuts a batch that is too large into two halves, at a multiple of `max` if items are counted. Halving costs one
/// walk a level. Cutting off piece by piece costs one walk a piece.
fn halves(batch: &Batch, max: usize, sizer: Sizer) -> Option<(Batch, Batch)> {
    if size_of(sizer, batch) <= max {
        return None;
    }
    let items = batch.items();
    let at = match sizer {
        Sizer::Requests => return None,
        Sizer::Items => items.div_ceil(max) / 2 * max,
        Sizer::Bytes => items / 2,
    };
    batch.split_at(at)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::batch::wire;

    /// A request with the given number of records in each scope. The time numbers the records.
    fn request(scopes: &[usize]) -> ExportLogsServiceRequest {
        let mut times = 1..;
        let scope_logs = scopes.iter().enumerate().map(|(scope, records)| ScopeLogs {
            scope: Some(InstrumentationScope {
                name: format!("scope {scope}"),
                ..Default::default()
            }),
            log_records: times
                .by_ref()
                .take(*records)
                .map(|time_unix_nano| LogRecord {
                    time_unix_nano,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let resource_logs = ResourceLogs {
            scope_logs: scope_logs.collect(),
            schema_url: "schema".into(),
            ..Default::default()
        };
        ExportLogsServiceRequest {
            resource_logs: vec![resource_logs],
        }
    }

    fn export(requests: &[Vec<usize>]) -> ExportRequest {
        let batches = requests.iter().map(|scopes| {
            let bytes = request(scopes).encode_to_vec();
            Batch::new(wire::check(Signal::Logs, bytes.into()).expect("a request"))
        });
        let mut exports = batches.map(ExportRequest::new);
        let mut whole = exports.next().expect("at least one request");
        exports.for_each(|more| whole.join(more));
        whole
    }

    /// The scope and time of every record.
    fn records(export: &ExportRequest) -> Vec<(String, u64)> {
        let mut records = Vec::new();
        for part in export.encoded().parts {
            let request = ExportLogsServiceRequest::decode(part.bytes).expect("a request");
            for resource in request.resource_logs {
                assert_eq!(resource.schema_url, "schema");
                for scope in resource.scope_logs {
                    let name = scope.scope.unwrap_or_default().name;
                    let times = scope.log_records.iter().map(|record| record.time_unix_nano);
                    records.extend(times.map(|time| (name.clone(), time)));
                }
            }
        }
        records
    }

    proptest! {
        #[test]
        fn the_pieces_hold_the_same_records_under_the_same_scopes(
            requests in prop::collection::vec(prop::collection::vec(1usize..20, 1..4), 1..4),
            max in 1usize..30,
            bytes in any::<bool>(),
        ) {
            let whole = export(&requests);
            let sizer = if bytes { Sizer::Bytes } else { Sizer::Items };
            let max = if bytes { max * 20 } else { max };
            let (pieces, parts): (Vec<_>, Vec<_>) = whole.clone().split(max, sizer).into_iter().unzip();
            let together: Vec<_> = pieces.iter().flat_map(records).collect();
            prop_assert_eq!(together, records(&whole));
            for piece in &pieces {
                prop_assert!(piece.size(sizer) <= max || piece.items() == 1);
            }
            if !bytes {
                let full = pieces.iter().rev().skip(1).all(|piece| piece.items() == max);
                prop_assert!(full, "all but the last are full");
            }
            // The records of a request are in the pieces that name it, and in no other.
            let mut expected = Vec::new();
            for (at, batch) in whole.batches.iter().enumerate() {
                expected.extend(vec![at; batch.items()]);
            }
            for (piece, parts) in pieces.iter().zip(&parts) {
                let of: Vec<_> = expected.drain(..piece.items()).collect();
                prop_assert_eq!((of[0], of[of.len() - 1] + 1), (parts.start, parts.end));
            }
        }
    }

    #[test]
    fn items_are_cut_into_as_few_pieces_as_possible() {
        let sizes = |export: ExportRequest, max| {
            let pieces = export.split(max, Sizer::Items);
            pieces.iter().map(|(piece, _)| piece.items()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(export(&[vec![25]]), 10), [10, 10, 5]);
        assert_eq!(sizes(export(&[vec![3, 4], vec![5]]), 8), [8, 4]);
    }

    #[test]
    fn what_counts_requests_is_cut_between_them_only() {
        let pieces = export(&[vec![5], vec![5], vec![5]]).split(2, Sizer::Requests);
        assert_eq!(
            pieces
                .iter()
                .map(|(piece, _)| piece.batches().len())
                .collect::<Vec<_>>(),
            [2, 1]
        );
    }
}
