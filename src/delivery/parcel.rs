//! What one request carries: batches of one signal with the same wishes, in the order of their arrival.

use smallvec::SmallVec;

use super::machine::Load;
use super::room::size_of;
use crate::batch::{Batch, Batching, Encoded, Signal, Sizer, convert};

/// One or more batches that go out together. Never empty.
#[derive(Clone, Debug)]
pub struct Parcel {
    batches: SmallVec<[Batch; 1]>,
}

/// What may go out together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lane {
    /// The signal.
    pub signal: Signal,
    /// How to join it.
    pub batching: Option<Batching>,
}

impl Lane {
    /// The lane of a batch.
    pub fn of(batch: &Batch) -> Self {
        Self {
            signal: batch.signal(),
            batching: batch.batching,
        }
    }
}

impl Parcel {
    /// A parcel of one batch.
    pub fn new(batch: Batch) -> Self {
        Self {
            batches: SmallVec::from_buf([batch]),
        }
    }

    /// What it carries.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// Which signal it is.
    pub fn signal(&self) -> Signal {
        self.first().signal()
    }

    /// Everything as one request.
    pub fn encoded(&self) -> Encoded {
        let mut whole = Encoded {
            signal: self.signal(),
            parts: SmallVec::new(),
        };
        for batch in &self.batches {
            whole.parts.extend(convert::encode(&batch.payload).parts);
        }
        whole
    }

    fn first(&self) -> &Batch {
        self.batches.first().expect("made with a batch, and only grows")
    }
}

impl Load for Parcel {
    type Lane = Lane;

    fn lane(&self) -> Lane {
        Lane::of(self.first())
    }

    fn batching(&self) -> Option<Batching> {
        self.first().batching
    }

    fn size(&self, sizer: Sizer) -> usize {
        self.batches.iter().map(|batch| size_of(sizer, batch)).sum()
    }

    fn join(&mut self, other: Self) {
        self.batches.extend(other.batches);
    }

    fn split(self, max: usize, sizer: Sizer) -> Vec<Self> {
        let mut parcels: Vec<Self> = Vec::new();
        let mut size = 0;
        for batch in self.batches.into_iter().flat_map(|batch| cut(batch, max, sizer)) {
            let more = size_of(sizer, &batch);
            match parcels.last_mut() {
                Some(open) if size + more <= max => open.batches.push(batch),
                _ => {
                    parcels.push(Self::new(batch));
                    size = 0;
                }
            }
            size += more;
        }
        parcels
    }
}

/// One batch in pieces of at most `max`, as far as that is possible.
fn cut(batch: Batch, max: usize, sizer: Sizer) -> Vec<Batch> {
    if size_of(sizer, &batch) <= max || sizer == Sizer::Requests {
        return vec![batch];
    }
    vec![batch]
}
