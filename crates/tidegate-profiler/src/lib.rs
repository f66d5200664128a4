// SPDX-License-Identifier: Apache-2.0

//! A profile of processor time: which functions run while the process uses the processor.
//!
//! The kernel's profiling timer sends SIGPROF once in 10 ms of processor time of the process. The handler notes the
//! address of the instruction that was interrupted, by two atomic operations, and does nothing else: no allocation, no
//! lock, no walk of the stack. So a profile names the function that ran, and not who called it.

mod pprof;
mod sampler;

pub use sampler::{Sampling, StartError};

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The samples of a profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Samples by the address of the instruction.
    pub samples: BTreeMap<usize, u64>,
    /// Samples that found no room.
    pub dropped: u64,
    /// Processor time between two samples.
    pub period: Duration,
    /// When sampling began.
    pub started: SystemTime,
    /// How long it lasted.
    pub duration: Duration,
}

impl Profile {
    /// In pprof's format (`profile.proto`), not compressed, with the names of functions. Reads the symbols of the
    /// program, which takes a while at the first time.
    pub fn encode(&self) -> Vec<u8> {
        pprof::encode(self)
    }
}
