// SPDX-License-Identifier: Apache-2.0

//! Cutting requests that are too large for the peer, or that contain items that it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{Load, Machine, PendingRequest, cut};
use crate::batch::Sizer;
use crate::component::Reason;
use crate::delivery::capacity::Permits;

/// The limit on attempts of the search in one refused request. One bad item of 8,192 takes 26 attempts. A peer
/// that refuses everything does not get a request for every item.
pub(super) const MAX_SEARCH: u32 = 64;

impl<L: Load> Machine<L> {
    /// Cuts a request that exceeds the limits. An item that is too large by itself is dropped.
    pub(super) fn cut(&mut self, request: PendingRequest<L>) {
        let max = self.rules.max_bytes;
        let pieces = cut(request.load, &request.permits, max, Sizer::Bytes);
        let (large, fitting): (Vec<_>, Vec<_>) = pieces
            .into_iter()
            .partition(|(piece, _)| piece.size(Sizer::Bytes) > max);
        for (piece, permits) in large {
            let why = format!(
                "`{}` is larger than a request of {max} bytes may be",
                piece.name()
            );
            self.drop_load(&piece, &permits, Reason::Limit, why);
        }
        self.requeue_pieces(fitting, request.search.as_ref());
    }

    /// Searches a refused request by halves until each bad item is alone.
    pub(super) fn isolate(&mut self, mut request: PendingRequest<L>, why: String) {
        if !self.rules.isolate {
            return self.drop_request(&request, Reason::Rejected, why);
        }
        if request.load.items() <= 1 {
            let why = format!("`{}`: {why}", request.load.name());
            return self.drop_request(&request, Reason::Rejected, why);
        }
        let search = request.search.get_or_insert_with(|| Arc::new(MAX_SEARCH.into()));
        match search.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(2)) {
            Ok(_) => self.halve(request, why),
            Err(_) => self.drop_request(&request, Reason::Rejected, why),
        }
    }

    /// Cuts a request that is too large or has a bad item into halves, unless it can't be cut.
    pub(super) fn halve(&mut self, request: PendingRequest<L>, why: String) {
        let half = request.load.items().div_ceil(2);
        let pieces = cut(request.load, &request.permits, half, Sizer::Items);
        match &*pieces {
            [(whole, permits)] => self.drop_load(whole, permits, Reason::Rejected, why),
            _ => self.requeue_pieces(pieces, request.search.as_ref()),
        }
    }

    pub(super) fn requeue_pieces(&mut self, pieces: Vec<(L, Permits)>, search: Option<&Arc<AtomicU32>>) {
        for (piece, permits) in pieces.into_iter().rev() {
            let request = PendingRequest::new(piece, permits);
            self.ready.push_front(PendingRequest {
                search: search.cloned(),
                is_piece: true,
                ..request
            });
        }
    }
}
