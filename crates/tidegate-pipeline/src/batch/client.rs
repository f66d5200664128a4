// SPDX-License-Identifier: Apache-2.0

//! The metadata that a batch keeps of the request that brought it.

use std::fmt;

use http::{HeaderMap, HeaderName};

/// Headers of the sender's request that the receiver keeps. Batches with different headers are never joined.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientMetadata(HeaderMap);

impl ClientMetadata {
    /// These.
    pub fn new(headers: HeaderMap) -> Self {
        Self(headers)
    }

    /// A copy with only these headers; `None` if it has none of them.
    pub fn only(&self, names: &[HeaderName]) -> Option<Self> {
        let mut left = HeaderMap::new();
        for name in names {
            for value in self.0.get_all(name) {
                left.append(name, value.clone());
            }
        }
        (!left.is_empty()).then_some(Self(left))
    }

    /// Its approximate memory, in bytes.
    pub fn bytes(&self) -> usize {
        /// An entry of the map, beside its text.
        const ENTRY_BYTES: usize = 104;
        let headers = self.0.iter();
        headers
            .map(|(name, value)| ENTRY_BYTES + name.as_str().len() + value.len())
            .sum()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for ClientMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
